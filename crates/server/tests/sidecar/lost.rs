//! Lost responses of the service, and what they mean for the key.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::any;
use semel::core::State as Stands;
use semel_testkit::private::{RedisServer, free_port};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::*;

const HOLD: &str = "defaults.crash = \"hold\"\nupstream.response_timeout = \"300ms\"\n";
const TAKEOVER: &str = "upstream.response_timeout = \"300ms\"\n";

/// A service that never answers the first request, but all later ones.
async fn slow_at_first(runs: &Runs) -> std::net::SocketAddr {
    let handler = |State(runs): State<Runs>| async move {
        match runs.begin() {
            1 => std::future::pending().await,
            run => format!("run {run}"),
        }
    };
    service(
        Router::new()
            .fallback(any(handler))
            .with_state(runs.clone()),
    )
    .await
}

#[tokio::test]
async fn timeout_is_in_doubt_under_hold() {
    let runs = Runs::default();
    let sidecar = Sidecar::new(slow_at_first(&runs).await, HOLD).await;
    let first = sidecar.send(post("/", "k-1", "{}")).await;
    assert_eq!(
        first.problem_and_retry(),
        (504, "upstream_timeout".to_owned(), false)
    );
    assert!(
        first.json()["detail"]
            .as_str()
            .unwrap()
            .contains("in doubt")
    );
    assert_eq!(sidecar.keys(Stands::InDoubt).await, 1);
    let again = sidecar.send(post("/", "k-1", "{}")).await;
    assert_eq!(
        again.problem_and_retry(),
        (409, "idempotency_in_doubt".to_owned(), false)
    );
    assert_eq!(runs.count(), 1, "never run again on its own");
}

#[tokio::test]
async fn timeout_runs_again_under_takeover() {
    let runs = Runs::default();
    let sidecar = Sidecar::new(slow_at_first(&runs).await, TAKEOVER).await;
    let first = sidecar.send(post("/", "k-1", "{}")).await;
    assert_eq!(
        first.problem_and_retry(),
        (504, "upstream_timeout".to_owned(), true)
    );
    assert!(first.json()["detail"].as_str().unwrap().contains("unknown"));
    let again = sidecar.send(post("/", "k-1", "{}")).await;
    assert_eq!(again.text(), "run 2");
    let replay = sidecar.send(post("/", "k-1", "{}")).await;
    assert!(replay.is_replay());
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn lost_answer_can_be_in_doubt_under_takeover() {
    let runs = Runs::default();
    let settings = format!("{TAKEOVER}defaults.lost_answer = \"doubt\"\n");
    let sidecar = Sidecar::new(slow_at_first(&runs).await, &settings).await;
    let first = sidecar.send(post("/", "k-1", "{}")).await;
    assert_eq!(
        first.problem_and_retry(),
        (504, "upstream_timeout".to_owned(), false)
    );
    assert_eq!(sidecar.keys(Stands::InDoubt).await, 1);
    let again = sidecar.send(post("/", "k-1", "{}")).await;
    assert_eq!(again.problem_and_retry().1, "idempotency_in_doubt");
    assert_eq!(runs.count(), 1);
}

/// The problem document predicts what a retry does.
#[tokio::test]
#[ignore = "needs servers"]
async fn observe_mode_calls_a_lost_answer_unsafe() {
    let runs = Runs::default();
    let settings = format!("{HOLD}defaults.mode = \"observe\"\n");
    let sidecar = Sidecar::new(slow_at_first(&runs).await, &settings).await;
    let first = sidecar.send(post("/", "k-1", "{}")).await;
    assert_eq!(
        first.problem_and_retry(),
        (504, "upstream_timeout".to_owned(), false)
    );
    assert!(first.json()["detail"].as_str().unwrap().contains("twice"));
    assert_eq!(sidecar.send(post("/", "k-1", "{}")).await.text(), "run 2");

    let runs = Runs::default();
    let upstream = format!("http://{}", slow_at_first(&runs).await);
    let redis = RedisServer::start(&[]).await;
    let settings = format!("{HOLD}defaults.store_down = \"open\"\n");
    let sidecar = Sidecar::on(&redis.url(), &upstream, &settings).await;
    drop(redis);
    let first = sidecar.send(post("/", "k-1", "{}")).await;
    assert_eq!(
        first.problem_and_retry(),
        (504, "upstream_timeout".to_owned(), false)
    );
    assert!(first.json()["detail"].as_str().unwrap().contains("twice"));
    assert_eq!(sidecar.send(post("/", "k-1", "{}")).await.text(), "run 2");
}

#[tokio::test]
async fn lost_answer_is_never_stored_as_a_failure() {
    let runs = Runs::default();
    let settings = format!("{TAKEOVER}defaults.profile = \"stripe\"\n");
    let sidecar = Sidecar::new(slow_at_first(&runs).await, &settings).await;
    assert_eq!(sidecar.send(post("/", "k-1", "{}")).await.status, 504);
    let again = sidecar.send(post("/", "k-1", "{}")).await;
    assert_eq!((again.text(), again.is_replay()), ("run 2", false));
}

#[tokio::test]
async fn lost_answer_without_a_key_is_not_retryable() {
    let runs = Runs::default();
    let sidecar = Sidecar::new(slow_at_first(&runs).await, TAKEOVER).await;
    let answer = sidecar.send(plain("POST", "/", "{}")).await;
    assert_eq!(
        answer.problem_and_retry(),
        (504, "upstream_timeout".to_owned(), false)
    );
    assert!(answer.json()["detail"].as_str().unwrap().contains("twice"));
}

#[tokio::test]
async fn unreachable_service_frees_the_key() {
    for settings in [HOLD, TAKEOVER] {
        let port = free_port();
        let sidecar = Sidecar::on("memory://", &format!("http://127.0.0.1:{port}"), settings).await;
        let first = sidecar.send(post("/", "k-1", "{}")).await;
        assert_eq!(
            first.problem_and_retry(),
            (502, "upstream_unreachable".to_owned(), true)
        );
        assert!(first.json()["detail"].as_str().unwrap().contains("safe"));
        assert_eq!(sidecar.keys(Stands::InDoubt).await, 0);
        // Now the service runs, and the same key runs.
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port))
            .await
            .unwrap();
        let router = Router::new().fallback(any(|| async { "done" }));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let again = sidecar.send(post("/", "k-1", "{}")).await;
        assert_eq!((again.text(), again.is_replay()), ("done", false));
    }
}

