//! One claim at a time for a key of a process, and its answer for all who asked meanwhile.

use std::time::Duration;

use semel_core::StoreErrorKind;
use semel_core::engine::{Problem, Response};
use semel_core::event::{BusyReason, Step};
use semel_core::policy::{OnBusy, Policy};

use super::slow::{Slow, slow};
use super::*;

/// Who asks while a claim is on its way waits for its answer: there is room for all of them here.
fn refuse() -> Policy {
    Policy::default()
        .with_on_busy(OnBusy::Refuse)
        .with_max_waiters_per_key(1_000)
}

type Calls = Vec<tokio::task::JoinHandle<Response<String>>>;

/// `count` callers at once.
fn callers(rig: &Rig, count: usize, policy: &Policy, effects: &Effects) -> Calls {
    let caller = |_| rig.start("k", policy, effects.answer("another"));
    (0..count).map(caller).collect()
}

/// A caller with the same key and another payload.
fn with_payload(
    rig: &Rig,
    payload: &str,
    effects: &Effects,
) -> tokio::task::JoinHandle<Response<String>> {
    let request = rig.request("k", payload, &refuse());
    let (engine, effect) = (rig.engine.clone(), effects.answer("another"));
    tokio::spawn(async move { engine.execute(request, effect).await })
}

async fn are_busy(callers: Calls) {
    for caller in callers {
        let response = caller.await.expect("an answer");
        let Response::Problem(Problem::Busy { why, retry_after }) = response else {
            panic!("expected busy, got {response:?}");
        };
        assert_eq!(why, BusyReason::Policy);
        assert!(!retry_after.is_zero() && retry_after <= Duration::from_secs(30));
    }
}

fn is_mismatch(response: &Response<String>) -> bool {
    matches!(response, Response::Problem(Problem::Mismatch))
}

#[tokio::test]
async fn a_thousand_duplicates_are_one_claim() {
    let (rig, store, _other) = slow();
    let (effects, gate) = (Effects::default(), Gate::default());
    let owner = rig.start("k", &refuse(), effects.answer_after("one", &gate));
    settle_down().await;
    let early = callers(&rig, 500, &refuse(), &effects);
    let stranger = with_payload(&rig, "other", &effects);
    settle_down().await;
    // All of them wait for one question.
    assert_eq!(store.claims(), 1);
    store.permits.add_permits(1);
    settle_down().await;
    let late = callers(&rig, 500, &refuse(), &effects);
    let late_stranger = with_payload(&rig, "other", &effects);
    are_busy(early).await;
    are_busy(late).await;
    assert!(is_mismatch(&stranger.await.unwrap()));
    assert!(is_mismatch(&late_stranger.await.unwrap()));
    gate.open();
    assert_eq!(ran(&owner.await.unwrap()), "one");
    assert_eq!((effects.count(), store.claims()), (1, 1));
    assert_eq!(rig.engine.busy_keys(), 0);
    // From then on the store is asked again.
    store.permits.add_permits(1);
    let again = rig.run("k", &refuse(), effects.answer("two")).await;
    assert_eq!((replayed(&again), store.claims()), ("one", 2));
}

#[tokio::test]
async fn shared_answer_is_only_for_earlier_callers() {
    let (rig, store, other) = slow();
    let (effects, gate) = (Effects::default(), Gate::default());
    let owner = other.start("k", &refuse(), effects.answer_after("one", &gate));
    settle_down().await;
    let first = callers(&rig, 1, &refuse(), &effects);
    settle_down().await;
    // The first was decided before the other process was done; these ask after that.
    gate.open();
    assert_eq!(ran(&owner.await.unwrap()), "one");
    let later = callers(&rig, 100, &refuse(), &effects);
    let stranger = with_payload(&rig, "other", &effects);
    settle_down().await;
    store.permits.add_permits(1);
    are_busy(first).await;
    settle_down().await;
    store.permits.add_permits(1);
    for caller in later {
        assert_eq!(replayed(&caller.await.unwrap()), "one");
    }
    assert!(is_mismatch(&stranger.await.unwrap()));
    assert_eq!((effects.count(), store.claims()), (1, 2));
    // Each of them is counted.
    let numbers = rig
        .log
        .0
        .lock()
        .iter()
        .filter_map(|step| match step {
            Step::Replayed { number, .. } => *number,
            _ => None,
        })
        .max();
    assert_eq!(numbers, Some(100));
}

#[tokio::test]
async fn duplicates_of_another_processs_run_are_two_claims() {
    let (rig, store, other) = slow();
    let (effects, gate) = (Effects::default(), Gate::default());
    let _owner = other.start("k", &refuse(), effects.answer_after("one", &gate));
    settle_down().await;
    let all = callers(&rig, 1_000, &refuse(), &effects);
    settle_down().await;
    store.permits.add_permits(2);
    are_busy(all).await;
    assert_eq!((effects.count(), store.claims()), (1, 2));
}

