//! Limits of routes, principals and addresses, tenants by host name, and the ages of connections.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::routing::{any, get};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite;

use crate::support::*;

type Ask = axum::http::Request<axum::body::Body>;

/// A service that holds requests to `/slow`, and answers others with the number of their run.
async fn counting(runs: &Runs) -> std::net::SocketAddr {
    let handler = |State((runs, gate)): State<(Runs, Arc<Notify>)>, request: Request| async move {
        let run = runs.begin();
        if request.uri().path().starts_with("/slow") {
            gate.notified().await;
        }
        format!("run {run}")
    };
    let state = (runs.clone(), Arc::new(Notify::new()));
    service(Router::new().fallback(any(handler)).with_state(state)).await
}

fn used_up() -> (u16, String, bool) {
    (429, "idempotency_quota_exceeded".to_owned(), true)
}

/// Holds a request at the service until the test ends.
async fn hold(sidecar: &Sidecar, runs: &Runs, request: Ask) {
    let before = runs.count();
    let mut client = sidecar.client(Protocol::Http1).await;
    tokio::spawn(async move { client.send(request).await });
    until("the service has it", || runs.count() > before).await;
}

#[tokio::test]
async fn running_requests_of_a_route_are_limited() {
    let runs = Runs::default();
    let settings = "upstream.connect_timeout = \"300ms\"\n[[routes]]\npath = \"/slow\"\n\
        max_running = 1\n";
    let sidecar = Sidecar::new(counting(&runs).await, settings).await;
    hold(&sidecar, &runs, post("/slow", "k-1", "{}")).await;
    let full = sidecar.send(post("/slow", "k-2", "{}")).await;
    assert_eq!(
        full.problem_and_retry(),
        (503, "upstream_full".to_owned(), true)
    );
    assert!(full.header("retry-after").is_some(), "{full:?}");
    let other = sidecar.send(post("/other", "k-3", "{}")).await;
    assert_eq!(other.text(), "run 2", "another route");
}

const PRINCIPALS: &str = "principals.from = \"header\"\nprincipals.header = \"x-user\"\n";
const FORWARDED: &str = "listener.trust_forwarded = true\n";

/// The settings of one kind of caller, and the header that names the callers.
fn kinds() -> [(&'static str, &'static str, &'static str, [&'static str; 2]); 2] {
    [
        ("principal", PRINCIPALS, "x-user", ["ann", "bob"]),
        // The last address is the one that the trusted proxy saw.
        (
            "address",
            FORWARDED,
            "x-forwarded-for",
            ["198.51.100.7, 192.0.2.1", "192.0.2.1, 198.51.100.7"],
        ),
    ]
}

#[tokio::test]
async fn principals_and_addresses_have_quotas() {
    for (by, settings, header, [first, second]) in kinds() {
        let runs = Runs::default();
        let settings = format!("{settings}limits.{by}_keys = 1\n");
        let sidecar = Sidecar::new(counting(&runs).await, &settings).await;
        let send = async |who: &str, key: &str| {
            let request = with(post("/now", key, "{}"), header, who);
            sidecar.send(request).await
        };
        assert_eq!(send(first, "k-1").await.text(), "run 1", "{by}");
        assert_eq!(
            send(first, "k-2").await.problem_and_retry(),
            used_up(),
            "{by}"
        );
        assert_eq!(send(second, "k-3").await.text(), "run 2", "{by}");
        assert!(send(first, "k-1").await.is_replay(), "{by}");
    }
}

#[tokio::test]
async fn principals_and_addresses_have_quotas_of_bytes() {
    for (by, settings, header, [first, second]) in kinds() {
        let runs = Runs::default();
        let settings = format!("{settings}limits.{by}_stored = \"1B\"\n");
        let sidecar = Sidecar::new(counting(&runs).await, &settings).await;
        let send = async |who: &str, key: &str| {
            let request = with(post("/now", key, "{}"), header, who);
            sidecar.send(request).await
        };
        assert_eq!(send(first, "k-1").await.text(), "run 1", "{by}");
        assert_eq!(
            send(first, "k-2").await.problem_and_retry(),
            used_up(),
            "{by}"
        );
        assert_eq!(send(second, "k-3").await.text(), "run 2", "{by}");
    }
}

