//! What a door needs besides `execute`: principals, the end of a process, reports without a key.

use std::sync::Arc;

use semel_core::engine::{Request, Response};
use semel_core::event::{Step, Would};
use semel_core::policy::Policy;
use semel_core::{Fingerprint, Key, Namespace};

use super::*;

#[tokio::test]
async fn keys_of_two_principals_never_meet() {
    let (rig, effects) = (Rig::new(), Effects::default());
    for principal in ["alice", "bob", "", "alice"] {
        let namespace = Namespace::of_principal("test", "acme", "charge", principal).unwrap();
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
    let shown = Namespace::of_principal("test", "acme", "charge", "alice").unwrap();
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

#[tokio::test]
async fn what_a_door_did_without_a_key_is_reported() {
    let rig = Rig::new();
    let namespace = Namespace::new("test", "", "http").unwrap();
    let refused = Step::Refused {
        code: "idempotency_key_required",
    };
    let observed = Step::Observed {
        would: Would::Refuse("idempotency_key_required"),
    };
    for step in [Step::Passed, refused, observed] {
        rig.engine.report(&namespace, step);
        assert_eq!(rig.log.count(|seen| *seen == step), 1);
    }
}
