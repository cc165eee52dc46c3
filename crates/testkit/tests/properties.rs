//! The memory store answers as the reference does; and a store with a bug doesn't.

mod edge;

use std::sync::Arc;

use edge::{Edge, OffByOne};
use proptest::prelude::*;
use semel_conformance::clock::FakeClock;
use semel_core::{MemoryConfig, MemoryStore, StoreAdmin};
use semel_testkit::broken::{BrokenStore, Bug};
use semel_testkit::reference::{self, Difference, DifferenceReport, Make, Op, Rule, RuleTally};

fn memory(clock: &FakeClock) -> Arc<dyn StoreAdmin> {
    let config = MemoryConfig::default().with_capacity(64);
    Arc::new(MemoryStore::new(config, Arc::new(clock.clone())))
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

async fn compare(make: Make<'_>, ops: &[Op]) -> Result<(), Difference> {
    reference::fresh(make, ops, &mut RuleTally::default()).await
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8_000, ..ProptestConfig::default() })]

    #[test]
    fn the_memory_store_answers_as_the_reference(
        numbers in prop::collection::vec(any::<u64>(), 1..50),
    ) {
        let ops: Vec<Op> = numbers.into_iter().map(Op::from_number).collect();
        if let Err(difference) = wait(compare(&memory, &ops)) {
            prop_assert!(false, "{:#?}\n{}", ops, difference);
        }
    }
}

#[test]
fn every_rule_gives_an_answer() {
    let mut tally = RuleTally::default();
    for seed in 0..4_000 {
        let ops = reference::generate(seed);
        if wait(reference::fresh(&memory, &ops, &mut tally)).is_err() {
            panic!("{}", wait(reference::explain(&memory, Some(seed), &ops)));
        }
    }
    assert_eq!(tally.missing(), [], "never happened");
    assert!(tally.operations > 4_000 * 10);
}

/// Looks for a difference among the first sequences; answers with its report.
fn hunt(make: Make<'_>, sequences: u64) -> Option<DifferenceReport> {
    wait(async {
        for seed in 0..sequences {
            let ops = reference::generate(seed);
            if compare(make, &ops).await.is_err() {
                return Some(reference::explain(make, Some(seed), &ops).await);
            }
        }
        None
    })
}

/// Finds a difference, and shrinks it to a few steps that show it again.
fn assert_found(name: &str, make: Make<'_>) -> Rule {
    let report = hunt(make, 10_000).unwrap_or_else(|| panic!("{name} was not found"));
    assert!(report.ops.len() <= 7, "{name} was not shrunk: {report}");
    let seed = report.seed.expect("a seed");
    assert!(
        report.to_string().contains(&format!("seed {seed}")),
        "{report}"
    );
    assert!(
        wait(compare(make, &report.ops)).is_err(),
        "{name} was not seen again: {report}"
    );
    report.difference.expect("a difference").rule
}

#[test]
fn the_store_without_a_bug_passes() {
    let make = |clock: &FakeClock| -> Arc<dyn StoreAdmin> {
        Arc::new(BrokenStore::new(None, Arc::new(clock.clone())))
    };
    if let Some(report) = hunt(&make, 2_000) {
        panic!("{report}");
    }
}

/// What one caller after the other, with small answers and room for all, can't see.
const BEYOND_A_SEQUENCE: &[Bug] = &[
    // No sequence has a body elsewhere, or an encrypted record.
    Bug::BodyElsewhereIsOmitted,
    Bug::DigestCut,
    Bug::ClaimWithoutTheKey,
    // Several callers at once, or futures that are dropped.
    Bug::CheckThenAct,
    Bug::SweepTakesFreshClaims,
    Bug::RestoreLooksFirst,
    Bug::DroppedClaimLeavesALock,
    Bug::DroppedReplyIsGivenOn,
    Bug::PagesAreCounted,
    // A second process, or records put there by somebody else.
    Bug::ReplicaLags,
    Bug::AnswerIsDoubtedElsewhere,
    Bug::AnswerIsBusyElsewhere,
    Bug::SealNotChecked,
    Bug::UnreadableIsAbsent,
    Bug::UnreadablePassedOver,
    // A full store, and large answers.
    Bug::FullForgets,
    Bug::FullRefusesSettlements,
    Bug::FullStaysFull,
    Bug::AnswerIsCut,
    Bug::CheckpointIsCut,
    // Wake-ups, and cursors from elsewhere.
    Bug::NeverWakes,
    Bug::ResolveWakesNobody,
    Bug::WakesOnlyWhoLost,
    Bug::WakesOnlyOne,
    Bug::BadCursorStartsAnew,
];

#[test]
fn every_bug_that_a_sequence_can_show_is_found() {
    let mut found = 0;
    for bug in Bug::ALL
        .iter()
        .filter(|bug| !BEYOND_A_SEQUENCE.contains(bug))
    {
        let make = |clock: &FakeClock| -> Arc<dyn StoreAdmin> {
            Arc::new(BrokenStore::new(Some(*bug), Arc::new(clock.clone())))
        };
        assert_found(bug.name(), &make);
        found += 1;
    }
    assert!(found > 50, "{found} bugs");
}

fn off_by_one(edge: Edge) -> impl Fn(&FakeClock) -> Arc<dyn StoreAdmin> {
    move |clock| {
        let (inner, clock) = (memory(clock), clock.clone());
        Arc::new(OffByOne { edge, inner, clock })
    }
}

#[test]
fn a_lease_that_lapses_a_microsecond_late_is_found() {
    let rule = assert_found("a late lapse", &off_by_one(Edge::LapsesLate));
    let lapsed = [
        Rule::Takeover,
        Rule::TakeoverProgress,
        Rule::HeldDoubt,
        Rule::AttemptsDoubt,
    ];
    assert!(lapsed.contains(&rule), "{rule}");
}

#[test]
fn a_record_that_expires_a_microsecond_early_is_found() {
    let rule = assert_found("an early expiry", &off_by_one(Edge::ExpiresEarly));
    assert_eq!(rule, Rule::Read);
}
