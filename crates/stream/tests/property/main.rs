//! Any interleaving of duplicates, reorderings, losses, failures, crashes and restarts of a hundred
//! producers: each operation is applied once, in order if it has a number. Checked against a model
//! that only counts.
//!
//! `SEMEL_STREAM_OPERATIONS=10000000` makes it a long run; a failure names its seed.

mod producer;
mod subject;
mod world;

use subject::{Bug, Subject};
use world::World;

/// Operations of one run. The total is made of many runs, each from a seed of its own.
const RUN: u64 = 50_000;

fn total() -> u64 {
    let asked = std::env::var("SEMEL_STREAM_OPERATIONS").ok();
    asked.map_or(300_000, |asked| asked.parse().expect("a number"))
}

/// Runs `bug` with seeds from 0 on, `operations` in all. → what went wrong first.
fn run(bug: Option<Bug>, operations: u64) -> Result<world::Seen, String> {
    let mut seen = world::Seen::default();
    for seed in 0..operations.div_ceil(RUN) {
        // Every other consumer keeps what it records on disk.
        let folder = format!("semel-stream-{}-{bug:?}-{seed}", std::process::id());
        let folder = (seed % 2 == 1).then(|| std::env::temp_dir().join(folder));
        let mut world = World::new(seed, Subject::new(bug, folder));
        world
            .run(RUN)
            .map_err(|what| format!("seed {seed}: {what}"))?;
        seen.add(&world.seen);
    }
    Ok(seen)
}

#[test]
fn each_operation_is_applied_once_and_in_order() {
    let seen = run(None, total()).unwrap_or_else(|what| panic!("{what}"));
    println!("{seen:?}");
    // All of it happened, and not just from time to time.
    let least = total() / 1_000;
    assert!(seen.applied >= total());
    for count in [seen.duplicates, seen.gaps, seen.stale, seen.failures] {
        assert!(count >= least, "{seen:?}");
    }
    for count in [seen.crashes, seen.restarts, seen.epochs] {
        assert!(count >= least / 10, "{seen:?}");
    }
}

/// One of these is what it does first, by the run's seed.
fn is_caught(bug: Bug, by: &[&str]) {
    let what = run(Some(bug), 10 * RUN).expect_err("the bug goes unnoticed");
    let known = by.iter().any(|symptom| what.contains(symptom));
    assert!(known, "{bug:?} is caught as: {what}");
}

#[test]
fn a_mark_that_moves_before_the_effect_is_caught() {
    is_caught(
        Bug::MarkBeforeEffect,
        &["called a duplicate but was never applied"],
    );
}

#[test]
fn a_window_that_forgets_too_early_is_caught() {
    is_caught(Bug::SmallWindow, &["applied twice"]);
}

#[test]
fn an_ignored_epoch_is_caught() {
    is_caught(
        Bug::EpochIgnored,
        &["called a duplicate but was never applied", "out of order"],
    );
}

#[test]
fn a_gap_that_is_passed_over_is_caught() {
    is_caught(
        Bug::GapsPassedOver,
        &["out of order", "called a duplicate but was never applied"],
    );
}

#[test]
fn a_duplicate_of_what_is_in_flight_that_is_acknowledged_is_caught() {
    is_caught(
        Bug::RecordsAtTheCheck,
        &["called a duplicate but was never applied"],
    );
}

#[test]
fn a_restart_that_forgets_the_marks_is_caught() {
    is_caught(Bug::ForgetsAtRestart, &["applied twice"]);
}
