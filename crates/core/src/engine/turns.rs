//! One claim at a time for each key of this process, and its answer for all who asked meanwhile.
//!
//! A thousand duplicates that arrive together would be a thousand store calls that say the same. Here
//! they are one or two, and what each caller is told is still what the store would have told it (P4):
//!
//! - While an effect of this process runs under a lease that its owner may count on (P30), the record is
//!   running with that owner's fingerprint: the answer is Busy (P8) or Mismatch (P7), and no call is made.
//! - While a claim is on its way, later callers queue. A claim that wins puts them in the case above. Any
//!   other answer is for those who came before it was sent; those who came after it get the next one.
//! - A store that gives no answer gives none to anybody who is in the queue (P35). Where the record is there and can't be
//!   given, that is for those with the asker's payload: another payload is a mismatch first (P7).
//!
//! Who queues is a waiter, within the bounds of all waiting (P34).
//!
//! From the moment a settlement is sent, only the store knows, and is asked again.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;
use hashbrown::HashMap;

use super::lease::Held;
use crate::claim::Claimed;
use crate::clock::Tick;
use crate::error::{StoreError, StoreErrorKind};
use crate::event::BusyReason;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::sync::Mutex;

const SHARDS: usize = 16;

#[derive(Default)]
pub(super) struct Turns {
    shards: [Mutex<HashMap<Identity, Spot>>; SHARDS],
}

/// What this process knows about a key.
enum Spot {
    /// A claim is on its way; these came after it was sent.
    Asking(Vec<Follower>),
    /// An effect of ours runs.
    Running(Fingerprint, Arc<Held>),
}

struct Follower {
    fingerprint: Fingerprint,
    tell: oneshot::Sender<Heard>,
}

/// What a store said to a claim, and when that claim was sent.
pub(super) type Answered = Result<(Claimed, Tick), Unanswered>;

/// A claim that got no answer.
#[derive(Clone, Debug)]
pub(super) struct Unanswered {
    /// `None` while the breaker is open.
    pub(super) source: Option<StoreError>,
    pub(super) retry_after: Duration,
}

impl Unanswered {
    /// Whether there is a record, and it can't be read or not with its body. That is an answer of a kind: the key is not
    /// free (P25, P44).
    pub(super) fn is_about_a_record(&self) -> bool {
        let kind = self.source.as_ref().map(|error| error.kind);
        matches!(kind, Some(StoreErrorKind::Record | StoreErrorKind::Body))
    }
}

/// How a caller gets its answer.
pub(super) enum Entry {
    /// The store would say this.
    Known(Claimed),
    /// By asking the store.
    Ask(Turn),
    /// By waiting for somebody else's question.
    Wait(oneshot::Receiver<Heard>),
    /// Not: as many as may wait already do.
    Refused(BusyReason),
}

/// What a waiting caller hears.
pub(super) enum Heard {
    /// The answer.
    Answer(Answered),
    /// Nothing that is good for it: it is its turn to ask.
    Turn(Turn),
    /// Nothing, and what the others ask does not help: ask alone.
    Alone,
}

/// The right to ask the store about a key, and the duty to share the answer.
pub(super) struct Turn {
    turns: Arc<Turns>,
    identity: Identity,
    fingerprint: Fingerprint,
    // Who came before the question is sent.
    group: Vec<Follower>,
    ended: bool,
}

impl Turns {
    /// `take_place` is asked for a place to wait, where the caller has to.
    pub(super) fn enter(
        self: &Arc<Self>,
        identity: Identity,
        fingerprint: Fingerprint,
        now: Tick,
        take_place: impl FnOnce() -> Result<(), BusyReason>,
    ) -> Entry {
        let mut spots = self.shard(&identity).lock();
        match spots.get_mut(&identity) {
            Some(Spot::Asking(queue)) => {
                if let Err(why) = take_place() {
                    return Entry::Refused(why);
                }
                // Those who left at their limit make room before the queue grows.
                if queue.len() == queue.capacity() {
                    queue.retain(|follower| !follower.tell.is_canceled());
                }
                let (tell, hear) = oneshot::channel();
                queue.push(Follower { fingerprint, tell });
                return Entry::Wait(hear);
            }
            Some(Spot::Running(theirs, held)) => {
                if let Some(claimed) = known(held, *theirs, fingerprint, now) {
                    return Entry::Known(claimed);
                }
            }
            None => {}
        }
        spots.insert(identity, Spot::Asking(Vec::new()));
        drop(spots);
        Entry::Ask(Turn {
            turns: Arc::clone(self),
            identity,
            fingerprint,
            group: Vec::new(),
            ended: false,
        })
    }

    /// Counts no longer on a lease of ours: somebody has changed the record from outside.
    pub(super) fn forget(&self, identity: &Identity) {
        let mut spots = self.shard(identity).lock();
        if matches!(spots.get(identity), Some(Spot::Running(..))) {
            spots.remove(identity);
        }
    }

