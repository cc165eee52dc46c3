//! Limits of one caller: requests, memory, connections and time.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::{any, get};
use tokio::io::AsyncReadExt as _;
use tokio::sync::Notify;

use crate::frames::FrameClient;
use crate::support::*;

/// A service that answers on a signal, and `/now` at once.
async fn held_back(runs: &Runs, gate: &Arc<Notify>) -> std::net::SocketAddr {
    let handler = |State((runs, gate)): State<(Runs, Arc<Notify>)>, request: Request| async move {
        let path = request.uri().path().to_owned();
        let body = axum::body::to_bytes(request.into_body(), usize::MAX).await;
        runs.begin();
        if !path.starts_with("/now") {
            gate.notified().await;
        }
        format!("{path} {}", body.map_or(0, |body| body.len()))
    };
    let state = (runs.clone(), Arc::clone(gate));
    service(Router::new().fallback(any(handler)).with_state(state)).await
}

const TENANTS: &str = "tenants.from = \"header\"\ntenants.header = \"x-tenant\"\n";

fn of(
    tenant: &str,
    request: axum::http::Request<axum::body::Body>,
) -> axum::http::Request<axum::body::Body> {
    with(request, "x-tenant", tenant)
}

/// Sends requests whose clients disconnect at once.
async fn abandon(sidecar: &Sidecar, tenant: &str, count: usize) {
    for number in 0..count {
        let mut raw = sidecar.raw().await;
        raw.try_write(&format!(
            "POST /slow HTTP/1.1\r\nHost: a\r\nX-Tenant: {tenant}\r\nIdempotency-Key: \
             {tenant}-{number}\r\nContent-Length: 0\r\n\r\n"
        ))
        .await;
        pause(5).await;
    }
}

#[tokio::test]
async fn abandoned_requests_leave_room_for_other_tenants() {
    let (runs, gate) = (Runs::default(), Arc::default());
    let settings = format!("{TENANTS}limits.running = 8\nupstream.connect_timeout = \"300ms\"\n");
    let sidecar = Sidecar::new(held_back(&runs, &gate).await, &settings).await;
    abandon(&sidecar, "flood", 40).await;
    until("the service has some", || runs.count() >= 4).await;
    let other = sidecar.send(of("other", post("/now", "k-1", "{}"))).await;
    assert_eq!(other.status, 200, "{other:?}");
    let more = sidecar.send(of("flood", post("/now", "k-1", "{}"))).await;
    assert_eq!(
        more.problem_and_retry(),
        (429, "too_many_requests".to_owned(), true)
    );
    assert!(more.header("retry-after").is_some());
}

#[tokio::test]
async fn waiting_callers_leave_room_for_other_tenants() {
    let (runs, gate) = (Runs::default(), Arc::default());
    let settings = format!("{TENANTS}limits.waiting = 8\n");
    let sidecar = Sidecar::new(held_back(&runs, &gate).await, &settings).await;
    let mut all = Vec::new();
    let mut begin = async |tenant: &'static str, count: usize| {
        for _ in 0..count {
            let mut client = sidecar.client(Protocol::Http1).await;
            let request = of(tenant, post("/slow", "k-1", "{}"));
            all.push(tokio::spawn(async move { client.send(request).await }));
            pause(20).await;
        }
    };
    begin("flood", 12).await;
    begin("other", 1).await;
    until("both run", || runs.count() == 2).await;
    let waits = sidecar.send(of("other", post("/slow", "k-1", "{}")));
    let refused = tokio::time::timeout(Duration::from_millis(500), waits).await;
    assert!(refused.is_err(), "{refused:?}");
    let waits = sidecar.send(of("flood", post("/slow", "k-1", "{}"))).await;
    assert_eq!(
        waits.problem_and_retry(),
        (429, "idempotency_too_many_waiters".to_owned(), true)
    );
}

#[tokio::test]
async fn buffered_bodies_leave_room_for_other_tenants() {
    let (runs, gate) = (Runs::default(), Arc::default());
    let settings = format!("{TENANTS}limits.buffered = \"1MiB\"\n");
    let sidecar = Sidecar::new(held_back(&runs, &gate).await, &settings).await;
    let big = || format!("\"{}\"", "x".repeat(200 * 1024));
    for number in 0..2 {
        let mut client = sidecar.client(Protocol::Http1).await;
        let request = of("flood", post("/slow", &format!("k-{number}"), big()));
        tokio::spawn(async move { client.send(request).await });
    }
    until("both run", || runs.count() == 2).await;
    let more = sidecar.send(of("flood", post("/slow", "k-9", big()))).await;
    assert_eq!(
        more.problem_and_retry(),
        (503, "idempotency_no_room".to_owned(), true)
    );
    let other = sidecar.send(of("other", post("/now", "k-1", big()))).await;
    assert_eq!(other.status, 200, "{other:?}");
    gate.notify_waiters();
    pause(200).await;
    let again = sidecar.send(of("flood", post("/now", "k-9", big()))).await;
    assert_eq!(again.status, 200, "{again:?}");
}

