//! `observe` and `off` (P39).

use semel_core::engine::Response;
use semel_core::event::{Step, Would};
use semel_core::policy::{Mode, Policy};

use super::*;

fn unprotected(response: &Response<String>) -> &str {
    match response {
        Response::Unprotected(value) => value,
        other => panic!("expected an unprotected run, got {other:?}"),
    }
}

#[tokio::test]
async fn off_asks_no_store_and_runs_every_time() {
    let (rig, effects) = (Rig::new(), Effects::default());
    let policy = Policy {
        mode: Mode::Off,
        ..Policy::default()
    };
    for _ in 0..2 {
        let response = rig.run("k", &policy, effects.answer("ran")).await;
        assert_eq!(unprotected(&response), "ran");
    }
    assert_eq!(effects.count(), 2);
    let identity = *rig.request("k", "payload", &policy).identity();
    assert_eq!(rig.store.read(&identity).await.unwrap(), None);
}

#[tokio::test]
async fn observe_runs_everything_and_reports_what_enforcing_would_have_done() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    let policy = Policy {
        mode: Mode::Observe,
        ..Policy::default()
    };
    let first = rig.start("k", &policy, effects.answer_after("ran", &gate));
    settle_down().await;
    let busy = rig.run("k", &policy, effects.answer("ran")).await;
    gate.open();
    settle_down().await;
    let replay = rig.run("k", &policy, effects.answer("ran")).await;
    let other = rig.request("k", "another payload", &policy);
    let mismatch = rig.engine.execute(other, effects.answer("ran")).await;
    assert_eq!(ran(&first.await.unwrap()), "ran");
    for response in [&busy, &replay, &mismatch] {
        assert_eq!(unprotected(response), "ran");
    }
    assert_eq!(effects.count(), 4, "every call ran");
    for would in [Would::Busy, Would::Replay, Would::Mismatch] {
        assert_eq!(
            rig.log.count(|step| *step == Step::Observed { would }),
            1,
            "{would:?}"
        );
    }
}

#[tokio::test]
async fn an_unprotected_effect_knows_it_is() {
    let rig = Rig::new();
    let policy = Policy {
        mode: Mode::Off,
        ..Policy::default()
    };
    let response = rig
        .run("k", &policy, |lease| async move {
            assert_eq!(
                (lease.fence(), lease.attempt(), lease.is_lost()),
                (None, 1, false)
            );
            lease.checkpoint("nowhere to keep it").await.unwrap();
            completed(&lease.derive_key("psp"))
        })
        .await;
    assert!(unprotected(&response).starts_with("semel-"));
}
