//! The suite catches every seeded bug by name, and finds nothing where there is none.

use std::sync::Arc;

use semel_conformance::{self, ConformanceReport};
use semel_testkit::broken::{BrokenSubject, Bug};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build();
    runtime.expect("no runtime to test in").block_on(work)
}

async fn report(bug: Option<Bug>) -> ConformanceReport {
    semel_conformance::run(Arc::new(BrokenSubject::new(bug))).await
}

/// How often the suite is run, at most, until it catches a bug: a race doesn't happen every time on
/// a busy machine.
const RUNS: usize = 5;

fn is_caught(bug: Bug) {
    let expected = bug.expected_check();
    let mut last = String::new();
    for _ in 0..RUNS {
        let report = block_on(report(Some(bug)));
        let failures = report.failures();
        println!("{}: {failures:?}", bug.name());
        if failures.contains(&expected) {
            return;
        }
        last = format!("{failures:?}");
    }
    panic!("expected {expected} to fail; failed in the last of {RUNS} runs: {last}");
}

macro_rules! one_test_per_bug {
    ($($(#[doc = $about:literal])+ $name:ident $variant:ident $check:literal;)*) => {
        mod every_seeded_bug_is_caught_by_name {
            use super::*;

            $(
                #[test]
                fn $name() {
                    is_caught(Bug::$variant);
                }
            )*
        }
    };
}

semel_testkit::with_seeded_bugs!(one_test_per_bug!);

#[test]
fn without_a_bug_every_check_passes() {
    block_on(report(None)).assert_all_passed();
}

/// No check that can't fail: each one fails for some seeded bug.
#[test]
fn every_check_catches_some_bug() {
    let mut idle: Vec<&str> = semel_conformance::ALL
        .iter()
        .map(|check| check.name)
        .collect();
    block_on(async {
        // A few at a time: most of what takes long is waiting for wake-ups that never come.
        for bugs in Bug::ALL.chunks(8) {
            let running: Vec<_> = bugs
                .iter()
                .map(|bug| tokio::spawn(report(Some(*bug))))
                .collect();
            for running in running {
                let report = running.await.unwrap();
                let failures = report.failures();
                idle.retain(|name| !failures.contains(name));
            }
        }
    });
    assert!(idle.is_empty(), "no seeded bug is caught by {idle:#?}");
}
