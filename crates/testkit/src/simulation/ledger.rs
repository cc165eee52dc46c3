//! Everything that happened in a world, and what is wrong with it.
//!
//! Calls are written down where the store decides them, at the moment it does, so the history is
//! exact: no call is open, and no clock is another than the store's.

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use semel_core::record::SealedHeader;
use semel_core::store::StoreResult;
use semel_core::{
    Answer, Claim, Claimed, KeyHint, Namespace, Renewed, Resolved, Settled, State, StoreErrorKind,
};

use super::apart::AnswerRecords;
use super::book::{Book, RuleBreach};
use super::op::{Op, StoreReply};
use super::sched::Micros;
use super::tally::{Breach, RunTally};
use crate::history::{self, CallRecord, CallReply, EffectRecord, History, KeyEnding};

/// What an effect, or whoever ended a doubt, gave as the answer.
#[derive(Clone, Debug)]
pub(super) struct EffectEntry {
    pub(super) key: usize,
    pub(super) payload: u8,
    pub(super) answer: Arc<Answer>,
    pub(super) state: State,
}

/// When and where a call was decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) node: usize,
    pub(super) tick: u64,
    /// On the store's clock, when the call came.
    pub(super) began: Micros,
    /// On the store's clock, when it was decided.
    pub(super) store: Micros,
    pub(super) world: Micros,
}

pub(super) struct Ledger {
    seed: u64,
    tick: u64,
    pub(super) history: History,
    pub(super) books: Vec<Book>,
    pub(super) made: Vec<EffectEntry>,
    pub(super) answers: AnswerRecords,
    pub(super) tally: RunTally,
    capacity: Option<usize>,
    names: Vec<(Namespace, KeyHint)>,
    /// Nodes encrypt, and some lack a key.
    encrypts: bool,
    breaches: Vec<Breach>,
    digest: DefaultHasher,
}

/// One world shows enough after so many.
const MOST_BREACHES: usize = 4;

impl Ledger {
    pub(super) fn new(
        seed: u64,
        names: Vec<(Namespace, KeyHint)>,
        capacity: Option<usize>,
        encrypts: bool,
    ) -> Self {
        Self {
            seed,
            tick: 1,
            history: History::default(),
            books: (0..names.len()).map(Book::new).collect(),
            made: Vec::new(),
            answers: AnswerRecords::default(),
            tally: RunTally::default(),
            capacity,
            names,
            encrypts,
            breaches: Vec::new(),
            digest: DefaultHasher::new(),
        }
    }

    pub(super) fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// Adds to what tells this run from every other.
    pub(super) fn trace(&mut self, what: u8, numbers: [u64; 3]) {
        self.digest.write_u8(what);
        for number in numbers {
            self.digest.write_u64(number);
        }
    }

    /// The trace, in a number.
    pub(super) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// Notes that a rule was broken for `key`; shows the key's last calls.
    pub(super) fn breach(&mut self, key: usize, (rule, sentence): RuleBreach) {
        if self.breaches.len() >= MOST_BREACHES {
            return;
        }
        let name = &self.books[key].name;
        let calls = self.history.calls.iter().rev();
        let calls = calls.filter(|call| call.key == *name).take(8);
        let mut story: Vec<_> = calls.map(CallRecord::to_string).collect();
        story.reverse();
        let sentence = format!("{name}: {sentence}");
        self.breaches.push(Breach {
            seed: self.seed,
            rule,
            sentence,
            story,
        });
    }

    /// Notes what the store decided.
    pub(super) fn decided(
        &mut self,
        key: usize,
        op: &Op,
        said: &StoreResult<StoreReply>,
        at: Moment,
    ) {
        self.tally.operations += 1;
        if said.is_ok() {
            self.answers.marked(key, op);
        }
        let reply = reply(op, said);
        let end = self.tick();
        self.trace(op.code(), [at.world, key as u64, mark(&reply)]);
        self.history.calls.push(CallRecord {
            client: u32::try_from(at.node).unwrap_or(u32::MAX),
            key: self.books[key].name.clone(),
            start: at.tick,
            end: Some(end),
            began: at.began,
            ended: Some(at.store),
            ask: op.ask(),
            reply,
        });
        if let Some(wrong) = self.booked(key, op, said, at) {
            self.breach(key, wrong);
        }
    }