#[tokio::test]
async fn unresolvable_host_frees_the_key() {
    let sidecar = Sidecar::on("memory://", "http://no-such-host.invalid:1", HOLD).await;
    let first = sidecar.send(post("/", "k-1", "{}")).await;
    assert_eq!(
        first.problem_and_retry(),
        (502, "upstream_unreachable".to_owned(), true)
    );
    assert_eq!(sidecar.keys(Stands::InDoubt).await, 0);
}

/// A service that reads a request, writes `words`, and closes the connection.
async fn hangs_up(words: &'static str, runs: &Runs) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("as set up");
    let address = listener.local_addr().expect("as set up");
    let runs = runs.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("as set up");
            let mut seen = Vec::new();
            let mut buffer = [0; 1024];
            while !seen.ends_with(b"{}") {
                match stream.read(&mut buffer).await {
                    Ok(count) if count > 0 => seen.extend_from_slice(&buffer[..count]),
                    _ => break,
                }
            }
            if seen.ends_with(b"{}") {
                runs.begin();
            }
            let _ = stream.write_all(words.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    address
}

#[tokio::test]
async fn crash_of_the_service_has_an_unknown_outcome() {
    let halves = [
        ("", "upstream_broken"),
        ("HTTP/1.1 200 OK\r\nContent-", "upstream_broken"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
            "idempotency_answer_broken",
        ),
    ];
    for (words, code) in halves {
        let runs = Runs::default();
        let sidecar = Sidecar::new(hangs_up(words, &runs).await, HOLD).await;
        let first = sidecar.send(post("/", "k-1", "{}")).await;
        let (status, said, _) = first.problem_and_retry();
        assert_eq!((status, said.as_str()), (502, code), "{words:?}");
        assert_eq!(sidecar.keys(Stands::InDoubt).await, 1, "{words:?}");
        let again = sidecar.send(post("/", "k-1", "{}")).await;
        assert_eq!(again.problem_and_retry().1, "idempotency_in_doubt");
        assert_eq!(runs.count(), 1, "{words:?}");
    }
}

#[tokio::test]
async fn truncated_response_can_be_in_doubt() {
    let runs = Runs::default();
    let words = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    let settings = format!("{TAKEOVER}defaults.lost_answer = \"doubt\"\n");
    let sidecar = Sidecar::new(hangs_up(words, &runs).await, &settings).await;
    let first = sidecar.send(post("/", "k-1", "{}")).await;
    assert_eq!(first.problem_and_retry().1, "idempotency_answer_broken");
    assert_eq!(sidecar.keys(Stands::InDoubt).await, 1);
    let again = sidecar.send(post("/", "k-1", "{}")).await;
    assert_eq!(again.problem_and_retry().1, "idempotency_in_doubt");
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn closed_idle_connection_causes_no_error() {
    // Answers one request per connection and closes it without announcing this.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .await;
        }
    });
    let sidecar = Sidecar::new(upstream, HOLD).await;
    for number in 0..20 {
        let answer = sidecar.send(post("/", &format!("k-{number}"), "{}")).await;
        assert_eq!(answer.text(), "ok", "{number}");
        pause(20).await;
    }
    assert_eq!(sidecar.keys(Stands::InDoubt).await, 0);
}

