//! When a store that doesn't answer is left alone, and when it is asked again (P35).

use std::time::Duration;

use semel_core::StoreErrorKind;
use semel_core::engine::{EngineConfig, Problem, Response};
use semel_core::event::{BreakerState, Step};
use semel_core::policy::Policy;
use semel_testkit::faulty::{CallKind, Fault, FaultyStore};

use super::store_down::{faulty, patiently};
use super::*;

#[tokio::test]
async fn p35_the_breaker_opens_tries_once_and_closes() {
    let (base, store) = faulty();
    let config = EngineConfig::default();
    let rig = Rig::on(base.clock.clone(), Arc::clone(&base.store), config);
    let effects = Effects::default();
    for _ in 0..6 {
        store.next(CallKind::Claim, Fault::Refuse);
    }
    let changes =
        |to| move |step: &Step| matches!(step, Step::Breaker { state, .. } if *state == to);
    for _ in 0..2 {
        patiently(&rig, &Policy::default(), &effects).await;
    }
    assert_eq!(rig.log.count(changes(BreakerState::Open)), 1);
    let asked = store.befallen();
    let refused = rig.run("k", &Policy::default(), effects.answer("x")).await;
    assert!(matches!(
        refused,
        Response::Problem(Problem::Unavailable { source: None, .. })
    ));
    assert_eq!(store.befallen(), asked, "the store was left alone");
    rig.pass(Duration::from_millis(1_100)).await;
    let response = patiently(&rig, &Policy::default(), &effects).await;
    // The probe met the last fault, so the breaker opened again.
    assert!(
        matches!(response, Response::Problem(Problem::Unavailable { .. })),
        "{response:?}"
    );
    rig.pass(Duration::from_millis(2_100)).await;
    assert_eq!(
        ran(&patiently(&rig, &Policy::default(), &effects).await),
        "ran"
    );
    assert_eq!(rig.log.count(changes(BreakerState::HalfOpen)), 2);
    assert_eq!(rig.log.count(changes(BreakerState::Closed)), 1);
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn a_full_store_is_not_an_outage() {
    let clock = FakeClock::new();
    let store = MemoryStore::new(
        MemoryConfig::default().with_capacity(0),
        Arc::new(clock.clone()),
    );
    let rig = Rig::on(clock, Arc::new(store), EngineConfig::default());
    let effects = Effects::default();
    for _ in 0..20 {
        let response = rig.run("k", &Policy::default(), effects.answer("x")).await;
        let Response::Problem(Problem::Unavailable {
            source: Some(error),
            ..
        }) = response
        else {
            panic!("{response:?}")
        };
        assert_eq!(error.kind, StoreErrorKind::Full);
    }
    assert_eq!(
        rig.log.count(|step| matches!(step, Step::Breaker { .. })),
        0
    );
    assert_eq!(effects.count(), 0);
}

#[tokio::test]
async fn a_store_that_says_no_is_there_so_the_breaker_closes() {
    let clock = FakeClock::new();
    let full = MemoryStore::new(
        MemoryConfig::default().with_capacity(0),
        Arc::new(clock.clone()),
    );
    let store = FaultyStore::sound(Arc::new(full), Arc::new(clock.clone()));
    let rig = Rig::on(clock, Arc::new(store.clone()), EngineConfig::default());
    let effects = Effects::default();
    for _ in 0..5 {
        store.next(CallKind::Claim, Fault::Refuse);
    }
    for _ in 0..2 {
        patiently(&rig, &Policy::default(), &effects).await;
    }
    // The breaker is open: one is sent to see whether the store is back, and the store has no room.
    rig.pass(Duration::from_millis(1_100)).await;
    for asked in ["the probe", "whoever comes next"] {
        let response = rig.run("k", &Policy::default(), effects.answer("x")).await;
        let Response::Problem(Problem::Unavailable {
            source: Some(error),
            ..
        }) = response
        else {
            panic!("{asked} was not asked for: {response:?}")
        };
        assert_eq!(error.kind, StoreErrorKind::Full);
    }
    let closed = |step: &Step| {
        matches!(
            step,
            Step::Breaker {
                state: BreakerState::Closed,
                ..
            }
        )
    };
    assert_eq!((rig.log.count(closed), effects.count()), (1, 0));
}
