//! Records of answers that live shorter than their keys' records (P50).

use std::collections::BTreeMap;

use semel_core::identity::Address;
use semel_core::{Answer, Claimed, Fingerprint, Identity, Resolution, Settled};

use super::op::{Op, StoreReply};
use super::sched::Micros;

/// The bytes of a mark's head before the name.
const MARK: &[u8] = b"\xf5apart\x00\x01";

/// The name of an answer: the fingerprint of its record.
type Name = [u8; Fingerprint::BYTES];

/// What the store has decided about records of answers.
#[derive(Default)]
pub(super) struct AnswerRecords {
    names: BTreeMap<Address, Name>,
    /// Until when the store keeps an answer, by its own clock, as written by each fence.
    kept_until: BTreeMap<(Name, u64), Micros>,
    /// The names in the marks of each key.
    marks: Vec<(usize, Name)>,
}

impl AnswerRecords {
    /// Notes a call about the record of an answer. One that is settled now is kept until `end`.
    pub(super) fn decided(&mut self, op: &Op, said: &StoreReply, end: Micros) {
        let address = |identity: &Identity| identity.address();
        match (op, said) {
            (Op::Claim(claim), StoreReply::Claimed(Claimed::Won(_))) => {
                let name = *claim.fingerprint.as_bytes();
                self.names.insert(address(&claim.identity), name);
            }
            (Op::Settle(lease, _), StoreReply::Settled(Settled::Done)) => {
                if let Some(name) = self.names.get(&address(&lease.identity)) {
                    self.kept_until.entry((*name, lease.fence.0)).or_insert(end);
                }
            }
            _ => {}
        }
    }

    /// Notes the mark that a call may have written to the record of `key`.
    pub(super) fn marked(&mut self, key: usize, op: &Op) {
        let answer = match op {
            Op::Settle(_, settlement) => settlement.answer(),
            Op::Resolve(_, _, Resolution::Complete(answer) | Resolution::Fail(answer)) => {
                Some(answer)
            }
            _ => None,
        };
        if let Some(name) = answer.and_then(|answer| named_by(answer)) {
            self.marks.push((key, name));
        }
    }

    /// Whether an answer of `key` is over at `now`, by the store's clock: `None` if no answer of a
    /// mark was ever written.
    pub(super) fn is_over(&self, key: usize, now: Micros) -> Option<bool> {
        let marks = self.marks.iter().filter(|(of, _)| *of == key);
        let ends = marks.filter_map(|(_, name)| {
            let written = self.kept_until.range((*name, 0)..=(*name, u64::MAX));
            written.map(|(_, end)| *end).min()
        });
        ends.min().map(|first| first <= now)
    }
}

/// The name in a mark.
fn named_by(answer: &Answer) -> Option<Name> {
    answer.head.strip_prefix(MARK)?.try_into().ok()
}
