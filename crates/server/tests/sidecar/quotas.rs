//! Quotas count what is kept in the store, and nothing else.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::any;

use crate::support::*;

const TENANTS: &str = "tenants.from = \"header\"\ntenants.header = \"x-tenant\"\n";

/// A service whose response depends on the path: `/broken`, `/busy`, `/large`, or small.
async fn varied(runs: &Runs) -> std::net::SocketAddr {
    let handler = |State(runs): State<Runs>, request: Request| async move {
        runs.begin();
        match request.uri().path() {
            "/broken" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            "/busy" => StatusCode::TOO_MANY_REQUESTS.into_response(),
            "/large" => "x".repeat(4000).into_response(),
            _ => "done".into_response(),
        }
    };
    let router = Router::new().fallback(any(handler));
    service(router.with_state(runs.clone())).await
}

async fn send(sidecar: &Sidecar, path: &str, key: &str) -> Answer {
    let request = post(path, key, "{}");
    sidecar.send(with(request, "x-tenant", "acme")).await
}

fn used_up() -> (u16, String, bool) {
    (429, "idempotency_quota_exceeded".to_owned(), true)
}

#[tokio::test]
async fn quota_does_not_count_keys_that_are_free_again() {
    let runs = Runs::default();
    let settings = format!("{TENANTS}limits.tenant_keys = 1\n");
    let sidecar = Sidecar::new(varied(&runs).await, &settings).await;
    for (path, key, status) in [
        ("/broken", "k-1", 500),
        ("/busy", "k-2", 429),
        ("/broken", "k-3", 500),
        ("/done", "k-1", 200),
    ] {
        let answer = send(&sidecar, path, key).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
    assert_eq!(runs.count(), 4, "all requests reached the service");
    assert_eq!(
        send(&sidecar, "/done", "k-4").await.problem_and_retry(),
        used_up()
    );
    // A free key would be kept as well.
    assert_eq!(
        send(&sidecar, "/done", "k-2").await.problem_and_retry(),
        used_up()
    );
    assert_eq!(runs.count(), 4);
}

/// A key in doubt stays in the store.
#[tokio::test]
async fn quota_counts_keys_in_doubt() {
    let runs = Runs::default();
    let settings = format!("{TENANTS}limits.tenant_keys = 1\ndefaults.crash = \"hold\"\n");
    let sidecar = Sidecar::new(varied(&runs).await, &settings).await;
    assert_eq!(send(&sidecar, "/broken", "k-1").await.status, 500);
    assert_eq!(
        send(&sidecar, "/done", "k-2").await.problem_and_retry(),
        used_up()
    );
}

#[tokio::test]
async fn quota_counts_only_the_bytes_that_are_kept() {
    let runs = Runs::default();
    let settings = format!("{TENANTS}limits.tenant_stored = \"2KiB\"\n");
    let settings = |route: &str| format!("{settings}{route}");
    // Neither the body of a stream nor one beyond the maximum is kept.
    for route in [
        "defaults.streams = true\n",
        "defaults.max_answer = \"1KiB\"\n",
    ] {
        let sidecar = Sidecar::new(varied(&runs).await, &settings(route)).await;
        for key in ["k-1", "k-2", "k-3"] {
            let answer = send(&sidecar, "/large", key).await;
            assert_eq!(answer.status, 200, "{route}{key}: {answer:?}");
        }
    }
    let sidecar = Sidecar::new(varied(&runs).await, &settings("")).await;
    assert_eq!(send(&sidecar, "/large", "k-1").await.status, 200);
    assert_eq!(
        send(&sidecar, "/done", "k-2").await.problem_and_retry(),
        used_up()
    );
    assert!(send(&sidecar, "/large", "k-1").await.is_replay());
}

/// Observe mode refuses nothing.
#[tokio::test]
async fn quota_refuses_nothing_in_observe_mode() {
    let runs = Runs::default();
    let settings = format!("{TENANTS}limits.tenant_keys = 1\ndefaults.mode = \"observe\"\n");
    let sidecar = Sidecar::new(varied(&runs).await, &settings).await;
    for key in ["k-1", "k-2", "k-3"] {
        assert_eq!(send(&sidecar, "/done", key).await.status, 200, "{key}");
    }
}
