//! Callers that wait for another's claim of their key are waiters: bounded in number and in time
//! (P34, I14).

use std::sync::atomic::Ordering;
use std::time::Duration;

use semel_core::engine::{EngineConfig, Problem, Response};
use semel_core::event::BusyReason;
use semel_core::policy::{OnBusy, Policy};
use tokio::task::JoinHandle;

use super::scripted::Scripted;
use super::*;

type Calls = Vec<JoinHandle<Response<String>>>;

const CALLERS: usize = 5_000;

/// One caller whose claim hangs, and many that come after it.
async fn behind_a_hanging_claim(rig: &Rig, store: &Scripted, policy: &Policy) -> (Calls, Effects) {
    let effects = Effects::default();
    store.claims_hang.store(true, Ordering::SeqCst);
    let _first = rig.start("k", policy, effects.answer("ran"));
    settle_down().await;
    let calls = (0..CALLERS)
        .map(|_| rig.start("k", policy, effects.answer("ran")))
        .collect();
    // So many take more than one round to get to the queue.
    for _ in 0..20 {
        settle_down().await;
    }
    (calls, effects)
}

/// Who has no answer yet.
fn held(calls: &Calls) -> usize {
    calls.iter().filter(|call| !call.is_finished()).count()
}

/// Why each that was answered was refused.
async fn reasons(calls: Calls) -> Vec<BusyReason> {
    let mut reasons = Vec::new();
    for call in calls {
        match call.await.expect("an answer") {
            Response::Problem(Problem::Busy { why, retry_after }) => {
                assert!(!retry_after.is_zero());
                reasons.push(why);
            }
            other => panic!("expected busy, got {other:?}"),
        }
    }
    reasons
}

#[tokio::test]
async fn i14_callers_behind_a_claim_that_hangs_are_bounded_per_process() {
    let waits = OnBusy::Wait(Duration::from_secs(30));
    for (on_busy, reason) in [
        (OnBusy::Refuse, BusyReason::Policy),
        (waits, BusyReason::ProcessWaiters),
    ] {
        let config = EngineConfig::default().with_max_waiters(10);
        let (rig, store, _) = Scripted::rig(config);
        let policy = Policy::default()
            .with_on_busy(on_busy)
            .with_max_waiters_per_key(2 * CALLERS);
        let (mut calls, effects) = behind_a_hanging_claim(&rig, &store, &policy).await;
        assert_eq!(held(&calls), 10, "{on_busy:?}");
        assert_eq!((rig.engine.waiting(), store.claims()), (10, 1));
        calls.retain(JoinHandle::is_finished);
        let refused = reasons(calls).await;
        assert!(refused.iter().all(|why| *why == reason));
        assert_eq!(effects.count(), 0);
    }
}

#[tokio::test]
async fn i14_callers_behind_a_claim_that_hangs_are_bounded_per_key() {
    let (rig, store, _) = Scripted::rig(EngineConfig::default());
    let policy = Policy::default();
    let (mut calls, _) = behind_a_hanging_claim(&rig, &store, &policy).await;
    assert_eq!((held(&calls), rig.engine.waiting()), (10, 10));
    // Another key has places of its own.
    let other = rig.start("other", &policy, |_| async { completed("ran") });
    let behind_it = rig.start("other", &policy, |_| async { completed("ran") });
    settle_down().await;
    assert!(!other.is_finished() && !behind_it.is_finished());
    assert_eq!(rig.engine.waiting(), 11);
    calls.retain(JoinHandle::is_finished);
    let refused = reasons(calls).await;
    assert!(refused.iter().all(|why| *why == BusyReason::KeyWaiters));
}

#[tokio::test]
async fn p34_a_caller_behind_a_claim_that_hangs_leaves_at_its_wait_limit() {
    let (rig, store, _) = Scripted::rig(EngineConfig::default());
    let policy = Policy::default().with_on_busy(OnBusy::Wait(Duration::from_secs(1)));
    let (mut calls, _) = behind_a_hanging_claim(&rig, &store, &policy).await;
    calls.retain(|call| !call.is_finished());
    assert_eq!(calls.len(), 10);
    rig.pass(Duration::from_millis(500)).await;
    assert_eq!(held(&calls), 10);
    rig.pass(Duration::from_millis(500)).await;
    assert_eq!((held(&calls), rig.engine.waiting()), (0, 0));
    let reasons = reasons(calls).await;
    assert!(reasons.iter().all(|why| *why == BusyReason::WaitedTooLong));
}

#[tokio::test]
async fn p34_caller_without_wait_is_bounded_by_one_store_call() {
    let (rig, store, _) = Scripted::rig(EngineConfig::default());
    let policy = Policy::default().with_on_busy(OnBusy::Refuse);
    let (mut calls, _) = behind_a_hanging_claim(&rig, &store, &policy).await;
    calls.retain(|call| !call.is_finished());
    assert_eq!(calls.len(), 10);
    rig.pass(EngineConfig::default().call_limit).await;
    assert_eq!((held(&calls), rig.engine.waiting()), (0, 0));
    let reasons = reasons(calls).await;
    assert!(reasons.iter().all(|why| *why == BusyReason::Policy));
}

#[tokio::test]
async fn p34_time_behind_a_claim_counts_towards_the_wait_limit() {
    let (rig, store, other) = Scripted::rig(EngineConfig::default());
    let (effects, gate) = (Effects::default(), Gate::default());
    let policy = Policy::default().with_on_busy(OnBusy::Wait(Duration::from_secs(8)));
    let _owner = other.start("k", &policy, effects.answer_after("one", &gate));
    settle_down().await;
    store.claims_hang.store(true, Ordering::SeqCst);
    let _first = rig.start("k", &policy, effects.answer("two"));
    settle_down().await;
    let behind = rig.start("k", &policy, effects.answer("two"));
    settle_down().await;
    rig.pass(Duration::from_secs(4)).await;
    // The claim that hangs is given up, and the one that is sent again finds the other process's
    // run.
    store.claims_hang.store(false, Ordering::SeqCst);
    rig.pass(Duration::from_millis(3_500)).await;
    assert!(!behind.is_finished());
    rig.pass(Duration::from_secs(1)).await;
    assert!(behind.is_finished(), "eight seconds in all");
    let reasons = reasons(vec![behind]).await;
    assert_eq!(reasons, [BusyReason::WaitedTooLong]);
}
