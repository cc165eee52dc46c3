//! A catalog behind the sidecar, and a client that does what the OpenAPI document of Iceberg's REST
//! catalog says about `Idempotency-Key`, and Iceberg's Java client does with the statuses.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post as on_post};
use parking_lot::Mutex;
use semel::core::State as Stands;
use semel_httpclient::uuid_v7;
use serde_json::{Value, json};

use crate::support::*;

const PROFILE: &str = "[defaults]\nprofile = \"iceberg\"\nretention = \"30m\"\n";

/// A catalog of namespaces that knows nothing of keys.
#[derive(Clone, Default)]
struct Catalog {
    namespaces: Arc<Mutex<BTreeSet<String>>>,
    /// Attempts to create or drop.
    runs: Runs,
    /// How many of the next attempts fail with 503 before they do anything.
    failures: Arc<AtomicU16>,
}

impl Catalog {
    async fn serve(&self) -> std::net::SocketAddr {
        let config = || async { axum::Json(json!({"defaults": {}, "overrides": {}})) };
        let routes = Router::new()
            .route("/v1/config", get(config))
            .route("/v1/namespaces", on_post(create))
            .route("/v1/namespaces/{name}", delete(remove))
            .with_state(self.clone());
        service(routes).await
    }

    /// Begins an attempt; the response if it fails.
    fn begin(&self) -> Option<Response> {
        self.runs.begin();
        let fails = |left: u16| left.checked_sub(1);
        let failed = self
            .failures
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails);
        failed
            .is_ok()
            .then(|| error(StatusCode::SERVICE_UNAVAILABLE, "SlowDownException"))
    }

    fn names(&self) -> Vec<String> {
        self.namespaces.lock().iter().cloned().collect()
    }
}

fn error(status: StatusCode, kind: &str) -> Response {
    let error = json!({"message": kind, "type": kind, "code": status.as_u16()});
    (status, axum::Json(json!({ "error": error }))).into_response()
}

async fn create(State(catalog): State<Catalog>, axum::Json(ask): axum::Json<Value>) -> Response {
    if let Some(failed) = catalog.begin() {
        return failed;
    }
    let name = ask["namespace"][0].as_str().unwrap_or_default().to_owned();
    if name == "slow" {
        pause(800).await;
    }
    match catalog.namespaces.lock().insert(name) {
        true => {
            axum::Json(json!({"namespace": ask["namespace"], "properties": {}})).into_response()
        }
        false => error(StatusCode::CONFLICT, "AlreadyExistsException"),
    }
}

async fn remove(State(catalog): State<Catalog>, Path(name): Path<String>) -> Response {
    if let Some(failed) = catalog.begin() {
        return failed;
    }
    match catalog.namespaces.lock().remove(&name) {
        true => StatusCode::NO_CONTENT.into_response(),
        false => error(StatusCode::NOT_FOUND, "NoSuchNamespaceException"),
    }
}

/// What Iceberg's Java client makes of a response to a commit (`ErrorHandlers.java`).
#[derive(Debug, PartialEq)]
enum Outcome {
    Done,
    /// The client cleans up and may commit again.
    Failed,
    /// The client must not clean up.
    Unknown,
    /// Another error, which names its cause.
    Refused(u16),
}

impl Outcome {
    fn of(answer: &Answer) -> Self {
        match answer.status.as_u16() {
            200 | 204 => Self::Done,
            409 => Self::Failed,
            500 | 502 | 503 | 504 => Self::Unknown,
            status => Self::Refused(status),
        }
    }
}

/// A client that reads the configuration first, and sends keys only if it announces them.
struct CatalogClient<'a> {
    sidecar: &'a Sidecar,
    sends_keys: bool,
}

impl<'a> CatalogClient<'a> {
    async fn connect(sidecar: &'a Sidecar) -> Self {
        let config = sidecar
            .send(plain("GET", "/v1/config", Body::empty()))
            .await;
        let config = config.json();
        let lifetime = config
            .get("idempotency-key-lifetime")
            .and_then(Value::as_str);
        let sends_keys = lifetime == Some("PT30M");
        Self {
            sidecar,
            sends_keys,
        }
    }

