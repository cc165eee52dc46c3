//! Simulated worlds: the same seed is the same world, a sound store breaks no rule, and a store with a bug does.

use semel_testkit::broken::Bug;
use semel_testkit::simulation::{Tally, run};

/// Some hundred worlds in debug builds; `cargo xtask simulate` runs many more.
const WORLDS: u64 = 60;

#[test]
fn a_seed_is_one_course_of_events() {
    let mut digests = Vec::new();
    for seed in 1..=12 {
        let (once, again) = (run(seed, None), run(seed, None));
        assert_eq!(once.digest, again.digest, "seed {seed}");
        assert_eq!(once.tally.operations, again.tally.operations);
        digests.push(once.digest);
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 12, "other seeds are other worlds");
}

#[test]
fn no_rule_is_broken() {
    let mut tally = Tally::default();
    for seed in 1..=WORLDS {
        let outcome = run(seed, None);
        let told: Vec<_> = outcome.breaches.iter().map(ToString::to_string).collect();
        assert!(told.is_empty(), "{}", told.join("\n"));
        tally.add(&outcome.tally);
    }
    // Worlds in which nothing happens would break no rule either.
    for kind in FAULTS {
        let count = tally.faults.get(kind).copied().unwrap_or(0);
        assert!(count > 0, "{kind}: never, in {WORLDS} worlds");
    }
    for what in ["its own answer", "an earlier answer", "idempotency_in_doubt"] {
        assert!(tally.told.contains_key(what), "{what}: never");
    }
    assert!(tally.effects > WORLDS * 10);
}

const FAULTS: [&str; 13] = [
    "cut while the store was at it",
    "message late",
    "message twice",
    "node crashed",
    "node cut off",
    "node paused",
    "operator acted",
    "refused",
    "reply lost",
    "request lost",
    "store restarted",
    "store's clock set back",
    "store's clock set forward",
];
