//! Random clients: against sound stores the checker finds nothing, faults or not; against broken ones
//! it finds the bugs that a history can show, without knowing what to look for.

use std::sync::Arc;
use std::time::Duration;

use semel_core::{BoxFuture, Identity, MemoryConfig, MemoryStore, StoreAdmin};
use semel_testkit::broken::{BrokenStore, Bug};
use semel_testkit::clock::FakeClock;
use semel_testkit::conformance::{Spans, Subject};
use semel_testkit::faulty::{Faults, FaultyStore};
use semel_testkit::history::clients::{Plan, run};
use semel_testkit::history::{Call, History, Reply, check};

/// A store on a clock that the clients move.
struct Rig {
    clock: Arc<FakeClock>,
    store: Arc<dyn StoreAdmin>,
}

impl Rig {
    fn memory() -> Self {
        let clock = Arc::new(FakeClock::new());
        let store = Arc::new(MemoryStore::new(MemoryConfig::default(), clock.clone()));
        Self { clock, store }
    }

    fn broken(bug: Option<Bug>) -> Self {
        let clock = Arc::new(FakeClock::new());
        let store = Arc::new(BrokenStore::new(bug, clock.clone()));
        Self { clock, store }
    }

    fn faulty(self, faults: Faults, seed: u64) -> Self {
        let store = Arc::new(FaultyStore::new(
            self.store,
            self.clock.clone(),
            faults,
            seed,
        ));
        Self { store, ..self }
    }

    fn let_loose(self, seed: u64) -> History {
        let clock = self.clock.clone();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .build();
        let runtime = runtime.expect("no runtime to test in");
        runtime.block_on(run(Arc::new(self), clock, Plan::short(seed)))
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

const SEEDS: std::ops::Range<u64> = 0..40;

fn assert_clean(seed: u64, history: &History) {
    let found = check(history);
    let shown: String = found.iter().take(5).map(ToString::to_string).collect();
    assert!(
        found.is_empty(),
        "seed {seed}: {} violations, first:\n{shown}",
        found.len()
    );
}

/// The clients meet every kind of answer, or a clean result would say little.
fn assert_eventful(history: &History) {
    let count = |is: fn(&Reply) -> bool| history.calls.iter().filter(|c| is(&c.reply)).count();
    let met = [
        ("won", count(|r| matches!(r, Reply::Won { .. }))),
        (
            "taken over",
            count(|r| matches!(r, Reply::Won { attempt: 2.., .. })),
        ),
        ("busy", count(|r| *r == Reply::Busy)),
        ("replay", count(|r| matches!(r, Reply::Replay(_)))),
        ("mismatch", count(|r| *r == Reply::Mismatch)),
        ("in doubt", count(|r| matches!(r, Reply::InDoubt { .. }))),
        ("held", count(|r| *r == Reply::Held)),
        ("done", count(|r| *r == Reply::Done)),
        ("lost", count(|r| *r == Reply::Lost)),
        ("not in doubt", count(|r| *r == Reply::NotInDoubt)),
        ("deleted", count(|r| *r == Reply::Deleted(true))),
    ];
    println!("{met:?}");
    for (word, times) in met {
        assert!(times > 0, "nobody met {word}: {met:?}");
    }
}

#[test]
fn the_memory_store_is_clean() {
    let mut all = History::default();
    for seed in SEEDS {
        let history = Rig::memory().let_loose(seed);
        assert_clean(seed, &history);
        all.merge(history);
    }
    assert_eventful(&all);
}

#[test]
fn the_packed_store_is_clean() {
    for seed in SEEDS {
        assert_clean(seed, &Rig::broken(None).let_loose(seed));
    }
}

/// As callers see it: calls refused, requests lost, replies lost.
#[test]
fn the_memory_store_is_clean_under_faults() {
    for seed in SEEDS {
        let faults = Faults {
            repeat: 0.0,
            ..Faults::all(0.08)
        };
        let history = Rig::memory().faulty(faults, seed).let_loose(seed);
        let unknown = |call: &&Call| matches!(call.reply, Reply::Failed { definite: false });
        assert!(
            history.calls.iter().filter(unknown).count() > 20,
            "seed {seed} met no faults"
        );
        assert_clean(seed, &history);
    }
}

/// The bug is found, for some seed, as a breach of this invariant.
fn is_found(bug: Bug, invariant: &str) {
    let mut others = Vec::new();
    for seed in SEEDS {
        for violation in check(&Rig::broken(Some(bug)).let_loose(seed)) {
            if violation.invariant == invariant {
                println!("{}, seed {seed}: {violation}", bug.name());
                return;
            }
            others.push(violation.to_string());
        }
    }
    others.truncate(3);
    panic!(
        "{} was not found as a breach of {invariant}; found:\n{}",
        bug.name(),
        others.concat()
    );
}

macro_rules! found {
    ($($name:ident $bug:ident $invariant:literal;)*) => {
        mod the_checker_finds {
            use super::*;

            $(
                #[test]
                fn $name() {
                    is_found(Bug::$bug, $invariant);
                }
            )*
        }
    };
}

found! {
    check_then_act CheckThenAct "I1";
    owner_by_rows_affected OwnerByRowsAffected "I1";
    resent_claim_is_busy ResentClaimIsBusy "I6";
    mismatch_ignored_when_settled MismatchIgnoredWhenSettled "I7";
    fingerprint_dropped_on_completion FingerprintDroppedOnCompletion "I7";
    takeover_ignores_payload TakeoverIgnoresPayload "I7";
    lease_is_ttl LeaseIsTtl "I5";
    takeover_before_lapse TakeoverBeforeLapse "I5";
    renewal_not_counted RenewalNotCounted "I5";
    takeover_under_hold TakeoverUnderHold "I5";
    doubt_is_free DoubtIsFree "I5";
    doubt_is_released DoubtIsReleased "I5";
    resent_claim_runs_again ResentClaimRunsAgain "I2";
    renew_ignores_owner RenewIgnoresOwner "I3";
    renew_revives RenewRevives "I3";
    settle_ignores_owner SettleIgnoresOwner "I3";
    settle_is_upsert SettleIsUpsert "I3";
    second_settle_overwrites SecondSettleOverwrites "I2";
    resent_settle_is_lost ResentSettleIsLost "I6";
    resent_resolve_refused ResentResolveRefused "I6";
    sweep_takes_running SweepTakesRunning "I12";
    fence_restarts_after_release FenceRestartsAfterRelease "I1";
    fence_forgotten_with_the_record FenceForgottenWithTheRecord "I1";
    takeover_keeps_the_fence TakeoverKeepsTheFence "I1";
    failure_replayed_as_answer FailureReplayedAsAnswer "I2";
}