#[tokio::test]
async fn idle_http2_connection_is_closed() {
    let upstream = service(Router::new().route("/", get(|| async { "here" }))).await;
    let sidecar = Sidecar::new(upstream, "listener.head_timeout = \"300ms\"\n").await;
    let mut client = sidecar.client(Protocol::Http2).await;
    assert_eq!(client.send(plain("GET", "/", "")).await.text(), "here");
    pause(1500).await;
    assert!(client.is_closed(), "it is still open");
}

#[tokio::test]
async fn full_listener_answers_health_probes() {
    let upstream = service(Router::new().route("/", get(|| async { "here" }))).await;
    let sidecar = Sidecar::new(upstream, "limits.connections = 2\n").await;
    let _held = [sidecar.raw().await, sidecar.raw().await];
    pause(100).await;
    let asked = sidecar.send(plain("GET", "/_semel/healthz", ""));
    let health = tokio::time::timeout(Duration::from_secs(30), asked).await;
    assert_eq!(health.expect("an answer").status, 200);
    let other = sidecar.send(plain("GET", "/", "")).await;
    assert_eq!(
        other.problem_and_retry(),
        (503, "overloaded".to_owned(), true)
    );
}

#[tokio::test]
async fn trickling_body_is_cut_off() {
    let (runs, gate) = (Runs::default(), Arc::default());
    let settings = "listener.body_timeout = \"300ms\"\n";
    let sidecar = Sidecar::new(held_back(&runs, &gate).await, settings).await;
    let mut raw = sidecar.raw().await;
    raw.try_write("POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
        .await;
    for _ in 0..30 {
        raw.try_write("x").await;
        pause(100).await;
    }
    let mut byte = [0; 1];
    let ended = tokio::time::timeout(Duration::from_millis(200), raw.stream.read(&mut byte)).await;
    assert!(ended.is_ok(), "the connection is still open");
}

/// Says when it is dropped.
struct DropSignal(Arc<Notify>);

impl Drop for DropSignal {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// A body of 64 MiB in pieces, and a signal for its end.
fn large_body(ended: &Arc<Notify>) -> axum::body::Body {
    let signal = DropSignal(Arc::clone(ended));
    let pieces = futures_util::stream::repeat_with(move || {
        let _kept = &signal;
        Ok::<_, std::io::Error>(bytes::Bytes::from(vec![b'x'; 64 * 1024]))
    });
    axum::body::Body::from_stream(futures_util::StreamExt::take(pieces, 1024))
}

#[tokio::test]
async fn unread_response_is_cut_off() {
    let ended = Arc::new(Notify::new());
    let signal = Arc::clone(&ended);
    let router = Router::new().route("/", get(|| async move { large_body(&signal) }));
    let settings = "listener.body_timeout = \"300ms\"\n";
    let sidecar = Sidecar::new(service(router).await, settings).await;
    let mut raw = sidecar.raw().await;
    raw.try_write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    // The sidecar gives up on the client, and so on the service's response.
    let cut = tokio::time::timeout(Duration::from_secs(60), ended.notified()).await;
    assert!(cut.is_ok(), "the response is still being sent");
    // The client still gets what the machine has buffered; then the connection ends.
    let mut all = Vec::new();
    let read = raw.stream.read_to_end(&mut all);
    let read = tokio::time::timeout(Duration::from_secs(60), read).await;
    assert!(read.is_ok(), "the connection is still open");
    assert!(all.len() < 60 * 1024 * 1024, "{} bytes came", all.len());
}

/// The same on HTTP/2, where the client answers pings and opens no window.
#[tokio::test]
async fn unread_http2_response_is_cut_off() {
    let ended = Arc::new(Notify::new());
    let signal = Arc::clone(&ended);
    let router = Router::new().route("/", get(|| async move { large_body(&signal) }));
    let settings = "listener.body_timeout = \"300ms\"\n";
    let sidecar = Sidecar::new(service(router).await, settings).await;
    let mut client = FrameClient::connect(sidecar.address, 0).await;
    client.get().await;
    let cut = tokio::time::timeout(Duration::from_secs(30), ended.notified()).await;
    assert!(cut.is_ok(), "the response is still being sent");
    // Other requests of the connection go on.
    until("the stream is reset", || client.resets() == 1).await;
    assert!(!client.is_closed());
}

/// The end of a response that fits into no window must not keep the connection open.
#[tokio::test]
async fn unread_end_of_a_response_is_cut_off() {
    let upstream = service(Router::new().route("/", get(|| async { "here" }))).await;
    let settings = "listener.body_timeout = \"300ms\"\nlistener.head_timeout = \"300ms\"\n";
    let sidecar = Sidecar::new(upstream, settings).await;
    let mut client = FrameClient::connect(sidecar.address, 1).await;
    client.get().await;
    until("the connection ends", || client.is_closed()).await;
}

#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let (runs, gate) = (Runs::default(), Arc::default());
    let sidecar = Sidecar::new(held_back(&runs, &gate).await, "").await;
    let mut client = FrameClient::connect(sidecar.address, 65_535).await;
    let mut sent = 0;
    while sent < 400 && !client.is_closed() {
        let mut streams = Vec::new();
        for _ in 0..8 {
            streams.push(client.get().await);
        }
        sent += streams.len();
        // Each request reaches the service before it is reset.
        until("the service has all", || {
            runs.count() >= sent || client.is_closed()
        })
        .await;
        for stream in streams {
            client.reset(stream).await;
        }
    }
    assert!(client.is_closed(), "it is still open after {sent} resets");
    let other = sidecar.send(plain("GET", "/now", "")).await;
    assert_eq!(other.status, 200, "{other:?}");
}

#[tokio::test]
async fn idle_tunnel_is_closed() {
    let upstream = service(Router::new().route("/socket", get(crate::upgrades::echo))).await;
    let sidecar = Sidecar::new(upstream, "limits.tunnel_idle = \"300ms\"\n").await;
    let url = format!("ws://{}/socket", sidecar.address);
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    pause(1500).await;
    let next = futures_util::StreamExt::next(&mut socket);
    let next = tokio::time::timeout(Duration::from_millis(500), next).await;
    assert!(next.is_ok(), "the tunnel is still open");
}

/// A slow service, except for `/now`.
async fn working() -> std::net::SocketAddr {
    let handler = |request: Request| async move {
        if request.uri().path() != "/now" {
            pause(200).await;
        }
        "done"
    };
    service(Router::new().fallback(any(handler))).await
}

/// The median latency of a tenant's requests in milliseconds, and the number of failed ones.
#[expect(clippy::disallowed_methods, reason = "real sockets run on real time")]
async fn fares(sidecar: &Sidecar, phase: &str) -> (u128, usize) {
    let mut client = sidecar.client(Protocol::Http1).await;
    let (mut times, mut refused) = (Vec::new(), 0);
    for number in 0..20 {
        let began = std::time::Instant::now();
        let request = post("/now", &format!("{phase}-{number}"), "{}");
        let answer = client.send(of("other", request)).await;
        times.push(began.elapsed().as_millis());
        refused += usize::from(answer.status != 200);
    }
    times.sort_unstable();
    (times[10], refused)
}

/// The small version of `cargo xtask bench flood`.
#[tokio::test(flavor = "multi_thread")]
async fn flood_does_not_slow_other_tenants() {
    let mut fared = Vec::new();
    for share in [50, 100] {
        let settings = format!(
            "{TENANTS}limits.running = 8\nlimits.tenant_share = {share}\nupstream.connect_timeout \
             = \"400ms\"\n"
        );
        let sidecar = Arc::new(Sidecar::new(working().await, &settings).await);
        let quiet = fares(&sidecar, "quiet").await;
        assert_eq!(quiet.1, 0, "nobody else is there");
        let flooding = Arc::clone(&sidecar);
        let flood = tokio::spawn(async move { abandon(&flooding, "flood", 2000).await });
        pause(300).await;
        let loud = fares(&sidecar, "loud").await;
        flood.abort();
        fared.push((quiet.0, loud.0, loud.1));
    }
    let [(quiet, loud, refused), (_, unbounded, turned_away)] = fared[..] else {
        unreachable!("both were tried")
    };
    assert_eq!(refused, 0, "{fared:?}");
    assert!(loud <= 3 * quiet.max(20), "{fared:?}");
    // Without a share, the flood uses everything, so the share makes the difference.
    assert!(turned_away > 0 || unbounded > 3 * loud.max(20), "{fared:?}");
}