    /// How many keys are asked about or run now.
    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, identity: &Identity) -> &Mutex<HashMap<Identity, Spot>> {
        // A digest: any of its bytes spreads keys evenly.
        &self.shards[usize::from(identity.as_bytes()[31]) % SHARDS]
    }

    /// Gives the turn to one of `waiting`, or of those who came meanwhile; frees the spot if there is nobody.
    fn pass_on(self: &Arc<Self>, identity: Identity, mut waiting: Vec<Follower>) {
        loop {
            if waiting.is_empty() {
                let mut spots = self.shard(&identity).lock();
                match spots.get_mut(&identity) {
                    Some(Spot::Asking(queue)) if !queue.is_empty() => waiting = mem::take(queue),
                    Some(Spot::Asking(_)) => {
                        spots.remove(&identity);
                        return;
                    }
                    Some(Spot::Running(..)) | None => return,
                }
            }
            let Follower { fingerprint, tell } = waiting.swap_remove(0);
            let turn = Turn {
                turns: Arc::clone(self),
                identity,
                fingerprint,
                group: waiting,
                ended: false,
            };
            match tell.send(Heard::Turn(turn)) {
                // It has left: the next one.
                Err(Heard::Turn(mut turn)) => waiting = turn.end(),
                _ => return,
            }
        }
    }
}

/// What a store would say to a claim with `fingerprint` while `held` is good; `None` where it isn't.
fn known(held: &Held, theirs: Fingerprint, fingerprint: Fingerprint, now: Tick) -> Option<Claimed> {
    let busy = held.busy(now)?;
    Some(match theirs == fingerprint {
        true => Claimed::Busy(busy),
        false => Claimed::Mismatch,
    })
}

impl Turn {
    /// The question is about to be sent: whoever came until now gets its answer.
    pub(super) fn gather(&mut self) {
        let mut spots = self.turns.shard(&self.identity).lock();
        if let Some(Spot::Asking(queue)) = spots.get_mut(&self.identity) {
            self.group.append(queue);
        }
    }

    /// Shares an answer that is no win.
    pub(super) fn share(mut self, answered: &Answered) {
        let mut group = self.end();
        if answered.is_err() {
            let mut spots = self.turns.shard(&self.identity).lock();
            if let Some(Spot::Asking(queue)) = spots.get_mut(&self.identity) {
                group.append(queue);
            }
        }
        for follower in group {
            let answer = answer_for(answered, self.fingerprint, follower.fingerprint);
            // Nobody to tell is fine.
            let _ = follower
                .tell
                .send(answer.map_or(Heard::Alone, Heard::Answer));
        }
        self.turns.pass_on(self.identity, Vec::new());
    }

    /// The claim won: from now on the lease answers, until the guard is dropped or the lease is no good.
    pub(super) fn hold(mut self, held: &Arc<Held>, now: Tick) -> Kept {
        let mut waiting = self.end();
        let (identity, fingerprint) = (self.identity, self.fingerprint);
        let kept = Kept {
            turns: Arc::clone(&self.turns),
            held: Arc::clone(held),
        };
        if held.busy(now).is_none() {
            self.turns.pass_on(identity, waiting);
            return kept;
        }
        let spot = Spot::Running(fingerprint, Arc::clone(held));
        let before = self.turns.shard(&identity).lock().insert(identity, spot);
        if let Some(Spot::Asking(queue)) = before {
            waiting.extend(queue);
        }
        for follower in waiting {
            let claimed = known(held, fingerprint, follower.fingerprint, now);
            let answer = claimed.map(|claimed| Heard::Answer(Ok((claimed, now))));
            let _ = follower.tell.send(answer.unwrap_or(Heard::Alone));
        }
        kept
    }

    fn end(&mut self) -> Vec<Follower> {
        self.ended = true;
        mem::take(&mut self.group)
    }
}

impl Drop for Turn {
    /// An asker that vanished without an answer: somebody else has to ask.
    fn drop(&mut self) {
        if !self.ended {
            let waiting = self.end();
            self.turns.pass_on(self.identity, waiting);
        }
    }
}

/// What an answer to a claim with `asked` says to one with `fingerprint`; `None` where it says nothing.
fn answer_for(
    answered: &Answered,
    asked: Fingerprint,
    fingerprint: Fingerprint,
) -> Option<Answered> {
    let (claimed, sent) = match answered {
        Ok(answer) => answer,
        // The record has somebody's payload, and nobody knows whose: each asks for its own (P7).
        Err(unanswered) if unanswered.is_about_a_record() && asked != fingerprint => return None,
        Err(unanswered) => return Some(Err(unanswered.clone())),
    };
    let claimed = match claimed {
        Claimed::Won(_) => return None,
        claimed if asked == fingerprint => claimed.clone(),
        // The record has neither's payload, or the other's.
        Claimed::Mismatch => return None,
        // The record has the asker's payload: to any other, that comes first (P7).
        Claimed::Busy(_) | Claimed::Replay(_) | Claimed::InDoubt(_) => Claimed::Mismatch,
    };
    Some(Ok((claimed, *sent)))
}

/// Keeps a lease of ours known while it is held.
pub(super) struct Kept {
    turns: Arc<Turns>,
    held: Arc<Held>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let identity = self.held.subject.identity;
        let mut spots = self.turns.shard(&identity).lock();
        // Whoever found the lease no good may have taken the spot.
        if let Some(Spot::Running(_, held)) = spots.get(&identity)
            && Arc::ptr_eq(held, &self.held)
        {
            spots.remove(&identity);
        }
    }
}
