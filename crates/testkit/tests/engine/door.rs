//! What a door needs besides `execute`: principals, the end of a process, reports without a key.

use std::sync::Arc;

use semel_core::Code;
use semel_core::engine::{Problem, Request, Response};
use semel_core::event::{ShadowDecision, Step};
use semel_core::policy::Policy;
use semel_core::{Fingerprint, Key, Namespace, Resolution};

use super::slow::slow;
use super::*;

#[tokio::test]
async fn keys_of_two_principals_never_meet() {
    let (rig, effects) = (Rig::new(), Effects::default());
    for principal in ["alice", "bob", "", "alice"] {
        let namespace = Namespace::with_principal("test", "acme", "charge", principal).unwrap();
        let fingerprint = Fingerprint::builder(rig.engine.secret()).finish();
        let (key, policy) = (Key::parse("k").unwrap(), Arc::new(Policy::default()));
        let request = Request::new(&rig.engine, namespace, &key, fingerprint, policy);
        rig.engine.execute(request, effects.answer("ran")).await;
    }
    assert_eq!(
        effects.count(),
        3,
        "alice's second call is the only duplicate"
    );
    let shown = Namespace::with_principal("test", "acme", "charge", "alice").unwrap();
    assert!(!format!("{shown:?}").contains("alice"));
}

#[tokio::test]
async fn idle_comes_after_the_last_effect_whose_caller_has_left() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    rig.engine.idle().await;
    let caller = rig.start("k", &Policy::default(), effects.answer_after("ran", &gate));
    settle_down().await;
    caller.abort();
    let engine = rig.engine.clone();
    let ended = tokio::spawn(async move { engine.idle().await });
    settle_down().await;
    assert_eq!(rig.engine.running(), 1);
    assert!(!ended.is_finished());
    gate.open();
    ended.await.unwrap();
    assert_eq!(rig.engine.running(), 0);
    let replay = rig
        .run("k", &Policy::default(), effects.answer("again"))
        .await;
    assert!(matches!(replay, Response::Replayed(_)));
}

/// What waits for the end, as a process does that was told to.
fn ends(rig: &Rig) -> tokio::task::JoinHandle<()> {
    let engine = rig.engine.clone();
    tokio::spawn(async move { engine.idle().await })
}

#[tokio::test]
async fn p37_idle_waits_for_a_claim_whose_caller_has_left() {
    let (rig, store, other) = slow();
    let (effects, gate) = (Effects::default(), Gate::default());
    let policy = Policy::default();
    let caller = rig.start("k", &policy, effects.answer_after("ran", &gate));
    settle_down().await;
    caller.abort();
    let ended = ends(&rig);
    settle_down().await;
    assert_eq!((effects.count(), rig.engine.running()), (0, 0));
    assert!(!ended.is_finished(), "the claim may win yet");
    store.permits.add_permits(1);
    settle_down().await;
    assert_eq!((effects.count(), rig.engine.running()), (1, 1));
    assert!(!ended.is_finished(), "it has won, and runs");
    gate.open();
    settle_down().await;
    assert!(ended.is_finished());
    let replay = other.run("k", &policy, effects.answer("again")).await;
    assert_eq!((replayed(&replay), effects.count()), ("ran", 1));
}

#[tokio::test]
async fn p37_idle_waits_for_a_waiter_that_has_left_and_wins() {
    let (rig, effects) = (Rig::new(), Effects::default());
    let (first, second) = (Gate::default(), Gate::default());
    let (policy, opened) = (Policy::default(), first.clone());
    // Another process's run, so that nothing but the waiter is under way here.
    let owner = rig.another().start("k", &policy, |_| async move {
        opened.opened().await;
        said(Verdict::Retry)
    });
    settle_down().await;
    let waiter = rig.start("k", &policy, effects.answer_after("two", &second));
    settle_down().await;
    assert_eq!(rig.engine.waiting(), 1);
    waiter.abort();
    let ended = ends(&rig);
    settle_down().await;
    assert!(!ended.is_finished(), "the waiter may win yet");
    first.open();
    settle_down().await;
    assert_eq!(ran(&owner.await.unwrap()), "said");
    assert_eq!((effects.count(), ended.is_finished()), (1, false));
    second.open();
    settle_down().await;
    assert!(ended.is_finished());
    let replay = rig.run("k", &policy, effects.answer("three")).await;
    assert_eq!((replayed(&replay), effects.count()), ("two", 1));
}

async fn panics_after(gate: Gate) -> Option<Resolution> {
    gate.opened().await;
    panic!("a recover hook that panics");
}

#[tokio::test]
async fn idle_does_not_wait_for_what_a_panic_has_ended() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    rig.run("k", &hold(), |_| async { said(Verdict::Unknown) })
        .await;
    let opened = gate.clone();
    let request = rig
        .request("k", "payload", &hold())
        .recover_with(Arc::new(move |_| Box::pin(panics_after(opened.clone()))));
    let (engine, effect) = (rig.engine.clone(), effects.answer("not run"));
    let asks = tokio::spawn(async move { engine.execute(request, effect).await });
    settle_down().await;
    let ended = ends(&rig);
    settle_down().await;
    assert!(!ended.is_finished(), "the hook is asked");
    gate.open();
    settle_down().await;
    assert!(ended.is_finished());
    let response = asks.await.unwrap();
    assert!(
        matches!(response, Response::Problem(Problem::ShutDown)),
        "{response:?}"
    );
    assert_eq!(effects.count(), 0);
}

#[tokio::test]
async fn what_a_door_did_without_a_key_is_reported() {
    let rig = Rig::new();
    let namespace = Namespace::new("test", "", "http").unwrap();
    let refused = Step::Refused {
        code: Code::KeyRequired,
    };
    let observed = Step::Observed {
        decision: ShadowDecision::Refuse(Code::KeyRequired),
    };
    for step in [Step::Passed, refused, observed] {
        rig.engine.report(&namespace, None, step);
        assert_eq!(rig.log.count(|seen| *seen == step), 1);
    }
}
