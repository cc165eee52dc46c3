//! Mutation tests of the checker: stores and clients with one bug each, and the rule that must find
//! it.

use std::sync::Arc;

use super::check::check;
use super::clients::{ClientFlaw, Plan, run};
use super::rig::Rig;
use super::violation::Violation;
use crate::broken::{BrokenStore, Bug};
use crate::faulty::Faults;
use semel_conformance::clock::FakeClock;

/// Who has the bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Culprit {
    /// The store.
    Store(Bug),
    /// The clients.
    Client(ClientFlaw),
}

/// A bug that a history can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seeded {
    /// Who has it.
    pub culprit: Culprit,
    /// The invariant that it breaks.
    pub invariant: &'static str,
    /// How the sentence of the rule begins that finds it, where no other rule does.
    pub only: Option<&'static str>,
}

impl Seeded {
    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.culprit {
            Culprit::Store(bug) => bug.name(),
            Culprit::Client(flaw) => flaw.name(),
        }
    }

    /// What is found in the run of this seed.
    pub async fn violations(&self, seed: u64) -> Vec<Violation> {
        short_run(Some(self.culprit), seed).await
    }
}

/// What is found in the run of this seed where nobody has a bug.
pub async fn sound_violations(seed: u64) -> Vec<Violation> {
    short_run(None, seed).await
}

async fn short_run(culprit: Option<Culprit>, seed: u64) -> Vec<Violation> {
    let (bug, flaw) = match culprit {
        Some(Culprit::Store(bug)) => (Some(bug), None),
        Some(Culprit::Client(flaw)) => (None, Some(flaw)),
        None => (None, None),
    };
    let clock = Arc::new(FakeClock::new());
    let store = BrokenStore::new(bug, clock.clone());
    let another = Arc::new(store.another());
    let faults = Faults {
        repeat: 0.0,
        ..Faults::all(0.02)
    };
    let rig = Rig::new(Arc::clone(&clock), Arc::new(store)).elsewhere(another);
    let rig = rig.faulty(faults, seed);
    let plan = Plan {
        flaw,
        ..Plan::short(seed)
    };
    check(&run(Arc::new(rig), clock, plan).await)
}

const fn of(culprit: Culprit, invariant: &'static str) -> Seeded {
    Seeded {
        culprit,
        invariant,
        only: None,
    }
}

const fn store(bug: Bug, invariant: &'static str) -> Seeded {
    of(Culprit::Store(bug), invariant)
}

/// Found because the calls have no order, and by nothing else.
const fn order(bug: Bug) -> Seeded {
    Seeded {
        only: Some("no order of the calls"),
        ..store(bug, "I16")
    }
}

const fn client(flaw: ClientFlaw, invariant: &'static str, rule: &'static str) -> Seeded {
    Seeded {
        only: Some(rule),
        ..of(Culprit::Client(flaw), invariant)
    }
}

const fn stale(bug: Bug) -> Seeded {
    Seeded {
        only: Some("an answer had been acknowledged"),
        ..store(bug, "I2")
    }
}

/// Every bug that a history can show.
pub const SEEDED: &[Seeded] = &[
    store(Bug::CheckThenAct, "I1"),
    store(Bug::OwnerByRowsAffected, "I1"),
    store(Bug::DeleteTakesNeighbours, "I12"),
    store(Bug::ResentClaimIsBusy, "I6"),
    store(Bug::MismatchIgnoredWhenSettled, "I7"),
    store(Bug::FingerprintDroppedOnCompletion, "I7"),
    store(Bug::FingerprintDroppedOnDoubt, "I7"),
    store(Bug::TakeoverIgnoresPayload, "I7"),
    store(Bug::LeaseIsTtl, "I5"),
    store(Bug::TakeoverBeforeLapse, "I5"),
    store(Bug::RenewalNotCounted, "I5"),
    store(Bug::PlainRenewalNotWritten, "I5"),
    store(Bug::TakeoverUnderHold, "I5"),
    store(Bug::AttemptsNotCounted, "I12"),
    store(Bug::DoubtIsFree, "I5"),
    store(Bug::DoubtIsReleased, "I5"),
    store(Bug::ResentClaimRunsAgain, "I2"),
    store(Bug::RenewIsUpsert, "I3"),
    store(Bug::RenewIgnoresOwner, "I3"),
    store(Bug::RenewRevives, "I3"),
    store(Bug::SettleIgnoresOwner, "I3"),
    store(Bug::SettleIsUpsert, "I3"),
    store(Bug::SecondSettleOverwrites, "I2"),
    store(Bug::LateSettlementNotWritten, "I2"),
    store(Bug::ResentSettleIsLost, "I6"),
    store(Bug::ResentResolveRefused, "I6"),
    store(Bug::SweepTakesRunning, "I12"),
    store(Bug::FenceRestartsAfterRelease, "I1"),
    store(Bug::FenceForgottenWithTheRecord, "I1"),
    store(Bug::TakeoverKeepsTheFence, "I1"),
    store(Bug::FailureReplayedAsAnswer, "I2"),
    store(Bug::AnswerIsText, "I2"),
    store(Bug::ReplicaLags, "I2"),
    order(Bug::ReleasedKeepsItsPayload),
    order(Bug::MismatchIgnoredWhileRunning),
    order(Bug::NoTakeover),
    order(Bug::LateRenewalRefused),
    order(Bug::LateSettleRefused),
    order(Bug::DoubtSilencesOwner),
    order(Bug::ExpiredIsReplayed),
    order(Bug::ExpiredIsRead),
    stale(Bug::AnswerIsBusyElsewhere),
    stale(Bug::AnswerIsDoubtedElsewhere),
    client(ClientFlaw::BeginsLate, "I4", "an effect began"),
    client(
        ClientFlaw::CountsFromTheLastSending,
        "I4",
        "an effect began",
    ),
    client(ClientFlaw::ReleasesAtWork, "I17", "fences"),
    client(ClientFlaw::DoubtsAtWork, "I17", "fences"),
];
