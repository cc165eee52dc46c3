//! The known state of one key, from the store's observed decisions.

use std::collections::BTreeMap;

use bytes::Bytes;
use semel_core::{Claim, Claimed, CrashPolicy, Grant, State};

use super::sched::Micros;
use crate::history::KeyEnding;

/// One key as the outside knows it. Times are the store's unless they say otherwise.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) name: String,
    pub(super) written: Micros,
    pub(super) lease: Micros,
    pub(super) retention: Micros,
    first: Micros,
    attempt: u16,
    max_attempts: u16,
    hold: bool,
    payload: u8,
    /// The last lease given, and where the record stands since.
    current: u64,
    phase: Phase,
    /// How far the store's clock was set back: what expired, and was removed, before that stays so.
    pub(super) set_back: Micros,
    /// Somebody has damaged the record.
    pub(super) spoiled: bool,
    checkpoint: Bytes,
    /// Leases given, and when, on the world's clock.
    pub(super) won: BTreeMap<u64, Micros>,
    /// How leases were ended.
    pub(super) done: BTreeMap<u64, KeyEnding>,
    /// When, on the world's clock, somebody deleted the record or set the store's clock.
    pub(super) disturbed: Option<Micros>,
    /// When, on the world's clock, the record was last settled.
    pub(super) settled: Micros,
}

/// Where a record stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Released,
    Running,
    InDoubt,
    Settled,
}

