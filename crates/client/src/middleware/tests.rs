use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect};
use axum::routing::post;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use parking_lot::Mutex;

use super::*;

/// A client that asks once.
pub(crate) fn asks_once() -> ClientWithMiddleware {
    let policy = RetryPolicy {
        max_attempts: 1,
        ..RetryPolicy::default()
    };
    let builder = reqwest_middleware::ClientBuilder::new(bare());
    builder
        .with(IdempotencyMiddleware::default().policy(policy))
        .build()
}

fn bare() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// A URL where nobody listens.
pub(crate) fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/charges", listener.local_addr().unwrap())
}

pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Whether a call that finds nobody may be done.
async fn may_be_done(url: &str, body: Option<&'static str>) -> bool {
    let mut request = asks_once().post(url);
    if let Some(body) = body {
        request = request.body(body);
    }
    let error = request.send().await.unwrap_err();
    match Error::find_in(&error) {
        Some(Error::GaveUp { unknown, .. }) => *unknown,
        other => panic!("{other:?}: {error}"),
    }
}

#[tokio::test]
async fn failed_redirect_after_post_may_be_done() {
    let charge = |_: Bytes| async { Redirect::to(&nowhere()) };
    let address = serve(Router::new().route("/charges", post(charge))).await;
    let redirected = format!("http://{address}/charges");
    for body in [None, Some(""), Some("{\"cents\":500}")] {
        assert!(may_be_done(&redirected, body).await, "{body:?}: it arrived");
        let never = may_be_done(&nowhere(), body).await;
        assert!(!never, "{body:?}: it never left");
    }
}

#[tokio::test]
async fn a_request_arrives_as_reqwest_alone_would_send_it() {
    let echo = |headers: http::HeaderMap, body: Bytes| async move {
        let length = headers.get(http::header::CONTENT_LENGTH);
        format!("{length:?} {}", String::from_utf8_lossy(&body))
    };
    let address = serve(Router::new().route("/charges", post(echo))).await;
    let url = format!("http://{address}/charges");
    for body in [None, Some(""), Some("{\"cents\":500}")] {
        let (mut request, mut alone) = (asks_once().post(&url), bare().post(&url));
        if let Some(body) = body {
            (request, alone) = (request.body(body), alone.body(body));
        }
        let (answer, alone) = (request.send().await.unwrap(), alone.send().await.unwrap());
        let (answer, alone) = (answer.text().await.unwrap(), alone.text().await.unwrap());
        assert_eq!(answer, alone);
        assert!(answer.contains(body.unwrap_or_default()), "{answer}");
    }
}

/// Keeps the counters of this thread.
#[derive(Clone, Default)]
struct Counters(Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>);

impl Counters {
    fn get(&self, name: &str) -> u64 {
        let name = format!("semel_client_{name}_total");
        let counters = self.0.lock();
        counters
            .get(&name)
            .map_or(0, |counter| counter.load(Ordering::SeqCst))
    }
}

impl metrics::Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        assert_eq!(key.labels().len(), 0, "labels could show a key");
        let mut counters = self.0.lock();
        let counter = counters.entry(key.name().to_owned()).or_default();
        Counter::from_arc(Arc::clone(counter))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test]
async fn attempts_retries_and_ends_are_counted() {
    let counters = Counters::default();
    let _guard = metrics::set_default_local_recorder(&counters);
    let calls = Arc::new(AtomicU64::new(0));
    // First without an answer, then a replay.
    let again = move || async move {
        match calls.fetch_add(1, Ordering::SeqCst) {
            0 => StatusCode::BAD_GATEWAY.into_response(),
            _ => ([("idempotent-replayed", "true")], "charged").into_response(),
        }
    };
    let problem = |status: u16, code: &'static str| {
        post(move || async move {
            let status = StatusCode::from_u16(status).unwrap();
            let document = serde_json::json!({"code": code, "retryable": false});
            (status, axum::Json(document))
        })
    };
    let router = Router::new()
        .route("/again", post(again))
        .route("/conflict", problem(422, "idempotency_conflict"))
        .route("/doubt", problem(409, "idempotency_in_doubt"));
    let address = serve(router).await;
    let counts = || {
        [
            "attempts",
            "retries",
            "replays",
            "conflicts",
            "in_doubt",
            "gave_up",
        ]
        .map(|name| counters.get(name))
    };
    let policy = RetryPolicy::default().with_base(std::time::Duration::from_millis(1));
    let client = reqwest_middleware::ClientBuilder::new(bare())
        .with(IdempotencyMiddleware::default().policy(policy))
        .build();
    let answer = client.post(format!("http://{address}/again")).send().await;
    assert_eq!(answer.unwrap().status(), 200);
    assert_eq!(counts(), [2, 1, 1, 0, 0, 0]);
    for path in ["conflict", "doubt"] {
        let asked = client.post(format!("http://{address}/{path}")).send().await;
        assert!(asked.is_err(), "{path}");
    }
    assert_eq!(counts(), [4, 1, 1, 1, 1, 0]);
    assert!(asks_once().post(nowhere()).send().await.is_err());
    assert_eq!(counts(), [5, 1, 1, 1, 1, 1]);
}