    /// Notes a call that was cut while the store was at it.
    pub(super) fn cut(&mut self, key: usize, op: &Op, at: Moment) {
        self.history.calls.push(CallRecord {
            client: u32::try_from(at.node).unwrap_or(u32::MAX),
            key: self.books[key].name.clone(),
            start: at.tick,
            end: None,
            began: at.began,
            ended: None,
            ask: op.ask(),
            reply: CallReply::Unanswered,
        });
    }

    fn booked(
        &mut self,
        key: usize,
        op: &Op,
        said: &StoreResult<StoreReply>,
        at: Moment,
    ) -> Option<RuleBreach> {
        let said = match said {
            Ok(said) => said,
            Err(error) => return self.failed(key, op, error.kind, at.store),
        };
        if self.books[key].spoiled {
            return Some((
                "P25",
                "a record that can't be read was taken for none".to_owned(),
            ));
        }
        let book = &mut self.books[key];
        let (world, now) = (at.world, at.store);
        match (op, said) {
            (Op::Claim(claim), StoreReply::Claimed(answer)) => {
                if self.encrypts && !can_read(claim, answer) {
                    let sentence = "a claimant without the key was given what is encrypted";
                    return Some(("P46", sentence.to_owned()));
                }
                book.claimed(claim, answer, world, now)
            }
            (Op::Renew(_, checkpoint), StoreReply::Renewed(Renewed::Held)) => {
                book.renewed(checkpoint.as_ref(), now);
                None
            }
            (Op::Settle(lease, settlement), StoreReply::Settled(Settled::Done)) => {
                let (ending, state) = (settlement.into(), settlement.state());
                book.ended(lease.fence.0, ending, state, world, now);
                None
            }
            (Op::Renew(lease, _), StoreReply::Renewed(Renewed::Lost)) => {
                book.refused(lease.fence.0, true, now)
            }
            (Op::Settle(lease, _), StoreReply::Settled(Settled::Lost)) => {
                book.refused(lease.fence.0, false, now)
            }
            (Op::Resolve(_, fence, resolution), StoreReply::Resolved(resolved)) => {
                let (ending, accepted) = (KeyEnding::from(resolution), *resolved == Resolved::Done);
                let wrong = book.resolved(fence.0, ending, accepted, now);
                if accepted {
                    book.ended(fence.0, ending, super::op::state_of(resolution), world, now);
                }
                wrong
            }
            (Op::Read(_), StoreReply::Read(Some(record))) => {
                if !book.is_live(now) {
                    return Some(("I12", "what had expired was read".to_owned()));
                }
                let (namespace, hint) = &self.names[key];
                let named = record.namespace == *namespace && record.hint == *hint;
                (!named).then(|| ("P5", "a record forgot whose it is".to_owned()))
            }
            (Op::Delete(_), StoreReply::Deleted(_)) => {
                book.deleted(world);
                None
            }
            _ => None,
        }
    }

    /// The store, which was there and in order, refused (P26).
    fn failed(&self, key: usize, op: &Op, kind: StoreErrorKind, now: Micros) -> Option<RuleBreach> {
        let live = self.books.iter().filter(|book| book.is_live(now)).count();
        match (kind, op, self.capacity) {
            (StoreErrorKind::Full, Op::Claim(_), Some(most)) if live >= most => None,
            (StoreErrorKind::Full, Op::Claim(_), _) => {
                Some(("P26", format!("full, with {live} live records")))
            }
            (StoreErrorKind::Full, ..) => Some((
                "P26",
                "what needs no room was refused for want of it".to_owned(),
            )),
            _ if self.books[key].spoiled => None,
            // The claimant lacks the key (P46).
            (StoreErrorKind::Record, Op::Claim(claim), _)
                if self.encrypts && !claim.terms.keys().has(2) =>
            {
                None
            }
            _ => Some((
                "P25",
                "a record that was written could not be read".to_owned(),
            )),
        }
    }

