//! A small application that counts what it does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::post;

/// Counts how often handlers begin and end.
#[derive(Clone, Default)]
pub(super) struct App {
    begun: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the subjects run on real sockets and real time"
)]
pub(super) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Serves on a free port of the loopback for as long as the test's runtime lives.
pub(super) async fn serve(router: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

impl App {
    pub(super) fn runs(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    pub(super) fn ends(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }

    /// Begins a run; which one it is, from 1.
    fn begin(&self) -> usize {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn end<T>(&self, answer: T) -> T {
        self.ended.fetch_add(1, Ordering::SeqCst);
        answer
    }

    pub(super) fn router(&self) -> Router {
        Router::new()
            .route("/charge", post(charge))
            .route("/refund", post(refund))
            .route("/slow", post(slow))
            .route("/ever-faster", post(ever_faster))
            .route("/large", post(large))
            .route("/fails-once", post(fails_once))
            .route("/panics-once", post(panics_once))
            .route("/stream", post(stream))
            .route("/login", post(login))
            .route("/whoami", post(whoami))
            .layer(DefaultBodyLimit::disable())
            .with_state(self.clone())
    }
}

async fn charge(State(app): State<App>, _body: Bytes) -> impl IntoResponse {
    let n = app.begin();
    let location = [(header::LOCATION, format!("/charges/{n}"))];
    app.end((StatusCode::CREATED, location, format!("charge {n}")))
}

async fn refund(State(app): State<App>, _body: Bytes) -> String {
    let n = app.begin();
    app.end(format!("refund {n}"))
}

async fn slow(State(app): State<App>, _body: Bytes) -> impl IntoResponse {
    let n = app.begin();
    pause(Duration::from_millis(300)).await;
    app.end((StatusCode::CREATED, format!("slow {n}")))
}

async fn ever_faster(State(app): State<App>, _body: Bytes) -> String {
    let n = app.begin();
    pause(Duration::from_millis(400 / n as u64)).await;
    app.end(format!("run {n}"))
}

async fn large(State(app): State<App>, _body: Bytes) -> String {
    app.begin();
    app.end("x".repeat(2 * 1024 * 1024))
}

async fn fails_once(State(app): State<App>, _body: Bytes) -> StatusCode {
    let status = match app.begin() {
        1 => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::OK,
    };
    app.end(status)
}

async fn panics_once(State(app): State<App>, _body: Bytes) -> &'static str {
    assert!(app.begin() > 1, "on purpose");
    app.end("fine")
}

async fn stream(State(app): State<App>, _body: Bytes) -> Body {
    app.begin();
    let pieces = ["a", "b", "c"].map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
    app.end(Body::from_stream(futures_util::stream::iter(pieces)))
}

async fn login(State(app): State<App>, _body: Bytes) -> impl IntoResponse {
    app.begin();
    app.end(([(header::SET_COOKIE, "session=secret")], "in"))
}

async fn whoami(State(app): State<App>, headers: HeaderMap, _body: Bytes) -> String {
    app.begin();
    let name = headers.get(header::AUTHORIZATION);
    app.end(name.map_or(String::new(), |name| name.to_str().unwrap_or("").to_owned()))
}
