//! Single-flight for claims: per process and key, one claim is in flight and its answer is shared
//! (request coalescing).
//!
//! A thousand duplicates that arrive together would cost a thousand store calls with the same
//! answer. Here they cost one or two, and each caller still gets the answer that the store would
//! have given it (P4):
//!
//! - While an effect of this process runs under a lease that its owner may count on (P30), the
//!   record is running with that owner's fingerprint. The answer is Busy (P8) or Mismatch (P7),
//!   without a store call.
//! - While a claim is in flight, later callers queue as followers. If the claim wins, the case
//!   above applies to them. Any other answer goes to the followers that came before the claim was
//!   sent; those that came later get the next one.
//! - If the store gives no answer, all queued followers get that failure (P35). If the failure
//!   concerns an existing record, only followers with the leader's payload get it: for another
//!   payload, a mismatch comes first (P7).
//!
//! A follower counts as a waiter, within the bounds of all waiters (P34).
//!
//! Once a settlement is sent, only the store knows the state of the key, and is asked again.

use std::hash::BuildHasher as _;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::lease::HeldLease;
use crate::claim::{Claimed, Mismatch};
use crate::clock::Tick;
use crate::error::{StoreError, StoreErrorKind};
use crate::event::BusyReason;
use crate::fingerprint::Fingerprint;
use crate::identity::{Identity, address_bits};
use crate::sync::Mutex;

const SHARDS: usize = 16;

/// The keys that this process claims or runs.
#[derive(Default)]
pub(super) struct ClaimCoalescer {
    shards: [Mutex<HashTable<KnownKey>>; SHARDS],
    hasher: DefaultHashBuilder,
}

struct KnownKey {
    identity: Identity,
    state: KeyState,
}

/// What this process knows about a key.
enum KeyState {
    /// A claim is in flight; these followers came after it was sent.
    Claiming(Vec<Follower>),
    /// An effect of this process runs.
    Running(Fingerprint, Arc<HeldLease>),
}

/// A caller that waits for the outcome of another caller's claim.
struct Follower {
    fingerprint: Fingerprint,
    reply: oneshot::Sender<FollowerReply>,
}

/// The store's answer to a claim and the time at which that claim was sent, or why there is no
/// answer.
pub(super) type ClaimOutcome = Result<(Claimed, Tick), ClaimFailure>;

/// Why a claim got no answer.
#[derive(Clone, Debug)]
pub(super) struct ClaimFailure {
    /// `None` while the breaker is open.
    pub(super) source: Option<StoreError>,
    pub(super) retry_after: Duration,
}

impl ClaimFailure {
    /// Whether the key has a record that can't be read, whose body can't be loaded, or whose answer
    /// was erased. The key is then not free (P25, P44, P49).
    pub(super) fn is_about_a_record(&self) -> bool {
        let kind = self.source.as_ref().map(|error| error.kind);
        matches!(
            kind,
            Some(StoreErrorKind::Record | StoreErrorKind::Body | StoreErrorKind::Erased)
        )
    }
}

/// How a caller that joins a key gets its answer.
pub(super) enum JoinOutcome {
    /// The answer is known without a store call.
    Known(Claimed),
    /// The caller sends the claim, as the leader.
    Lead(Leader),
    /// The caller waits for the outcome of the leader's claim.
    Follow(oneshot::Receiver<FollowerReply>),
    /// The caller may not wait: a bound on waiters is reached.
    Refused(BusyReason),
}

/// What a follower receives.
pub(super) enum FollowerReply {
    /// The outcome of the leader's claim.
    Outcome(ClaimOutcome),
    /// The last outcome doesn't apply to it: it is the next leader.
    Lead(Leader),
    /// The last outcome doesn't apply to it: it sends a claim of its own, which isn't shared.
    ClaimAlone,
}

/// The right to claim a key, and the duty to share the answer.
pub(super) struct Leader {
    coalescer: Arc<ClaimCoalescer>,
    identity: Identity,
    /// Computed once for all look-ups of the key.
    hash: u64,
    fingerprint: Fingerprint,
    /// The followers that came before the claim is sent.
    group: Vec<Follower>,
    ended: bool,
}