#[tokio::test]
async fn principals_and_addresses_have_shares() {
    for (by, settings, header, [first, second]) in kinds() {
        let runs = Runs::default();
        let settings = format!("{settings}limits.requests = 4\nlimits.{by}_share = 25\n");
        let sidecar = Sidecar::new(counting(&runs).await, &settings).await;
        let held = with(post("/slow", "k-1", "{}"), header, first);
        hold(&sidecar, &runs, held).await;
        let full = with(post("/now", "k-2", "{}"), header, first);
        let full = sidecar.send(full).await.problem_and_retry();
        assert_eq!(full, (429, "too_many_requests".to_owned(), true), "{by}");
        let other = with(post("/now", "k-3", "{}"), header, second);
        assert_eq!(sidecar.send(other).await.text(), "run 2", "{by}");
    }
}

#[tokio::test]
async fn principals_and_addresses_have_rates() {
    for (by, settings, header, [first, second]) in kinds() {
        let runs = Runs::default();
        let settings = format!("{settings}limits.{by}_rate = 1\n");
        let sidecar = Sidecar::new(counting(&runs).await, &settings).await;
        let send = async |who: &str| {
            let request = with(plain("GET", "/now", ""), header, who);
            sidecar.send(request).await
        };
        let mut refused = None;
        for _ in 0..40 {
            let answer = send(first).await;
            if answer.status == 429 {
                refused = Some(answer.problem_and_retry());
                break;
            }
        }
        assert_eq!(
            refused,
            Some((429, "rate_limited".to_owned(), true)),
            "{by}"
        );
        assert_eq!(send(second).await.status, 200, "{by}");
    }
}

/// Clients must not choose the address that they count for.
#[tokio::test]
async fn forwarded_address_of_a_client_does_not_count() {
    let runs = Runs::default();
    let sidecar = Sidecar::new(counting(&runs).await, "limits.address_keys = 1\n").await;
    let send = async |address: &str, key: &str| {
        let request = with(post("/now", key, "{}"), "x-forwarded-for", address);
        sidecar.send(request).await
    };
    assert_eq!(send("192.0.2.1", "k-1").await.text(), "run 1");
    assert_eq!(
        send("192.0.2.2", "k-2").await.problem_and_retry(),
        used_up()
    );
}

#[tokio::test]
async fn one_key_of_two_hosts_is_two_keys() {
    let runs = Runs::default();
    let settings = "tenants.from = \"host\"\n";
    let sidecar = Sidecar::new(counting(&runs).await, settings).await;
    let send = async |host: &'static str| {
        let mut request = post("/now", "k-1", "{}");
        let host = HeaderValue::from_static(host);
        request.headers_mut().insert("host", host);
        sidecar.send(request).await
    };
    for (host, run) in [("a.example", "run 1"), ("b.example", "run 2")] {
        assert_eq!(send(host).await.text(), run);
    }
    for (host, run) in [("a.example", "run 1"), ("B.Example", "run 2")] {
        let replay = send(host).await;
        assert_eq!((replay.is_replay(), replay.text()), (true, run), "{host}");
    }
    assert_eq!(runs.count(), 2);
}

/// Only HTTP/2 carries gRPC. A media type alone must not let a request run again.
#[tokio::test]
async fn media_type_does_not_make_a_grpc_call() {
    let runs = Runs::default();
    let sidecar = Sidecar::new(counting(&runs).await, "").await;
    let send = async || {
        let mut request = post("/now", "k-1", "\0\0\0\0\u{2}{}");
        let media = HeaderValue::from_static("application/grpc");
        request.headers_mut().insert("content-type", media);
        sidecar.send(request).await
    };
    assert_eq!(send().await.text(), "run 1");
    let replay = send().await;
    assert_eq!((replay.is_replay(), replay.text()), (true, "run 1"));
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn old_connection_is_closed_after_its_requests() {
    let runs = Runs::default();
    let settings = "limits.connection_age = \"300ms\"\n";
    let sidecar = Sidecar::new(counting(&runs).await, settings).await;
    for protocol in BOTH {
        let mut client = sidecar.client(protocol).await;
        assert_eq!(client.send(plain("GET", "/now", "")).await.status, 200);
        until("the connection ends", || client.is_closed()).await;
    }
}

/// Also if messages pass.
#[tokio::test]
async fn old_tunnel_is_closed() {
    let upstream = service(Router::new().route("/socket", get(crate::upgrades::echo))).await;
    let sidecar = Sidecar::new(upstream, "limits.tunnel_age = \"300ms\"\n").await;
    let url = format!("ws://{}/socket", sidecar.address);
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let mut is_closed = false;
    for _ in 0..200 {
        let sent = socket.send(tungstenite::Message::text("word")).await;
        let next = socket.next().await;
        is_closed = sent.is_err() || !matches!(next, Some(Ok(tungstenite::Message::Text(_))));
        if is_closed {
            break;
        }
        pause(50).await;
    }
    assert!(is_closed, "the tunnel is still open");
}
