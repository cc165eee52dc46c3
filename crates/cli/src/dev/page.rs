//! The page and its small JSON API, for browsers on this machine alone.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderMap, Method, StatusCode, header};
use semel_server::{dashboard_file, page_file};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;

use super::run::{Crash, Scenario};
use super::stage::{Asked, Stage, Totals};

/// How long a request for news may wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// The files of the page; what it shares with the dashboard comes from there.
const FILES: [(&str, &str); 6] = [
    ("dev.css", include_str!("../../ui/dev.css")),
    ("diagram.css", include_str!("../../ui/diagram.css")),
    ("dev.js", include_str!("../../ui/dev.js")),
    ("diagram.js", include_str!("../../ui/diagram.js")),
    ("example.js", include_str!("../../ui/example.js")),
    ("rows.js", include_str!("../../ui/rows.js")),
];
const PAGE: &str = include_str!("../../ui/index.html");
const SHARED: [&str; 5] = ["style.css", "parts.css", "theme.js", "dom.js", "icon.svg"];

/// Serves the page until the process ends.
pub(super) async fn serve(stage: Arc<Stage>, listener: TcpListener) -> std::io::Result<()> {
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/", get(|| async { page_file("index.html", PAGE) }))
        .route("/ui/{name}", get(file))
        .route("/api/state", get(state))
        .route("/api/runs", post(run))
        .route("/api/runs/{number}/retry", post(retry))
        .with_state(stage)
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            only_from_here(address, request, next)
        }));
    axum::serve(listener, router).await
}

async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    if let Some((name, text)) = FILES.iter().find(|(known, _)| *known == name) {
        return page_file(name, text);
    }
    let shared = SHARED.contains(&name.as_str());
    let found = shared.then(|| dashboard_file(&headers, &name)).flatten();
    found.unwrap_or_else(|| StatusCode::NOT_FOUND.into_response())
}

/// Refuses requests for another name (DNS rebinding) and requests from pages of another origin.
async fn only_from_here(address: SocketAddr, request: Request, next: Next) -> Response {
    if is_from_here(address, &request) {
        next.run(request).await
    } else {
        refused(StatusCode::FORBIDDEN, "this page is for this machine alone")
    }
}

fn is_from_here(address: SocketAddr, request: &Request) -> bool {
    let port = address.port();
    let names = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    let is_ours = |name: &str| names.iter().any(|own| own.eq_ignore_ascii_case(name));
    let text = |name| {
        let value = request.headers().get(name);
        value.map(|value| value.to_str().unwrap_or_default())
    };
    let is_origin_ours = text(header::ORIGIN).is_none_or(|origin| {
        let name = origin.strip_prefix("http://");
        name.is_some_and(is_ours)
    });
    text(header::HOST).is_some_and(is_ours) && (is_origin_ours || request.method() == Method::GET)
}

fn refused(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct News {
    /// Waits for something newer than this version.
    after: Option<u64>,
}

async fn state(State(stage): State<Arc<Stage>>, Query(news): Query<News>) -> Response {
    let mut version = stage.board.follow();
    if let Some(after) = news.after {
        let newer = version.wait_for(|version| *version != after);
        // Without news the old state is sent again.
        let _ = stage.board.clock.timeout(PATIENCE, newer).await;
    }
    let version = *version.borrow();
    let sidecar = |name: &str, sidecar: &super::sidecar::Sidecar| {
        json!({
            "name": name,
            "address": format!("http://{}", sidecar.address),
            "dashboard": format!("http://{}", sidecar.admin),
            "is_running": sidecar.is_followed.load(std::sync::atomic::Ordering::Relaxed),
        })
    };
    let state = json!({
        "version": version,
        "is_busy": stage.is_busy.load(std::sync::atomic::Ordering::Acquire),
        "sidecars": [sidecar("A", &stage.a), sidecar("B", &stage.b)],
        "service": format!("http://{}", stage.bare.address),
        "with": Totals::of(&stage.behind),
        "without": Totals::of(&stage.bare),
        "runs": stage.board.runs(),
    });
    Json(state).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    scenario: Scenario,
    #[serde(default = "yes")]
    with_semel: bool,
    #[serde(default)]
    crash: Crash,
}

const fn yes() -> bool {
    true
}

async fn run(State(stage): State<Arc<Stage>>, Json(wanted): Json<Wanted>) -> Response {
    begun(stage.begin(Asked {
        scenario: wanted.scenario,
        with_semel: wanted.with_semel,
        crash: wanted.crash,
    }))
}

async fn retry(State(stage): State<Arc<Stage>>, Path(number): Path<u32>) -> Response {
    if stage.board.run(number).is_none() {
        return refused(StatusCode::NOT_FOUND, "there is no such run");
    }
    begun(stage.retry(number))
}

fn begun(number: Option<u32>) -> Response {
    match number {
        Some(number) => (StatusCode::ACCEPTED, Json(json!({ "run": number }))).into_response(),
        None => refused(
            StatusCode::CONFLICT,
            "another scenario still runs; wait for its end",
        ),
    }
}
