//! The service behind the sidecars: it counts what it does, and waits at gates that a test opens.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use futures_util::StreamExt as _;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The header by which a test names what it asks for, so that the service can count it.
pub(crate) const EFFECT: &str = "x-effect";

/// The most that `/large` sends back.
const LARGEST_ANSWER: usize = 600_000;

/// What became of one effect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effect {
    pub(crate) begun: usize,
    pub(crate) ended: usize,
    /// The instances that were asked, by their number.
    pub(crate) at: Vec<usize>,
    /// The headers of the last request.
    pub(crate) headers: HeaderMap,
}

#[derive(Default)]
struct Shared {
    effects: Mutex<HashMap<String, Effect>>,
    closed: Mutex<HashSet<String>>,
    changed: watch::Sender<()>,
}

impl Shared {
    fn change(&self, name: &str, change: impl FnOnce(&mut Effect)) -> Effect {
        let mut effects = self.effects.lock();
        let effect = effects.entry(name.to_owned()).or_default();
        change(effect);
        let after = effect.clone();
        drop(effects);
        self.changed.send_modify(|()| ());
        after
    }

    async fn pass_gate(&self, name: &str) {
        // The sender lives in `self`.
        let _ = self
            .changed
            .subscribe()
            .wait_for(|()| !self.closed.lock().contains(name))
            .await;
    }
}

#[derive(Clone)]
struct Instance {
    number: usize,
    shared: Arc<Shared>,
}

/// Two instances of one service, in this process.
pub(crate) struct Service {
    pub(crate) instances: [SocketAddr; 2],
    shared: Arc<Shared>,
}

impl Service {
    pub(crate) async fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let instances = [
            serve(0, Arc::clone(&shared)).await,
            serve(1, Arc::clone(&shared)).await,
        ];
        Self { instances, shared }
    }

    /// Requests for this effect wait in the service from now on.
    pub(crate) fn close_gate(&self, name: &str) {
        self.shared.closed.lock().insert(name.to_owned());
    }

    pub(crate) fn open_gate(&self, name: &str) {
        self.shared.closed.lock().remove(name);
        self.shared.changed.send_modify(|()| ());
    }

    pub(crate) fn effect(&self, name: &str) -> Effect {
        let effects = self.shared.effects.lock();
        effects.get(name).cloned().unwrap_or_default()
    }

    /// Waits for a state of the effect.
    pub(crate) async fn until(&self, name: &str, wanted: impl Fn(&Effect) -> bool) {
        // The sender lives in `self`.
        let _ = self
            .shared
            .changed
            .subscribe()
            .wait_for(|()| wanted(&self.effect(name)))
            .await;
    }
}

async fn serve(number: usize, shared: Arc<Shared>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = Router::new()
        .route("/count", get(|| async { "fine\n" }))
        .route("/events", get(events).post(events))
        .route("/large", post(large))
        .route("/{name}", post(charge))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(Instance { number, shared });
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn name_of(headers: &HeaderMap) -> String {
    let name = headers.get(EFFECT).and_then(|value| value.to_str().ok());
    name.unwrap_or_default().to_owned()
}

/// Does the effect, as often as it is asked to.
async fn charge(State(instance): State<Instance>, headers: HeaderMap, _: Bytes) -> Response {
    let name = name_of(&headers);
    let shared = &instance.shared;
    let begun = shared.change(&name, |effect| {
        effect.begun += 1;
        effect.at.push(instance.number);
        effect.headers = headers;
    });
    shared.pass_gate(&name).await;
    shared.change(&name, |effect| effect.ended += 1);
    let answer = json!({ "effect": name, "number": begun.begun });
    let kind = [("content-type", "application/json")];
    (StatusCode::CREATED, kind, answer.to_string()).into_response()
}

/// Sends the body back, up to a size.
async fn large(State(instance): State<Instance>, headers: HeaderMap, body: Bytes) -> Response {
    instance.shared.change(&name_of(&headers), |effect| {
        effect.begun += 1;
        effect.ended += 1;
    });
    let answer = body.slice(..body.len().min(LARGEST_ANSWER));
    (StatusCode::CREATED, answer).into_response()
}

/// Sends one event at once, and another when the gate is opened.
async fn events(State(instance): State<Instance>, headers: HeaderMap) -> Response {
    let name = name_of(&headers);
    instance.shared.change(&name, |effect| effect.begun += 1);
    let first = futures_util::stream::once(async { Ok("data: one\n\n") });
    let second = futures_util::stream::once(async move {
        instance.shared.pass_gate(&name).await;
        instance.shared.change(&name, |effect| effect.ended += 1);
        Ok::<_, std::io::Error>("data: two\n\n")
    });
    let body = Body::from_stream(first.chain(second));
    ([("content-type", "text/event-stream")], body).into_response()
}
