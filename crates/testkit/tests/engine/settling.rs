//! A settlement that fails is sent again, whatever the store said (P33).

use std::time::Duration;

use semel_core::StoreErrorKind;
use semel_core::engine::{EngineConfig, Problem, Response};
use semel_core::policy::Policy;

use super::scripted::Scripted;
use super::store_down::patiently;
use super::*;

#[tokio::test]
async fn p33_settlement_is_retried_on_transient_errors() {
    for kind in [
        StoreErrorKind::Unavailable,
        StoreErrorKind::Full,
        StoreErrorKind::Body,
        StoreErrorKind::Rejected,
    ] {
        let (rig, store, _) = Scripted::rig(EngineConfig::default());
        let (effects, policy) = (Effects::default(), Policy::default());
        store.settlement_errors.lock().push_back(kind);
        let response = patiently(&rig, &policy, &effects).await;
        assert!(
            matches!(response, Response::Ran(_)),
            "{kind:?}: {response:?}"
        );
        assert_eq!(store.settlements(), 2, "{kind:?}");
        // After the lease, too, the effect is known to be done.
        rig.clock.advance(Duration::from_secs(31));
        let again = rig.run("k", &policy, effects.answer("again")).await;
        assert_eq!((replayed(&again), effects.count()), ("ran", 1), "{kind:?}");
    }
}

#[tokio::test]
async fn p33_a_settlement_is_sent_for_one_lease_and_no_longer() {
    let (rig, store, _) = Scripted::rig(EngineConfig::default());
    let (effects, policy) = (Effects::default(), Policy::default());
    let for_ever = [StoreErrorKind::Rejected; 1_000];
    store.settlement_errors.lock().extend(for_ever);
    let caller = rig.start("k", &policy, effects.answer("ran"));
    rig.pass(Duration::from_secs(29)).await;
    assert!(!caller.is_finished(), "the lease is not over");
    rig.pass(Duration::from_secs(3)).await;
    let response = caller.await.expect("it ran to its end");
    let unrecorded = matches!(response, Response::Problem(Problem::Unrecorded { .. }));
    assert!(unrecorded, "{response:?}");
}

#[tokio::test]
async fn p25_settlement_of_an_unreadable_record_is_not_retried() {
    let (rig, store, _) = Scripted::rig(EngineConfig::default());
    let (effects, policy) = (Effects::default(), Policy::default());
    let damaged = StoreErrorKind::Record;
    store.settlement_errors.lock().push_back(damaged);
    let response = rig.run("k", &policy, effects.answer("ran")).await;
    let unrecorded = matches!(response, Response::Problem(Problem::Unrecorded { .. }));
    assert!(unrecorded, "{response:?}");
    assert_eq!((store.settlements(), effects.count()), (1, 1));
}