/// A rule that was broken, and how.
pub(super) type RuleBreach = (&'static str, String);

impl Book {
    pub(super) fn new(key: usize) -> Self {
        Self {
            name: format!("key-{key}"),
            ..Self::default()
        }
    }

    /// Whether there is a record, and it has not expired.
    pub(super) fn is_live(&self, now: Micros) -> bool {
        // Nobody can tell when a damaged record expires.
        self.spoiled || !self.won.is_empty() && now < self.written + self.retention
    }

    /// The same, whatever was removed before the store's clock was set back.
    fn is_surely_live(&self, now: Micros) -> bool {
        self.is_live(now + self.set_back)
    }

    /// Notes the answer to a claim; `world` and `now` are when it was decided.
    pub(super) fn claimed(
        &mut self,
        claim: &Claim,
        answer: &Claimed,
        world: Micros,
        now: Micros,
    ) -> Option<RuleBreach> {
        let same = claim.fingerprint.as_bytes()[1] == self.payload;
        match answer {
            Claimed::Busy(_) | Claimed::InDoubt(_) if !same => Some((
                "I7",
                "another payload was not told that it is another".to_owned(),
            )),
            Claimed::Won(grant) if self.won.contains_key(&grant.fence.0) => None,
            Claimed::Won(grant) => self.given(claim, grant, world, now),
            Claimed::Busy(busy) => {
                let left = (self.written + self.lease).saturating_sub(now);
                let told = u64::try_from(busy.retry_after.as_micros()).unwrap_or(u64::MAX);
                (told != left).then(|| {
                    let sentence = format!("{told} µs were said to be left of a lease, not {left}");
                    ("P23", sentence)
                })
            }
            Claimed::Replay(replay) => {
                if now >= self.written + self.retention {
                    return Some(("I12", "what had expired was replayed".to_owned()));
                }
                (replay.requested_at.as_micros() != self.first)
                    .then(|| ("P9", "the time of the first claim was lost".to_owned()))
            }
            Claimed::InDoubt(doubt) => self.in_doubt(&doubt.checkpoint, now),
            Claimed::Mismatch(_) => {
                let free = !self.is_live(now) || self.phase == Phase::Released;
                (free || same).then(|| ("P7", "a mismatch, with no other payload".to_owned()))
            }
        }
    }

    fn given(
        &mut self,
        claim: &Claim,
        grant: &Grant,
        world: Micros,
        now: Micros,
    ) -> Option<RuleBreach> {
        let wrong = match grant.attempt {
            1 => {
                let live = self.is_surely_live(now) && self.phase != Phase::Released;
                self.first = now;
                self.max_attempts = claim.terms.max_attempts();
                self.hold = claim.terms.crash() == CrashPolicy::Hold;
                self.checkpoint = Bytes::new();
                live.then(|| ("I12", "a live record was forgotten".to_owned()))
            }
            attempt => self.taken_over(attempt, grant),
        };
        self.phase = Phase::Running;
        self.current = grant.fence.0;
        self.payload = claim.fingerprint.as_bytes()[1];
        self.attempt = grant.attempt;
        self.written = now;
        self.lease = u64::try_from(claim.terms.lease().as_micros()).unwrap_or(0);
        self.retention = u64::try_from(claim.terms.retention().as_micros()).unwrap_or(0);
        self.won.insert(grant.fence.0, world);
        wrong
    }

    fn taken_over(&self, attempt: u16, grant: &Grant) -> Option<RuleBreach> {
        if attempt > self.max_attempts {
            let sentence = format!("attempt {attempt} of {} was given", self.max_attempts);
            return Some(("I5", sentence));
        }
        if (grant.crash == CrashPolicy::Hold) != self.hold {
            return Some((
                "P13",
                "the stored policy was not the first claim's".to_owned(),
            ));
        }
        (grant.checkpoint != self.checkpoint).then(|| {
            (
                "P9",
                "a takeover was not handed the last checkpoint".to_owned(),
            )
        })
    }

    fn in_doubt(&mut self, checkpoint: &Bytes, now: Micros) -> Option<RuleBreach> {
        if *checkpoint != self.checkpoint {
            return Some(("P15", "a doubt lost its checkpoint".to_owned()));
        }
        if self.phase == Phase::InDoubt {
            return None;
        }
        if self.may_be_taken_over() {
            let sentence = "a key that may be taken over was said to be in doubt".to_owned();
            return Some(("P10", sentence));
        }
        // The lapse was noticed, and written down.
        self.phase = Phase::InDoubt;
        self.written = now;
        None
    }

    /// Notes a renewal that was held.
    pub(super) fn renewed(&mut self, checkpoint: Option<&Bytes>, now: Micros) {
        self.written = now;
        if let Some(checkpoint) = checkpoint {
            self.checkpoint = checkpoint.clone();
        }
    }

    /// Notes a settlement or resolution that stands; `state` is what it makes of the record.
    pub(super) fn ended(
        &mut self,
        fence: u64,
        ending: KeyEnding,
        state: State,
        world: Micros,
        now: Micros,
    ) {
        if self.done.get(&fence) == Some(&ending) {
            return; // Sent again (P18).
        }
        // An owner's doubt about a doubt changes nothing (P18).
        let again = state == State::InDoubt && self.phase == Phase::InDoubt;
        self.done.insert(fence, ending);
        self.phase = match state {
            State::InDoubt => Phase::InDoubt,
            State::Released => Phase::Released,
            _ => Phase::Settled,
        };
        if again {
            return;
        }
        self.written = now;
        self.settled = world;
        if state != State::InDoubt {
            self.checkpoint = Bytes::new();
        }
    }

    const fn may_be_taken_over(&self) -> bool {
        !self.hold && self.attempt < self.max_attempts
    }

    pub(super) fn is_in_doubt(&self, now: Micros) -> bool {
        let lapsed = self.phase == Phase::Running && now >= self.written + self.lease;
        self.phase == Phase::InDoubt || lapsed && !self.may_be_taken_over()
    }

    /// A renewal or settlement of `fence` was refused: somebody else must have the key, or nobody.
    pub(super) fn refused(&self, fence: u64, renewal: bool, now: Micros) -> Option<RuleBreach> {
        let open = match self.phase {
            Phase::Running => true,
            Phase::InDoubt => !renewal,
            Phase::Released | Phase::Settled => false,
        };
        let own = fence == self.current && open && self.is_surely_live(now);
        own.then(|| match renewal {
            true => ("P14", "the owner's renewal was refused".to_owned()),
            false => ("P17", "the owner's settlement was refused".to_owned()),
        })
    }

    /// A resolution was accepted, or refused: there must be that doubt, or none (P19).
    pub(super) fn resolved(
        &self,
        fence: u64,
        ending: KeyEnding,
        accepted: bool,
        now: Micros,
    ) -> Option<RuleBreach> {
        let again = self.done.get(&fence) == Some(&ending);
        let is_it = fence == self.current && self.is_live(now) && self.is_in_doubt(now);
        match accepted {
            true if !is_it && !again => {
                Some(("P19", "what was not in doubt was resolved".to_owned()))
            }
            false if is_it && self.is_surely_live(now) => {
                Some(("P19", "a doubt could not be resolved".to_owned()))
            }
            _ => None,
        }
    }

    /// Notes that the record is gone.
    pub(super) fn deleted(&mut self, world: Micros) {
        self.disturbed = Some(world);
        self.retention = 0;
    }
}
