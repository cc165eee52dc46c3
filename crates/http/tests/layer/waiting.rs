//! Duplicates that arrive while the first still runs.

use std::time::Duration;

use axum::Router;
use axum::routing::post as on_post;
use futures_util::future::join_all;
use semel::http::{Profile, Route};
use semel::{OnBusy, Policy};

use crate::support::*;

fn slow(runs: &Runs, millis: u64) -> Router {
    let runs = runs.clone();
    let handler = move || async move {
        let n = runs.begin();
        pause(millis).await;
        format!("run {n}")
    };
    Router::new().route("/", on_post(handler))
}

fn wait(limit: Duration) -> Policy {
    Policy {
        on_busy: OnBusy::Wait(limit),
        ..Policy::default()
    }
}

#[tokio::test]
async fn duplicates_wait_and_get_the_same_answer() {
    for protocol in BOTH {
        let runs = Runs::default();
        let rig = Rig::new(slow(&runs, 200)).await;
        let all =
            (0..11).map(|_| async { rig.client(protocol).await.send(post("/", "k", "{}")).await });
        let answers = join_all(all).await;
        assert!(answers.iter().all(|answer| answer.text() == "run 1"));
        assert_eq!(
            answers.iter().filter(|answer| answer.is_replay()).count(),
            10
        );
        assert_eq!((runs.begun(), rig.semel.engine().waiting()), (1, 0));
    }
}

#[tokio::test]
async fn the_eleventh_waiter_of_a_key_is_told_429() {
    let runs = Runs::default();
    let rig = Rig::new(slow(&runs, 1_000)).await;
    let all = (0..15).map(|_| rig.send(post("/", "k", "{}")));
    let answers = join_all(all).await;
    let refused: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 429)
        .collect();
    assert_eq!(refused.len(), 4);
    for answer in refused {
        assert_eq!(answer.problem().1, "idempotency_too_many_waiters");
        assert_eq!(answer.json()["retryable"], true);
        assert!(answer.header("retry-after").is_some());
    }
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn told_at_once_or_after_waiting_in_vain_as_the_profile_says() {
    let soon = Duration::from_millis(50);
    let refuse = Policy {
        on_busy: OnBusy::Refuse,
        ..Policy::default()
    };
    for (profile, policy, status, seconds) in [
        (Profile::Ietf, Some(refuse), 409, 1..=1),
        (Profile::Ietf, Some(wait(soon)), 409, 5..=6),
        (Profile::Stripe, None, 409, 1..=1),
        (Profile::Acp, None, 409, 1..=1),
        (Profile::Intake, Some(wait(soon)), 503, 5..=6),
    ] {
        let runs = Runs::default();
        let mut route = Route::new().profile(profile);
        if let Some(policy) = policy {
            route = route.policy(policy);
        }
        let rig = Rig::with(route, slow(&runs, 1_000)).await;
        let (first, second) = tokio::join!(rig.send(post("/", "k", "{}")), async {
            until("the first runs", || runs.begun() == 1).await;
            rig.send(post("/", "k", "{}")).await
        });
        assert_eq!(first.text(), "run 1");
        assert_eq!(
            second.problem(),
            (status, "idempotency_in_flight".to_owned()),
            "{profile:?}"
        );
        let pause: u64 = second.header("retry-after").unwrap().parse().unwrap();
        assert!(seconds.contains(&pause), "{profile:?}: {pause}");
        assert!(rig.send(post("/", "k", "{}")).await.is_replay());
    }
}

#[tokio::test]
async fn another_payload_is_refused_at_once_while_the_first_still_runs() {
    let runs = Runs::default();
    let rig = Rig::new(slow(&runs, 1_000)).await;
    let (first, second) = tokio::join!(rig.send(post("/", "k", "{}")), async {
        until("the first runs", || runs.begun() == 1).await;
        rig.send(post("/", "k", "[]")).await
    });
    assert_eq!(first.text(), "run 1");
    assert_eq!(second.problem(), (422, "idempotency_conflict".to_owned()));
}
