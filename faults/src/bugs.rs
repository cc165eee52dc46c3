//! The checker is held to account: stores with one bug each, and in which run it is found.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use comfy_table::Table;
use semel::core::{BoxFuture, Identity, MemoryConfig, MemoryStore, StoreAdmin};
use semel_testkit::broken::{BrokenStore, Bug};
use semel_testkit::clock::FakeClock;
use semel_testkit::conformance::{Spans, Subject};
use semel_testkit::faulty::{Faults, FaultyStore};
use semel_testkit::history::clients::{Plan, run};
use semel_testkit::history::{Violation, check};
use serde::Serialize;

/// The bugs that a history can show, each with the invariant that it breaks.
pub(crate) const SEEDED: [(Bug, &str); 25] = [
    (Bug::CheckThenAct, "I1"),
    (Bug::OwnerByRowsAffected, "I1"),
    (Bug::ResentClaimIsBusy, "I6"),
    (Bug::MismatchIgnoredWhenSettled, "I7"),
    (Bug::FingerprintDroppedOnCompletion, "I7"),
    (Bug::TakeoverIgnoresPayload, "I7"),
    (Bug::LeaseIsTtl, "I5"),
    (Bug::TakeoverBeforeLapse, "I5"),
    (Bug::RenewalNotCounted, "I5"),
    (Bug::TakeoverUnderHold, "I5"),
    (Bug::DoubtIsFree, "I5"),
    (Bug::DoubtIsReleased, "I5"),
    (Bug::ResentClaimRunsAgain, "I2"),
    (Bug::RenewIgnoresOwner, "I3"),
    (Bug::RenewRevives, "I3"),
    (Bug::SettleIgnoresOwner, "I3"),
    (Bug::SettleIsUpsert, "I3"),
    (Bug::SecondSettleOverwrites, "I2"),
    (Bug::ResentSettleIsLost, "I6"),
    (Bug::ResentResolveRefused, "I6"),
    (Bug::SweepTakesRunning, "I12"),
    (Bug::FenceRestartsAfterRelease, "I1"),
    (Bug::FenceForgottenWithTheRecord, "I1"),
    (Bug::TakeoverKeepsTheFence, "I1"),
    (Bug::FailureReplayedAsAnswer, "I2"),
];

/// One bug's row.
#[derive(Debug, Serialize)]
pub(crate) struct Found {
    bug: &'static str,
    invariant: &'static str,
    /// In which run, counted from 1.
    run: Option<u64>,
    shown: String,
}

/// A store on a clock that its callers move, behind faults.
struct Rig {
    clock: Arc<FakeClock>,
    store: Arc<dyn StoreAdmin>,
}

impl Rig {
    fn new(bug: Option<Bug>, faults: Faults, seed: u64) -> Self {
        let clock = Arc::new(FakeClock::new());
        let store: Arc<dyn StoreAdmin> = match bug {
            Some(bug) => Arc::new(BrokenStore::new(Some(bug), clock.clone())),
            None => Arc::new(MemoryStore::new(MemoryConfig::default(), clock.clone())),
        };
        let store = Arc::new(FaultyStore::new(store, clock.clone(), faults, seed));
        Self { clock, store }
    }
}

impl Subject for Rig {
    fn store(&self) -> Arc<dyn StoreAdmin> {
        Arc::clone(&self.store)
    }

    fn another(&self) -> Arc<dyn StoreAdmin> {
        Arc::clone(&self.store)
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(time);
        Box::pin(tokio::task::yield_now())
    }

    fn spans(&self) -> Spans {
        Spans::FREE
    }

    fn tiny(&self) -> BoxFuture<'_, Option<Arc<dyn StoreAdmin>>> {
        Box::pin(async { None })
    }

    fn spoil<'a>(&'a self, _: &'a Identity) -> BoxFuture<'a, bool> {
        Box::pin(async { false })
    }
}

async fn short_run(bug: Option<Bug>, seed: u64) -> Vec<Violation> {
    let faults = Faults {
        repeat: 0.0,
        ..Faults::all(0.02)
    };
    let rig = Rig::new(bug, faults, seed);
    let clock = rig.clock.clone();
    check(&run(Arc::new(rig), clock, Plan::short(seed)).await)
}

/// Runs a bug until it is found, or `runs` times.
async fn hunt(bug: Bug, invariant: &'static str, first: u64, runs: u64) -> Found {
    let mut found = Found {
        bug: bug.name(),
        invariant,
        run: None,
        shown: String::new(),
    };
    for number in 0..runs {
        let violations = short_run(Some(bug), first.wrapping_add(number)).await;
        if let Some(violation) = violations
            .iter()
            .find(|violation| violation.invariant == invariant)
        {
            (found.run, found.shown) = (Some(number + 1), violation.to_string());
            break;
        }
    }
    found
}

/// Hunts one bug, or all of them; and shows that the same runs on a sound store find nothing.
pub(crate) async fn hunt_all(name: &str, seed: u64, runs: u64) -> Result<Vec<Found>> {
    let wanted: Vec<_> = SEEDED
        .iter()
        .filter(|(bug, _)| name == "all" || bug.name() == name)
        .collect();
    if wanted.is_empty() {
        let names: Vec<_> = SEEDED.iter().map(|(bug, _)| bug.name()).collect();
        bail!("no bug {name}; there are: {}", names.join(", "));
    }
    for number in 0..runs.min(20) {
        let wrong = short_run(None, seed.wrapping_add(number)).await;
        if let Some(violation) = wrong.first() {
            bail!(
                "a sound store is accused, seed {}: {violation}",
                seed.wrapping_add(number)
            );
        }
    }
    let mut rows = Vec::new();
    for (bug, invariant) in wanted {
        rows.push(hunt(*bug, invariant, seed, runs).await);
    }
    Ok(rows)
}

/// The rows as people read them. → whether every bug was found.
pub(crate) fn tell(rows: &[Found], runs: u64) -> bool {
    let mut table = Table::new();
    table.set_header(["seeded bug", "breaks", "found in run"]);
    for row in rows {
        let run = row
            .run
            .map_or_else(|| format!("not in {runs}"), |run| run.to_string());
        table.add_row([row.bug, row.invariant, &run]);
    }
    println!("{table}");
    if let [one] = rows {
        println!("{}", one.shown);
    }
    let found = rows.iter().filter(|row| row.run.is_some()).count();
    println!(
        "{found} of {} seeded bugs found, each within {runs} short runs",
        rows.len()
    );
    found == rows.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn every_seeded_bug_is_found() {
        let rows = hunt_all("all", 1, 100).await.unwrap();
        let missed: Vec<_> = rows.iter().filter(|row| row.run.is_none()).collect();
        assert!(
            rows.len() >= 20 && missed.is_empty(),
            "not found: {missed:?}"
        );
    }

    #[tokio::test]
    async fn an_unknown_bug_is_said() {
        let error = hunt_all("no-such-bug", 1, 1).await.unwrap_err().to_string();
        assert!(error.contains("check_then_act"), "{error}");
    }
}
