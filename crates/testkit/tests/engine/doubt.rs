//! In doubt, and the recover hook (P40).

use std::time::Duration;

use semel_core::engine::{Doubt, Problem, Response};
use semel_core::event::Step;
use semel_core::{Answer, Resolution};

use super::leases::claim_and_vanish;
use super::*;

/// A rig with a key in doubt: held, and its owner gone.
async fn in_doubt() -> Rig {
    let rig = Rig::new();
    claim_and_vanish(&rig, "k", &hold()).await;
    rig.clock.advance(Duration::from_secs(31));
    rig
}

async fn run_with_hook(
    rig: &Rig,
    effects: &Effects,
    found: impl Fn(Doubt) -> Option<Resolution> + Send + Sync + 'static,
) -> Response<String> {
    let request = rig
        .request("k", "payload", &hold())
        .recover_with(Arc::new(move |doubt| {
            Box::pin(std::future::ready(found(doubt)))
        }));
    rig.engine.execute(request, effects.answer("ran")).await
}

#[tokio::test]
async fn without_a_hook_the_doubt_stays_and_nothing_runs() {
    let (rig, effects) = (in_doubt().await, Effects::default());
    for _ in 0..3 {
        let response = rig.run("k", &hold(), effects.answer("ran")).await;
        let Response::Problem(problem) = response else {
            panic!("{response:?}")
        };
        assert!(matches!(problem, Problem::InDoubt(_)));
        assert!(!problem.is_retryable());
    }
    assert_eq!(effects.count(), 0);
}

#[tokio::test]
async fn p40_a_hook_that_knows_it_happened_answers_for_all() {
    let (rig, effects) = (in_doubt().await, Effects::default());
    let wanted = rig
        .request("k", "payload", &hold())
        .identity()
        .derive_key(&Secret::none(), "psp");
    let response = run_with_hook(&rig, &effects, move |doubt| {
        assert_eq!(
            doubt.derive_key("psp"),
            wanted,
            "the key that the lost run passed on"
        );
        Some(Resolution::Complete(Answer::from_body("charged").into()))
    })
    .await;
    assert_eq!(replayed(&response), "charged");
    assert_eq!(
        replayed(&rig.run("k", &hold(), effects.answer("ran")).await),
        "charged"
    );
    assert_eq!(effects.count(), 0);
}

#[tokio::test]
async fn p40_a_hook_that_knows_it_did_not_happen_lets_it_run() {
    let (rig, effects) = (in_doubt().await, Effects::default());
    let response = run_with_hook(&rig, &effects, |_| Some(Resolution::Release)).await;
    assert_eq!((ran(&response), effects.count()), ("ran", 1));
}

#[tokio::test]
async fn p40_a_hook_that_does_not_know_leaves_the_doubt() {
    let (rig, effects) = (in_doubt().await, Effects::default());
    let response = run_with_hook(&rig, &effects, |_| None).await;
    assert!(matches!(response, Response::Problem(Problem::InDoubt(_))));
    assert_eq!(effects.count(), 0);
    let asked = |step: &Step| matches!(step, Step::Recovered { known: false, .. });
    assert_eq!(rig.log.count(asked), 1);
}
