//! A claim that got no answer and was given up on may have won: its lease is let go, as nothing was
//! started under it.

use std::time::Duration;

use semel_core::engine::{EngineConfig, Problem, Response};
use semel_core::policy::{Policy, StoreDown};
use semel_core::{CrashPolicy, State, Token};
use semel_testkit::faulty::{CallKind, Fault, FaultyStore};

use super::store_down::faulty;
use super::*;

/// Long enough for one look after the last call was given up.
const A_WHILE: Duration = Duration::from_secs(10);

/// Asks while every reply to a claim is lost, as often as it is sent.
async fn asks_in_vain(rig: &Rig, store: &FaultyStore, request: Request) -> Response<String> {
    for _ in 0..3 {
        store.next(CallKind::Claim, Fault::LoseReply);
    }
    let effect = |_| async { completed("ran") };
    let engine = rig.engine.clone();
    let caller = tokio::spawn(async move { engine.execute(request, effect).await });
    while !caller.is_finished() {
        rig.pass(Duration::from_millis(100)).await;
    }
    caller.await.expect("an answer")
}

async fn state(rig: &Rig) -> State {
    let identity = *rig.request("k", "payload", &hold()).identity();
    let record = rig.store.read(&identity).await.expect("an answer");
    record.expect("a record").state
}

fn policies() -> [Policy; 2] {
    [Policy::default(), hold()]
}

#[tokio::test]
async fn p36_a_claim_that_was_given_up_on_leaves_the_key_free() {
    for policy in policies() {
        let (rig, store) = faulty();
        let response = asks_in_vain(&rig, &store, rig.request("k", "payload", &policy)).await;
        let unavailable = matches!(response, Response::Problem(Problem::Unavailable { .. }));
        assert!(unavailable, "{response:?}");
        assert_eq!(state(&rig).await, State::Running, "the claim has landed");
        rig.pass(A_WHILE).await;
        assert_eq!(state(&rig).await, State::Released, "{:?}", policy.crash);
        let effects = Effects::default();
        let next = rig
            .another()
            .run("k", &policy, effects.answer("next"))
            .await;
        assert_eq!((ran(&next), effects.count()), ("next", 1));
    }
}

#[tokio::test]
async fn unavailable_store_is_retried_for_one_lease() {
    let (rig, store) = faulty();
    asks_in_vain(&rig, &store, rig.request("k", "payload", &hold())).await;
    for _ in 0..3 {
        store.next(CallKind::Read, Fault::Refuse);
    }
    rig.pass(A_WHILE).await;
    assert_eq!(state(&rig).await, State::Released);
}

#[tokio::test]
async fn a_lease_that_another_has_by_now_is_left_to_it() {
    let (rig, store) = faulty();
    let policy = Policy::default();
    asks_in_vain(&rig, &store, rig.request("k", "payload", &policy)).await;
    rig.clock.advance(Duration::from_secs(31));
    let (effects, gate) = (Effects::default(), Gate::default());
    let other = rig.another();
    let owner = other.start("k", &policy, effects.answer_after("another's", &gate));
    rig.pass(A_WHILE).await;
    assert_eq!(state(&rig).await, State::Running);
    gate.open();
    assert_eq!(ran(&owner.await.unwrap()), "another's");
}

#[tokio::test]
async fn i13_what_ran_unprotected_is_not_told_as_not_begun() {
    let (rig, store) = faulty();
    let policy = hold().with_store_down(StoreDown::Open);
    let response = asks_in_vain(&rig, &store, rig.request("k", "payload", &policy)).await;
    assert!(matches!(response, Response::Unprotected(_)), "{response:?}");
    rig.pass(A_WHILE).await;
    assert_eq!(state(&rig).await, State::Running);
}

#[tokio::test]
async fn p37_a_caller_with_its_own_token_keeps_what_it_may_have_won() {
    let (rig, store) = faulty();
    let policy = Policy::default().with_crash(CrashPolicy::Hold);
    let request = rig.request("k", "payload", &policy).with_token(Token(77));
    asks_in_vain(&rig, &store, request).await;
    rig.pass(A_WHILE).await;
    assert_eq!(state(&rig).await, State::Running);
    assert!(A_WHILE > EngineConfig::default().call_limit);
}
