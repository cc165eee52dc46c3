//! Refused requests: ambiguous, too large or too slow.

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::any;

use crate::support::*;

/// A service that counts requests and returns their content.
async fn counting(runs: &Runs) -> std::net::SocketAddr {
    let handler = |State(runs): State<Runs>, request: Request| async move {
        runs.begin();
        let path = request.uri().path().to_owned();
        let body = axum::body::to_bytes(request.into_body(), usize::MAX).await;
        format!("{path} {}", body.map_or(0, |body| body.len()))
    };
    service(
        Router::new()
            .fallback(any(handler))
            .with_state(runs.clone()),
    )
    .await
}

/// A request with an ambiguous length is refused, and nothing after it on its connection counts as
/// a request.
#[tokio::test]
async fn request_with_two_lengths_is_refused() {
    let runs = Runs::default();
    let sidecar = Sidecar::new(counting(&runs).await, "").await;
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let length = 5 + smuggled.len();
    let ambiguous = [
        format!(
            "Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"
        ),
        format!(
            "Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n\r\n0\r\n\r\n{smuggled}"
        ),
        format!("Transfer-Encoding: chunked\r\ncontent-length : 5\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello{smuggled}"),
        format!("Content-Length: 5, 6\r\n\r\nhello{smuggled}"),
        format!("Content-Length: +5\r\n\r\nhello{smuggled}"),
        format!("Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello{smuggled}"),
        format!("Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("X-A: b\r\n Content-Length: 5\r\n\r\nhello{smuggled}"),
        format!("X-A: b\r\n\tfolded\r\nContent-Length: 5\r\n\r\nhello{smuggled}"),
        format!("Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        format!("X-A: b\rTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello{smuggled}"),
        format!("X\0A: b\r\nContent-Length: 5\r\n\r\nhello{smuggled}"),
    ];
    for head in ambiguous {
        for key in ["", "Idempotency-Key: k-1\r\n"] {
            let mut raw = sidecar.raw().await;
            raw.try_write(&format!("POST /first HTTP/1.1\r\nHost: a\r\n{key}{head}"))
                .await;
            let all = raw.rest().await;
            assert!(all.starts_with("HTTP/1.1 400"), "{head:?} got {all:?}");
            assert_eq!(all.matches("HTTP/1.1").count(), 1, "{head:?} got {all:?}");
        }
    }
    assert_eq!(runs.count(), 0, "nothing reached the service");
}

/// The same on a used connection, and for pipelined requests.
#[tokio::test]
async fn later_request_with_two_lengths_is_refused() {
    let runs = Runs::default();
    let sidecar = Sidecar::new(counting(&runs).await, "").await;
    let good = "POST /good HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    let bad = "POST /bad HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: \
        chunked\r\n\r\n0\r\n\r\n";
    let mut raw = sidecar.raw().await;
    raw.try_write(good).await;
    raw.read_to("/good 5").await;
    raw.try_write(bad).await;
    assert!(raw.rest().await.starts_with("HTTP/1.1 400"));
    let mut raw = sidecar.raw().await;
    raw.try_write(&format!("{good}{bad}{good}")).await;
    let all = raw.rest().await;
    assert!(
        all.contains("/good 5") && all.contains("HTTP/1.1 400"),
        "{all}"
    );
    assert_eq!(runs.count(), 2, "{all}");
    // A body that looks like an ambiguous request is not scanned.
    let mut raw = sidecar.raw().await;
    let quoted = format!(
        "POST /quoted HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: \
         chunked\r\n\r\n{:x}\r\n{bad}\r\n0\r\n\r\n",
        bad.len()
    );
    raw.try_write(&quoted).await;
    let all = raw.rest().await;
    assert!(
        all.starts_with("HTTP/1.1 200") && all.ends_with(&format!("/quoted {}", bad.len())),
        "{all}"
    );
}

/// The same for an overlong head that was read in one piece with the request before it.
#[tokio::test]
async fn long_request_with_two_lengths_is_refused() {
    let runs = Runs::default();
    let sidecar = Sidecar::new(counting(&runs).await, "").await;
    let bad = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    for kib in [8, 30, 60, 63, 64, 65, 80, 100, 120] {
        let long = "x".repeat(kib * 1024);
        let lines = "\r\n".repeat(kib * 512);
        for head in [
            format!("POST / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n{bad}"),
            format!("{lines}POST / HTTP/1.1\r\nHost: a\r\n{bad}"),
        ] {
            let mut raw = sidecar.raw().await;
            raw.try_write(&head).await;
            let all = raw.rest().await;
            assert!(!all.contains("HTTP/1.1 200"), "{kib} KiB got {all:?}");
        }
    }
    assert_eq!(runs.count(), 0, "nothing reached the service");
}

#[tokio::test]
async fn oversized_body_is_refused_by_the_sidecar() {
    let runs = Runs::default();
    let settings = "listener.max_body = \"64KiB\"\ndefaults.max_body = \"1KiB\"\n";
    let sidecar = Sidecar::new(counting(&runs).await, settings).await;
    for protocol in BOTH {
        let mut client = sidecar.client(protocol).await;
        let keyed = client.send(post("/", "k-1", "x".repeat(2000))).await;
        assert_eq!(
            keyed.problem_and_retry(),
            (413, "idempotency_body_too_large".to_owned(), false)
        );
        let mut client = sidecar.client(protocol).await;
        let passed = client.send(plain("POST", "/", "x".repeat(2000))).await;
        assert_eq!(passed.text(), "/ 2000");
        let mut client = sidecar.client(protocol).await;
        let large = client.send(plain("POST", "/", "x".repeat(70_000))).await;
        assert_eq!(
            large.problem_and_retry(),
            (413, "request_too_large".to_owned(), false)
        );
    }
    assert_eq!(runs.count(), 2);
    // A body of unknown length.
    let mut raw = sidecar.raw().await;
    raw.try_write("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    let piece = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    for _ in 0..5 {
        raw.try_write(&piece).await;
    }
    let all = raw.rest().await;
    assert!(all.starts_with("HTTP/1.1 413"), "{all}");
}

#[tokio::test]
async fn oversized_head_is_refused() {
    let runs = Runs::default();
    let sidecar = Sidecar::new(counting(&runs).await, "listener.max_head = \"8KiB\"\n").await;
    let mut raw = sidecar.raw().await;
    raw.try_write(&format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX-A: {}\r\n\r\n",
        "x".repeat(20_000)
    ))
    .await;
    let all = raw.rest().await;
    assert!(all.is_empty() || all.starts_with("HTTP/1.1 431"), "{all}");
    let mut raw = sidecar.raw().await;
    let many: String = (0..200)
        .map(|number| format!("X-{number}: 1\r\n"))
        .collect();
    raw.try_write(&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"))
        .await;
    let all = raw.rest().await;
    assert!(all.starts_with("HTTP/1.1 431"), "{all}");
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn slow_clients_are_cut_off() {
    let runs = Runs::default();
    let settings = "listener.head_timeout = \"300ms\"\nlistener.body_timeout = \"300ms\"\n";
    let sidecar = Sidecar::new(counting(&runs).await, settings).await;
    // No bytes, half an HTTP/2 preface and half a head all lead to a closed connection.
    for words in ["", "PRI * HT", "GET / HTTP/1.1\r\nHo"] {
        let mut raw = sidecar.raw().await;
        raw.try_write(words).await;
        let all = raw.rest().await;
        assert!(
            all.is_empty() || all.starts_with("HTTP/1.1 408"),
            "{words:?} got {all:?}"
        );
    }
    // Half a body, with a key and without.
    for key in ["", "Idempotency-Key: k-1\r\n"] {
        let mut raw = sidecar.raw().await;
        raw.try_write(&format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{key}Content-Length: 10\r\n\r\nhalf"
        ))
        .await;
        let all = raw.rest().await;
        assert!(all.starts_with("HTTP/1.1 4"), "{key:?} got {all:?}");
    }
}

#[tokio::test]
async fn unforwardable_requests_are_refused() {
    let runs = Runs::default();
    let sidecar = Sidecar::new(counting(&runs).await, "").await;
    let mut raw = sidecar.raw().await;
    raw.try_write("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
        .await;
    assert!(raw.rest().await.starts_with("HTTP/1.1 400"));
    assert_eq!(sidecar.send(plain("TRACE", "/a", "")).await.status, 400);
    assert_eq!(
        sidecar
            .send(plain("GET", "/_semel/healthz", ""))
            .await
            .text(),
        "ok\n"
    );
    assert_eq!(
        sidecar.send(plain("GET", "/_semel/other", "")).await.status,
        404
    );
    assert_eq!(runs.count(), 0);
    assert_eq!(
        sidecar.send(plain("GET", "/_semelx", "")).await.text(),
        "/_semelx 0"
    );
}