impl ClaimCoalescer {
    /// Joins the callers that claim a key. Calls `become_waiter` if the caller has to wait.
    pub(super) fn join(
        self: &Arc<Self>,
        identity: Identity,
        fingerprint: Fingerprint,
        now: Tick,
        become_waiter: impl FnOnce() -> Result<(), BusyReason>,
    ) -> JoinOutcome {
        let hash = self.hash(&identity);
        let mut keys = self.shard(&identity).lock();
        let claiming = KeyState::Claiming(Vec::new());
        let same = |key: &KnownKey| key.identity == identity;
        let entry = keys.entry(hash, same, |key| self.hash(&key.identity));
        let mut found = match entry {
            Entry::Vacant(entry) => {
                entry.insert(KnownKey {
                    identity,
                    state: claiming,
                });
                drop(keys);
                return JoinOutcome::Lead(self.leader(identity, hash, fingerprint, Vec::new()));
            }
            Entry::Occupied(found) => found,
        };
        let state = &mut found.get_mut().state;
        match state {
            KeyState::Claiming(queue) => {
                if let Err(why) = become_waiter() {
                    return JoinOutcome::Refused(why);
                }
                // Remove followers that have given up before the queue grows.
                if queue.len() == queue.capacity() {
                    queue.retain(|follower| !follower.reply.is_canceled());
                }
                let (reply, receiver) = oneshot::channel();
                queue.push(Follower { fingerprint, reply });
                return JoinOutcome::Follow(receiver);
            }
            KeyState::Running(theirs, held) => {
                if let Some(claimed) = known_answer(held, *theirs, fingerprint, now) {
                    return JoinOutcome::Known(claimed);
                }
            }
        }
        let before = mem::replace(state, claiming);
        drop(keys);
        // Without the lock: the last reference to a lease may drop an effect's state.
        drop(before);
        JoinOutcome::Lead(self.leader(identity, hash, fingerprint, Vec::new()))
    }

    fn leader(
        self: &Arc<Self>,
        identity: Identity,
        hash: u64,
        fingerprint: Fingerprint,
        group: Vec<Follower>,
    ) -> Leader {
        Leader {
            coalescer: Arc::clone(self),
            identity,
            hash,
            fingerprint,
            group,
            ended: false,
        }
    }

    /// Stops answering from a lease of this process: an operator has changed the record.
    pub(super) fn forget(&self, identity: &Identity) {
        let mut keys = self.shard(identity).lock();
        let is_running = |key: &KnownKey| {
            key.identity == *identity && matches!(key.state, KeyState::Running(..))
        };
        let found = keys.find_entry(self.hash(identity), is_running);
        let removed = found.ok().map(|found| found.remove().0);
        drop(keys);
        drop(removed);
    }

    /// How many keys are being claimed or run.
    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn hash(&self, identity: &Identity) -> u64 {
        self.hasher.hash_one(address_bits(&identity.address()))
    }

    fn shard(&self, identity: &Identity) -> &Mutex<HashTable<KnownKey>> {
        // The identity is a digest: any of its bytes spreads keys evenly.
        &self.shards[usize::from(identity.as_bytes()[31]) % SHARDS]
    }

    /// Moves the followers that came since the claim was sent into `group`.
    fn take_queue(&self, identity: &Identity, hash: u64, group: &mut Vec<Follower>) {
        let mut keys = self.shard(identity).lock();
        let found = keys.find_mut(hash, |key| key.identity == *identity);
        if let Some(KeyState::Claiming(queue)) = found.map(|key| &mut key.state) {
            group.append(queue);
        }
    }

    /// Makes one of `waiting`, or of the followers that came meanwhile, the next leader. Forgets
    /// the key if there is none.
    fn promote_follower(
        self: &Arc<Self>,
        identity: Identity,
        hash: u64,
        mut waiting: Vec<Follower>,
    ) {
        loop {
            if waiting.is_empty() {
                let mut keys = self.shard(&identity).lock();
                let same = |key: &KnownKey| key.identity == identity;
                let Ok(mut found) = keys.find_entry(hash, same) else {
                    return;
                };
                match &mut found.get_mut().state {
                    KeyState::Claiming(queue) if !queue.is_empty() => waiting = mem::take(queue),
                    KeyState::Claiming(_) => {
                        found.remove();
                        return;
                    }
                    KeyState::Running(..) => return,
                }
            }
            let Follower { fingerprint, reply } = waiting.swap_remove(0);
            let leader = self.leader(identity, hash, fingerprint, waiting);
            match reply.send(FollowerReply::Lead(leader)) {
                // This follower has given up: try the next one.
                Err(FollowerReply::Lead(mut leader)) => waiting = leader.end(),
                _ => return,
            }
        }
    }
}

/// The store's answer to a claim with `fingerprint` while `held` is certain to be ours; `None` if
/// it isn't.
fn known_answer(
    held: &HeldLease,
    theirs: Fingerprint,
    fingerprint: Fingerprint,
    now: Tick,
) -> Option<Claimed> {
    let busy = held.busy(now)?;
    Some(match theirs == fingerprint {
        true => Claimed::Busy(busy),
        false => Claimed::Mismatch(Mismatch::local(theirs)),
    })
}