    fn create(&self, name: &str, key: &str) -> Request<Body> {
        let body = json!({"namespace": [name], "properties": {}}).to_string();
        self.keyed(plain("POST", "/v1/namespaces", body), key)
    }

    fn drop(&self, name: &str, key: &str) -> Request<Body> {
        self.keyed(
            plain("DELETE", &format!("/v1/namespaces/{name}"), Body::empty()),
            key,
        )
    }

    fn keyed(&self, request: Request<Body>, key: &str) -> Request<Body> {
        let request = with(request, "content-type", "application/json");
        match self.sends_keys {
            true => with(request, "idempotency-key", key),
            false => request,
        }
    }

    async fn once(&self, request: Request<Body>) -> Answer {
        self.sidecar.send(request).await
    }

    /// Retries what `ExponentialHttpRequestRetryStrategy` retries: 429, and 503 with `Retry-After`.
    /// A 503 to a request with a key is retried too, as its key makes it safe.
    async fn with_retries(&self, request: impl Fn() -> Request<Body>) -> Answer {
        for _ in 0..10 {
            let answer = self.once(request()).await;
            if !matches!(answer.status.as_u16(), 429 | 503) {
                return answer;
            }
            pause(200).await;
        }
        panic!("ten attempts failed");
    }
}

/// A new key, as a client makes it for a new operation.
fn key(n: u16) -> String {
    let now = semel::tokio_env().clock.wall().as_micros() / 1000;
    uuid_v7(now, n)
}

async fn start(settings: &str) -> (Catalog, Sidecar) {
    let catalog = Catalog::default();
    let upstream = catalog.serve().await;
    (catalog, Sidecar::new(upstream, settings).await)
}

#[tokio::test]
async fn client_sends_keys_because_the_configuration_announces_them() {
    let (_, sidecar) = start(PROFILE).await;
    assert!(CatalogClient::connect(&sidecar).await.sends_keys);
    let silent = format!("{PROFILE}announce = false\n");
    let (_, sidecar) = start(&silent).await;
    assert!(!CatalogClient::connect(&sidecar).await.sends_keys);
}

#[tokio::test]
async fn success_and_final_errors_are_replayed() {
    let (catalog, sidecar) = start(PROFILE).await;
    let client = CatalogClient::connect(&sidecar).await;
    let (first, second) = (key(1), key(2));
    for is_replay in [false, true] {
        let made = client.once(client.create("ns", &first)).await;
        assert_eq!((made.status.as_u16(), made.is_replay()), (200, is_replay));
        assert_eq!(made.json()["namespace"], json!(["ns"]));
        assert_eq!(made.header("idempotency-key-lifetime"), Some("PT30M"));
    }
    // A new key is a new operation, whose 409 is as final as a success.
    for is_replay in [false, true] {
        let exists = client.once(client.create("ns", &second)).await;
        assert_eq!(
            (exists.status.as_u16(), exists.is_replay()),
            (409, is_replay)
        );
        assert_eq!(exists.json()["error"]["type"], "AlreadyExistsException");
    }
    assert_eq!(catalog.runs.count(), 2);
    let third = key(3);
    for is_replay in [false, true] {
        let dropped = client.once(client.drop("ns", &third)).await;
        assert_eq!(
            (dropped.status.as_u16(), dropped.is_replay()),
            (204, is_replay)
        );
    }
    assert_eq!(catalog.runs.count(), 3);
}

#[tokio::test]
async fn server_errors_free_the_key_and_the_retry_succeeds() {
    let (catalog, sidecar) = start(PROFILE).await;
    let client = CatalogClient::connect(&sidecar).await;
    catalog.failures.store(2, Ordering::SeqCst);
    let key = key(1);
    let made = client.with_retries(|| client.create("ns", &key)).await;
    assert_eq!((made.status.as_u16(), made.is_replay()), (200, false));
    assert_eq!(
        (catalog.runs.count(), catalog.names()),
        (3, vec!["ns".to_owned()])
    );
}

