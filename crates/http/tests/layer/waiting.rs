//! Duplicates that arrive while the first still runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::post as on_post;
use futures_util::future::join_all;
use semel::http::{Profile, Route};
use semel::{OnBusy, Policy};
use tokio::sync::Semaphore;

use crate::support::*;

/// A handler that runs until its gate opens.
#[derive(Clone)]
struct Gated {
    runs: Runs,
    gate: Arc<Semaphore>,
}

impl Gated {
    fn new() -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let runs = Runs::default();
        Self { runs, gate }
    }

    fn router(&self) -> Router {
        let this = self.clone();
        let handler = move || async move {
            let n = this.runs.begin();
            let _permit = this.gate.acquire().await.expect("the gate stays");
            format!("run {n}")
        };
        Router::new().route("/", on_post(handler))
    }

    fn open(&self) {
        self.gate.add_permits(1);
    }

    /// Sends a first request, `second` while it runs, and then opens the gate. Both answers.
    async fn overlap(&self, rig: &Rig, second: Request<Body>) -> (Answer, Answer) {
        tokio::join!(rig.send(post("/", "k", "{}")), async {
            until("the first runs", || self.runs.begun() == 1).await;
            let answer = rig.send(second).await;
            self.open();
            answer
        })
    }
}

fn wait(limit: Duration) -> Policy {
    Policy::default().with_on_busy(OnBusy::Wait(limit))
}

#[tokio::test]
async fn duplicates_wait_and_get_the_same_answer() {
    for protocol in BOTH {
        let handler = Gated::new();
        let rig = Rig::new(handler.router()).await;
        let all =
            (0..11).map(|_| async { rig.client(protocol).await.send(post("/", "k", "{}")).await });
        let (answers, ()) = tokio::join!(join_all(all), async {
            until("ten wait", || rig.semel.engine().waiting() == 10).await;
            handler.open();
        });
        assert!(answers.iter().all(|answer| answer.text() == "run 1"));
        assert_eq!(
            answers.iter().filter(|answer| answer.is_replay()).count(),
            10
        );
        assert_eq!((handler.runs.begun(), rig.semel.engine().waiting()), (1, 0));
    }
}

#[tokio::test]
async fn eleventh_waiter_of_a_key_gets_429() {
    let handler = Gated::new();
    let rig = Rig::new(handler.router()).await;
    let told = AtomicUsize::new(0);
    let all = (0..15).map(|_| async {
        let answer = rig.send(post("/", "k", "{}")).await;
        told.fetch_add(1, Ordering::SeqCst);
        answer
    });
    let (answers, ()) = tokio::join!(join_all(all), async {
        until("four are told", || told.load(Ordering::SeqCst) == 4).await;
        handler.open();
    });
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
    assert_eq!(handler.runs.begun(), 1);
}

#[tokio::test]
async fn profile_decides_whether_duplicates_wait() {
    let soon = Duration::from_millis(50);
    let refuse = Policy::default().with_on_busy(OnBusy::Refuse);
    for (profile, policy, status, seconds) in [
        (Profile::Ietf, Some(refuse), 409, 1..=1),
        (Profile::Ietf, Some(wait(soon)), 409, 5..=6),
        (Profile::Stripe, None, 409, 1..=1),
        (Profile::Acp, None, 409, 1..=1),
        (Profile::Intake, Some(wait(soon)), 503, 5..=6),
    ] {
        let handler = Gated::new();
        let mut route = Route::new().profile(profile);
        if let Some(policy) = policy {
            route = route.policy(policy);
        }
        let rig = Rig::with(route, handler.router()).await;
        let (first, second) = handler.overlap(&rig, post("/", "k", "{}")).await;
        assert_eq!(first.text(), "run 1");
        assert_eq!(
            second.problem(),
            (status, "idempotency_in_flight".to_owned()),
            "{profile:?}"
        );
        let pause: u64 = second.header("retry-after").unwrap().parse().unwrap();
        assert!(seconds.contains(&pause), "{profile:?}: {pause}");
        let document = second.json();
        assert_eq!(document["retryable"], true);
        let millis = document["retryAfterMs"].as_u64().unwrap();
        assert_eq!(millis / 1000, pause, "{profile:?}");
        if profile == Profile::Intake {
            assert_eq!(document["error"]["type"], "service_unavailable");
        }
        assert!(rig.send(post("/", "k", "{}")).await.is_replay());
    }
}

#[tokio::test]
async fn other_payload_is_refused_while_the_first_runs() {
    let handler = Gated::new();
    let rig = Rig::new(handler.router()).await;
    let (first, second) = handler.overlap(&rig, post("/", "k", "[]")).await;
    assert_eq!(first.text(), "run 1");
    assert_eq!(second.problem(), (422, "idempotency_conflict".to_owned()));
}