#[tokio::test]
async fn other_payload_gets_its_own_claim() {
    let (rig, store, other) = slow();
    let effects = Effects::default();
    other.run("k", &refuse(), effects.answer("one")).await;
    // Neither of two wrong payloads says anything about the right one.
    let wrong = with_payload(&rig, "wrong", &effects);
    settle_down().await;
    let wrong_too = with_payload(&rig, "wrong too", &effects);
    let right = callers(&rig, 1, &refuse(), &effects);
    settle_down().await;
    store.permits.add_permits(3);
    assert!(is_mismatch(&wrong.await.unwrap()));
    assert!(is_mismatch(&wrong_too.await.unwrap()));
    for caller in right {
        assert_eq!(replayed(&caller.await.unwrap()), "one");
    }
    assert_eq!((effects.count(), store.claims()), (1, 3));
}

#[tokio::test]
async fn a_failure_is_told_to_all_who_wait_for_it() {
    let (rig, store, _other) = slow();
    let effects = Effects::default();
    let all = callers(&rig, 100, &refuse(), &effects);
    settle_down().await;
    store.permits.close();
    for caller in all {
        let response = caller.await.unwrap();
        let Response::Problem(Problem::Unavailable { source, .. }) = response else {
            panic!("expected no answer, got {response:?}");
        };
        assert_eq!(
            source.map(|error| error.kind),
            Some(StoreErrorKind::Rejected)
        );
    }
    assert_eq!((effects.count(), store.claims()), (0, 1));
}

#[tokio::test]
async fn an_asker_that_vanishes_leaves_its_turn_to_the_next() {
    let (rig, store, _other) = slow();
    let effects = Effects::default();
    // A runtime of its own, torn down in mid-claim: its tasks are gone, the engine is not.
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(1).build().unwrap();
    let (engine, request) = (rig.engine.clone(), rig.request("k", "payload", &refuse()));
    let effect = effects.answer("never");
    runtime.spawn(async move { engine.execute(request, effect).await });
    asked(&store, 1).await;
    let all = callers(&rig, 10, &Policy::default(), &effects);
    settle_down().await;
    assert_eq!(store.claims(), 1);
    runtime.shutdown_background();
    // One of those who waited asks for all: the lease of the vanished one is still good.
    asked(&store, 2).await;
    store.permits.add_permits(100);
    rig.pass(Duration::from_secs(31)).await;
    for caller in all {
        let response = caller.await.unwrap();
        let fresh = matches!(response, Response::Ran(_));
        assert!(fresh || replayed(&response) == "another");
    }
    assert_eq!((effects.count(), rig.engine.waiting()), (1, 0));
    assert_eq!(rig.engine.busy_keys(), 0);
}

/// Waits until the store was asked so often; another thread has to get there.
async fn asked(store: &Slow, claims: usize) {
    while store.claims() < claims {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_lease_past_its_deadline_answers_nobody() {
    let (rig, store, _other) = slow();
    let effects = Effects::default();
    store.permits.add_permits(1);
    // An effect that blocks its process: no renewal gets through, and its own deadline passes.
    let policy = refuse();
    let gate = Gate::default();
    let _stuck = rig.start("k", &policy, effects.answer_after("one", &gate));
    settle_down().await;
    rig.clock.advance(Duration::from_secs(31));
    store.permits.add_permits(1);
    let second = rig.run("k", &policy, effects.answer("two")).await;
    assert_eq!((ran(&second), store.claims()), ("two", 2));
}

#[tokio::test]
async fn who_waits_is_woken_by_a_settlement_of_this_process() {
    let (rig, store, _other) = slow();
    let (effects, gate) = (Effects::default(), Gate::default());
    let owner = rig.start("k", &Policy::default(), effects.answer_after("one", &gate));
    settle_down().await;
    store.permits.add_permits(1);
    settle_down().await;
    let waiters = callers(&rig, 1_000, &Policy::default(), &effects);
    settle_down().await;
    assert_eq!((rig.engine.waiting(), store.claims()), (10, 1));
    gate.open();
    assert_eq!(ran(&owner.await.unwrap()), "one");
    settle_down().await;
    store.permits.add_permits(2);
    let mut woken = 0;
    for waiter in waiters {
        match waiter.await.unwrap() {
            Response::Problem(Problem::Busy { why, .. }) => assert_eq!(why, BusyReason::KeyWaiters),
            response => {
                assert_eq!(replayed(&response), "one");
                woken += 1;
            }
        }
    }
    assert_eq!((woken, rig.engine.waiting(), effects.count()), (10, 0, 1));
    // One for the run, one or two for all who were woken.
    assert!(store.claims() <= 3);
}

#[tokio::test]
async fn p7_record_error_is_not_shared_with_other_payloads() {
    for kind in [StoreErrorKind::Body, StoreErrorKind::Record] {
        let (rig, store, other) = slow();
        let effects = Effects::default();
        other.run("k", &refuse(), effects.answer("one")).await;
        let right = callers(&rig, 1, &refuse(), &effects);
        settle_down().await;
        let stranger = with_payload(&rig, "other", &effects);
        settle_down().await;
        store.fail_next(kind);
        store.permits.add_permits(2);
        for caller in right {
            let response = caller.await.unwrap();
            assert!(!is_mismatch(&response), "{kind:?}: {response:?}");
        }
        let response = stranger.await.unwrap();
        assert!(is_mismatch(&response), "{kind:?}: {response:?}");
        assert_eq!((effects.count(), store.claims()), (1, 2));
    }
}