impl Leader {
    /// Takes in the followers that came until now. Called right before the claim is sent: they
    /// share its answer.
    pub(super) fn gather_followers(&mut self) {
        self.coalescer
            .take_queue(&self.identity, self.hash, &mut self.group);
    }

    /// Shares an outcome other than a win with the followers.
    pub(super) fn share(mut self, outcome: &ClaimOutcome) {
        let mut group = self.end();
        if outcome.is_err() {
            let (identity, hash) = (&self.identity, self.hash);
            self.coalescer.take_queue(identity, hash, &mut group);
        }
        for follower in group {
            let shared = outcome_for(outcome, self.fingerprint, follower.fingerprint);
            // A follower that has given up needs no reply.
            let _ = follower
                .reply
                .send(shared.map_or(FollowerReply::ClaimAlone, FollowerReply::Outcome));
        }
        self.coalescer
            .promote_follower(self.identity, self.hash, Vec::new());
    }

    /// Ends the claim as won: the lease answers the followers and later callers until the guard is
    /// dropped or the lease is no longer certain.
    pub(super) fn start_running(mut self, held: &Arc<HeldLease>, now: Tick) -> RunningGuard {
        let mut waiting = self.end();
        let (identity, hash, fingerprint) = (self.identity, self.hash, self.fingerprint);
        let guard = RunningGuard {
            held: Arc::clone(held),
            hash,
        };
        if held.busy(now).is_none() {
            self.coalescer.promote_follower(identity, hash, waiting);
            return guard;
        }
        let coalescer = &self.coalescer;
        let state = KeyState::Running(fingerprint, Arc::clone(held));
        let running = KnownKey { identity, state };
        let mut keys = coalescer.shard(&identity).lock();
        let before = match keys.find_mut(hash, |key| key.identity == identity) {
            Some(key) => Some(mem::replace(key, running)),
            // A leader's entry stays until it ends, but a run is to be known in any case.
            None => {
                keys.insert_unique(hash, running, |key| coalescer.hash(&key.identity));
                None
            }
        };
        drop(keys);
        if let Some(KeyState::Claiming(queue)) = before.map(|key| key.state) {
            waiting.extend(queue);
        }
        for follower in waiting {
            let claimed = known_answer(held, fingerprint, follower.fingerprint, now);
            let reply = claimed.map(|claimed| FollowerReply::Outcome(Ok((claimed, now))));
            let _ = follower
                .reply
                .send(reply.unwrap_or(FollowerReply::ClaimAlone));
        }
        guard
    }

    fn end(&mut self) -> Vec<Follower> {
        self.ended = true;
        mem::take(&mut self.group)
    }
}

impl Drop for Leader {
    /// The leader was cancelled before it got an answer: a follower takes its place.
    fn drop(&mut self) {
        if !self.ended {
            let waiting = self.end();
            self.coalescer
                .promote_follower(self.identity, self.hash, waiting);
        }
    }
}

/// The outcome for a follower with payload `theirs` of a claim with payload `leaders`; `None` if it
/// doesn't apply.
fn outcome_for(
    outcome: &ClaimOutcome,
    leaders: Fingerprint,
    theirs: Fingerprint,
) -> Option<ClaimOutcome> {
    let (claimed, sent) = match outcome {
        Ok(answer) => answer,
        // The record's payload is unknown, so each payload has to be claimed on its own (P7).
        Err(failure) if failure.is_about_a_record() && leaders != theirs => return None,
        Err(failure) => return Some(Err(failure.clone())),
    };
    let claimed = match claimed {
        Claimed::Won(_) => return None,
        claimed if leaders == theirs => claimed.clone(),
        // The record may have the follower's payload, or a third one.
        Claimed::Mismatch(_) => return None,
        // The record has the leader's payload: for any other payload, the mismatch comes first
        // (P7).
        Claimed::Replay(replay) => Claimed::Mismatch(Mismatch {
            fingerprint: leaders,
            requested_at: Some(replay.requested_at),
        }),
        Claimed::Busy(_) | Claimed::InDoubt(_) => Claimed::Mismatch(Mismatch::local(leaders)),
    };
    Some(Ok((claimed, *sent)))
}

/// Lets the lease answer other callers of the key while it is held.
pub(super) struct RunningGuard {
    held: Arc<HeldLease>,
    hash: u64,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        let identity = self.held.subject.identity;
        let mut keys = self.held.engine.coalescer.shard(&identity).lock();
        // A caller that found the lease expired may have replaced the entry.
        let is_ours = |key: &KnownKey| {
            key.identity == identity
                && matches!(&key.state, KeyState::Running(_, held) if Arc::ptr_eq(held, &self.held))
        };
        let found = keys.find_entry(self.hash, is_ours);
        let removed = found.ok().map(|found| found.remove().0);
        drop(keys);
        drop(removed);
    }
}