#[tokio::test]
async fn client_that_lost_the_response_gets_it_by_its_retry() {
    let (catalog, sidecar) = start(PROFILE).await;
    let client = CatalogClient::connect(&sidecar).await;
    let key = key(1);
    {
        let mut connection = sidecar.client(Protocol::Http1).await;
        let sent = connection.send(client.create("slow", &key));
        let begun = until("it runs", || catalog.runs.count() == 1);
        tokio::select! {
            _ = sent => panic!("the response came"),
            () = begun => {}
        }
    }
    let again = client.with_retries(|| client.create("slow", &key)).await;
    assert_eq!(Outcome::of(&again), Outcome::Done);
    assert_eq!(
        (catalog.runs.count(), catalog.names()),
        (1, vec!["slow".to_owned()])
    );
}

#[tokio::test]
async fn a_running_duplicate_is_never_told_that_it_failed() {
    let settings = format!("{PROFILE}wait = \"100ms\"\n");
    let (catalog, sidecar) = start(&settings).await;
    let client = CatalogClient::connect(&sidecar).await;
    let key = key(1);
    let first = client.once(client.create("slow", &key));
    let second = async {
        until("it runs", || catalog.runs.count() == 1).await;
        let busy = client.once(client.create("slow", &key)).await;
        let told = (busy.status.as_u16(), busy.json()["error"]["code"].clone());
        assert_eq!(told, (503, json!(503)));
        assert!(busy.header("retry-after").is_some());
        assert_eq!(Outcome::of(&busy), Outcome::Unknown);
        client.with_retries(|| client.create("slow", &key)).await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(
        (Outcome::of(&first), Outcome::of(&second)),
        (Outcome::Done, Outcome::Done)
    );
    assert_eq!(second.body, first.body);
    assert_eq!(catalog.runs.count(), 1);
}

#[tokio::test]
async fn an_unknown_outcome_is_told_as_unknown() {
    let settings = format!("upstream.response_timeout = \"300ms\"\n{PROFILE}crash = \"hold\"\n");
    let (catalog, sidecar) = start(&settings).await;
    let client = CatalogClient::connect(&sidecar).await;
    let key = key(1);
    for _ in 0..2 {
        let answer = client.once(client.create("slow", &key)).await;
        assert_eq!(Outcome::of(&answer), Outcome::Unknown, "{}", answer.text());
    }
    let doubt = client.once(client.create("slow", &key)).await;
    assert_eq!(doubt.json()["code"], "idempotency_in_doubt");
    assert_eq!(doubt.json()["error"]["code"], 500);
    assert_eq!(catalog.runs.count(), 1);
    assert_eq!(sidecar.keys(Stands::InDoubt).await, 1);
}

#[tokio::test]
async fn misused_keys_are_refused_in_the_words_of_the_catalog() {
    let (catalog, sidecar) = start(PROFILE).await;
    let client = CatalogClient::connect(&sidecar).await;
    let used = key(1);
    client.once(client.create("ns", &used)).await;
    let other = client.once(client.create("other", &used)).await;
    assert_eq!(Outcome::of(&other), Outcome::Refused(422));
    let v4 = "9b2b8b0e-79b0-4cc3-98c4-dc0c0c07398f";
    let random = client.once(client.create("other", v4)).await;
    assert_eq!(Outcome::of(&random), Outcome::Refused(400));
    for (answer, code) in [(other, 422), (random, 400)] {
        let error = &answer.json()["error"];
        assert_eq!(error["code"], code);
        assert!(error["message"].is_string() && error["type"].is_string());
    }
    assert_eq!(
        (catalog.runs.count(), catalog.names()),
        (1, vec!["ns".to_owned()])
    );
}