    /// Notes an effect that began, for the history.
    pub(super) fn effect(&mut self, key: usize, node: usize, fence: u64, attempt: u16) {
        let start = self.tick();
        self.history.effects.push(EffectRecord {
            client: u32::try_from(node).unwrap_or(u32::MAX),
            key: self.books[key].name.clone(),
            fence,
            attempt,
            start,
            // Whether it may begin is decided where it begins, by the clock of its node.
            began: 0,
            end: None,
        });
    }

    /// All that is wrong, where the store's clock was set back by `slack` in all.
    pub(super) fn judge(mut self, slack: Duration) -> (RunTally, Vec<Breach>, u64) {
        let digest = self.digest();
        if self.breaches.is_empty() {
            let found = history::check_with_slack(&self.history, slack);
            let breaches = found.into_iter().take(MOST_BREACHES).map(|found| Breach {
                seed: self.seed,
                rule: found.invariant,
                sentence: format!("{}: {}", found.key, found.sentence),
                story: found
                    .calls
                    .iter()
                    .map(ToString::to_string)
                    .chain(found.effects.iter().map(ToString::to_string))
                    .collect(),
            });
            self.breaches = breaches.collect();
        }
        (self.tally, self.breaches, digest)
    }
}

/// What the store said, in the words of a history.
fn reply(op: &Op, said: &StoreResult<StoreReply>) -> CallReply {
    match said {
        Err(_) => CallReply::Failed { definite: true },
        Ok(StoreReply::Claimed(claimed)) => history::claimed(&op.identity(), claimed),
        Ok(StoreReply::Renewed(Renewed::Held)) => CallReply::Held,
        Ok(StoreReply::Renewed(Renewed::Lost) | StoreReply::Settled(Settled::Lost)) => {
            CallReply::Lost
        }
        Ok(StoreReply::Settled(Settled::Done) | StoreReply::Resolved(Resolved::Done)) => {
            CallReply::Done
        }
        Ok(StoreReply::Resolved(Resolved::NotInDoubt)) => CallReply::NotInDoubt,
        Ok(StoreReply::Read(found)) => CallReply::Seen(found.as_deref().map(history::stand)),
        Ok(StoreReply::Deleted(found)) => CallReply::Deleted(*found),
    }
}

/// A number for the trace.
fn mark(reply: &CallReply) -> u64 {
    match reply {
        CallReply::Won { fence, attempt, .. } => fence << 8 | u64::from(*attempt),
        CallReply::Replay(KeyEnding::Completed(mark) | KeyEnding::Failed(mark)) => *mark,
        CallReply::InDoubt { fence } => *fence,
        CallReply::Seen(Some(stand)) => stand.fence,
        CallReply::Busy | CallReply::Overtaken => 1,
        CallReply::Mismatch => 2,
        CallReply::Held => 3,
        CallReply::Done => 4,
        CallReply::Lost => 5,
        CallReply::NotInDoubt => 6,
        CallReply::Deleted(found) => 8 + u64::from(*found),
        _ => 7,
    }
}

/// Whether the claimant has the key of what it is given.
fn can_read(claim: &Claim, answer: &Claimed) -> bool {
    let field = match answer {
        Claimed::Won(grant) => &grant.checkpoint,
        Claimed::InDoubt(doubt) => &doubt.checkpoint,
        Claimed::Replay(replay) => &replay.answer.head,
        Claimed::Busy(_) | Claimed::Mismatch(_) => return true,
    };
    match SealedHeader::read(field) {
        Ok(Some(header)) => claim.terms.keys().has(header.key_id),
        Ok(None) => true,
        Err(_) => false,
    }
}
