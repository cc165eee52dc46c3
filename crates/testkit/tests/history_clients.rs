//! Random clients: against sound stores the checker finds nothing, faults or not; against broken
//! ones it finds the bugs that a history can show, without knowing what to look for.

use std::sync::Arc;

use semel_conformance::clock::FakeClock;
use semel_core::{MemoryConfig, MemoryStore};
use semel_testkit::broken::BrokenStore;
use semel_testkit::faulty::Faults;
use semel_testkit::history::clients::{Plan, run};
use semel_testkit::history::rig::Rig;
use semel_testkit::history::seeded::SEEDED;
use semel_testkit::history::{CallRecord, CallReply, History, Violation, check};

fn memory() -> Rig {
    let clock = Arc::new(FakeClock::new());
    let store = MemoryStore::new(MemoryConfig::default(), clock.clone());
    Rig::new(clock, Arc::new(store))
}

fn packed() -> Rig {
    let clock = Arc::new(FakeClock::new());
    let store = BrokenStore::new(None, clock.clone());
    Rig::new(clock, Arc::new(store))
}

fn let_loose(rig: Rig, seed: u64) -> History {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .build();
    let runtime = runtime.expect("no runtime to test in");
    let clock = rig.clock();
    runtime.block_on(run(Arc::new(rig), clock, Plan::short(seed)))
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
    let count = |is: fn(&CallReply) -> bool| history.calls.iter().filter(|c| is(&c.reply)).count();
    let met = [
        ("won", count(|r| matches!(r, CallReply::Won { .. }))),
        (
            "taken over",
            count(|r| matches!(r, CallReply::Won { attempt: 2.., .. })),
        ),
        ("busy", count(|r| *r == CallReply::Busy)),
        ("replay", count(|r| matches!(r, CallReply::Replay(_)))),
        ("mismatch", count(|r| *r == CallReply::Mismatch)),
        (
            "in doubt",
            count(|r| matches!(r, CallReply::InDoubt { .. })),
        ),
        ("held", count(|r| *r == CallReply::Held)),
        ("done", count(|r| *r == CallReply::Done)),
        ("lost", count(|r| *r == CallReply::Lost)),
        ("not in doubt", count(|r| *r == CallReply::NotInDoubt)),
        ("deleted", count(|r| *r == CallReply::Deleted(true))),
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
        let history = let_loose(memory(), seed);
        assert_clean(seed, &history);
        all.merge(history);
    }
    assert_eventful(&all);
}

#[test]
fn the_packed_store_is_clean() {
    for seed in SEEDS {
        assert_clean(seed, &let_loose(packed(), seed));
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
        let history = let_loose(memory().faulty(faults, seed), seed);
        let unknown =
            |call: &&CallRecord| matches!(call.reply, CallReply::Failed { definite: false });
        assert!(
            history.calls.iter().filter(unknown).count() > 20,
            "seed {seed} met no faults"
        );
        assert_clean(seed, &history);
    }
}

/// Each is found for some seed, as a breach of the invariant that it breaks; and where one rule
/// alone has to find it, by no other.
fn are_found(part: usize) {
    // One thread: a seed is one course of events, however busy the machine is.
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("no runtime to test in");
    for seeded in SEEDED.iter().skip(part).step_by(PARTS) {
        let mut runs = 0..100;
        let found = runs.find_map(|seed| {
            let found = runtime.block_on(seeded.violations(seed));
            let is_other = |violation: &&Violation| {
                let only = seeded
                    .only
                    .is_some_and(|rule| !violation.sentence.starts_with(rule));
                only && violation.invariant != "I16"
            };
            if let Some(other) = found.iter().find(is_other) {
                panic!(
                    "{}, seed {seed}, is found by another rule: {other}",
                    seeded.name()
                );
            }
            found
                .into_iter()
                .find(|violation| violation.invariant == seeded.invariant)
        });
        let found = found.unwrap_or_else(|| panic!("{} is not found", seeded.name()));
        println!("{}: {found}", seeded.name());
    }
}

/// They run side by side.
const PARTS: usize = 4;

#[test]
fn seeded_bugs_are_found_1() {
    are_found(0);
}

#[test]
fn seeded_bugs_are_found_2() {
    are_found(1);
}

#[test]
fn seeded_bugs_are_found_3() {
    are_found(2);
}

#[test]
fn seeded_bugs_are_found_4() {
    are_found(3);
}

#[test]
fn there_are_enough_seeded_bugs() {
    let alone = SEEDED.iter().filter(|seeded| seeded.only.is_some()).count();
    assert!(
        SEEDED.len() >= 40 && alone >= 10,
        "{} and {alone}",
        SEEDED.len()
    );
}