#[tokio::test]
async fn disconnected_client_does_not_stop_the_request() {
    let runs = Runs::default();
    let handler = |State(runs): State<Runs>| async move {
        let run = runs.begin();
        pause(300).await;
        Response::new(Body::from(format!("run {run}")))
    };
    let upstream = service(
        Router::new()
            .fallback(any(handler))
            .with_state(runs.clone()),
    )
    .await;
    let sidecar = Sidecar::new(upstream, "").await;
    let mut raw = sidecar.raw().await;
    raw.try_write(
        "POST / HTTP/1.1\r\nHost: shop.test\r\nContent-Type: \
     application/json\r\nIdempotency-Key: k-1\r\nContent-Length: 2\r\n\r\n{}",
    )
    .await;
    until("the service is asked", || runs.count() == 1).await;
    drop(raw);
    let again = sidecar.send(post("/", "k-1", "{}")).await;
    assert_eq!((again.text(), again.is_replay()), ("run 1", true));
    assert_eq!(runs.count(), 1);
}

/// P25: a caller who is told that nothing was done might run the operation in another way.
#[tokio::test]
#[ignore = "needs servers"]
async fn unreadable_record_is_reported_and_nothing_runs() {
    let redis = RedisServer::start(&[]).await;
    let runs = Runs::default();
    let count = |State(runs): State<Runs>| async move { format!("run {}", runs.begin()) };
    let router = Router::new().fallback(any(count)).with_state(runs.clone());
    let upstream = format!("http://{}", service(router).await);
    let settings = "defaults.store_down = \"open\"\n";
    let one = Sidecar::on(&redis.url(), &upstream, settings).await;
    // The first sidecar may have the answer in its cache.
    let other = Sidecar::on(&redis.url(), &upstream, settings).await;
    assert_eq!(one.send(post("/", "k-1", "{}")).await.text(), "run 1");
    // The version byte of a record.
    let script = "local n = 0 for _, key in ipairs(redis.call('KEYS', 'semel:*')) do \
        if redis.call('TYPE', key).ok == 'string' then redis.call('SETRANGE', key, 0, 'c') n = n + 1 end end return n";
    assert_ne!(redis.ask(&["EVAL", script, "0"]), "0");
    for _ in 0..2 {
        let told = other.send(post("/", "k-1", "{}")).await;
        let expected = (500, "idempotency_record_unreadable".to_owned(), false);
        assert_eq!(told.problem_and_retry(), expected);
        let detail = told.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("not known"), "{detail}");
    }
    assert_eq!(runs.count(), 1);
    assert_eq!(other.send(post("/", "k-2", "{}")).await.text(), "run 2");
}
