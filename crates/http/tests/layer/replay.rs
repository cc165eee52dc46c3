//! A replay is the first answer again: status, kept headers, body.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse as _;
use axum::routing::post as on_post;
use semel::http::Route;

use crate::support::*;

/// Every byte there is, so that nothing of it could be mended on the way.
fn all_bytes() -> Vec<u8> {
    (0..=255).collect()
}

fn charges(runs: &Runs) -> Router {
    let runs = runs.clone();
    Router::new().route(
        "/charges",
        on_post(move || async move {
            let n = runs.begin();
            let headers = [
                (header::LOCATION, format!("/charges/{n}")),
                (header::ETAG, format!("\"{n}\"")),
                (header::LINK, "<a>; rel=next".to_owned()),
                (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
                (header::SET_COOKIE, "session=secret".to_owned()),
                (header::WWW_AUTHENTICATE, "Basic".to_owned()),
                (header::CONNECTION, "x-hop".to_owned()),
                (header::ACCESS_CONTROL_ALLOW_ORIGIN, "https://a".to_owned()),
            ];
            let mut response = (StatusCode::CREATED, headers, all_bytes()).into_response();
            let headers = response.headers_mut();
            headers.append(header::LINK, HeaderValue::from_static("<b>; rel=last"));
            headers.insert("x-charge-id", n.into());
            headers.insert("x-hop", 1.into());
            response
        }),
    )
}

#[tokio::test]
async fn a_replay_is_byte_equal_over_http_1_and_http_2() {
    for first_on in BOTH {
        let runs = Runs::default();
        let rig = Rig::new(charges(&runs)).await;
        let first = rig
            .client(first_on)
            .await
            .send(post("/charges", "k", "{}"))
            .await;
        assert!(!first.is_replay());
        assert_eq!(first.header("set-cookie"), Some("session=secret"));
        for protocol in BOTH {
            let mut client = rig.client(protocol).await;
            // Twice on one connection: the second comes from the local copy.
            for _ in 0..2 {
                let replay = client.send(post("/charges", "k", "{}")).await;
                assert!(replay.is_replay());
                assert_eq!((replay.status, &replay.body), (first.status, &first.body));
                assert_eq!(replay.body, all_bytes());
                for name in ["location", "etag", "link", "content-type"] {
                    let all = |answer: &Answer| -> Vec<_> {
                        answer.headers.get_all(name).iter().cloned().collect()
                    };
                    assert_eq!(all(&replay), all(&first), "{name}");
                }
                assert_eq!(replay.headers.get_all("link").iter().count(), 2);
            }
        }
        assert_eq!(runs.begun(), 1);
    }
}

#[tokio::test]
async fn replay_is_marked_with_the_original_time() {
    let rig = Rig::new(charges(&Runs::default())).await;
    rig.send(post("/charges", "k", "{}")).await;
    let replay = rig.send(post("/charges", "k", "{}")).await;
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    assert_eq!(replay.header("cache-control"), Some("no-store"));
    let at = replay.header("x-original-request-time").unwrap();
    assert!(
        at.starts_with("20") && at.ends_with('Z') && at.len() == 20,
        "{at}"
    );
    assert!(replay.header("date").is_some());
}

#[tokio::test]
async fn connection_and_session_headers_are_never_stored() {
    let route = Route::new().keep_header("x-charge-id").keep_header("x-hop");
    let rig = Rig::with(route, charges(&Runs::default())).await;
    rig.send(post("/charges", "k", "{}")).await;
    let replay = rig.send(post("/charges", "k", "{}")).await;
    assert_eq!(replay.header("x-charge-id"), Some("1"));
    for name in [
        "set-cookie",
        "www-authenticate",
        "connection",
        "x-hop",
        "access-control-allow-origin",
    ] {
        assert_eq!(replay.header(name), None, "{name}");
    }
}

#[tokio::test]
async fn another_process_replays_the_response() {
    use semel_core::{MemoryConfig, MemoryStore};
    let runs = Runs::default();
    let clock = semel::tokio_env().clock;
    let store = std::sync::Arc::new(MemoryStore::new(MemoryConfig::default(), clock));
    let mut answers = Vec::new();
    for _ in 0..2 {
        let semel = semel::Semel::builder()
            .open_on(store.clone())
            .await
            .unwrap();
        let address = serve(charges(&runs).layer(semel.http())).await;
        let mut client = Client::connect(address, Protocol::Http1).await;
        answers.push(client.send(post("/charges", "k", "{}")).await);
    }
    assert_eq!(runs.begun(), 1);
    assert!(answers[1].is_replay());
    assert_eq!(answers[0].body, answers[1].body);
}

/// Answers with the status in the path.
fn statuses(runs: &Runs) -> Router {
    let runs = runs.clone();
    let handler = move |axum::extract::Path(status): axum::extract::Path<u16>| async move {
        runs.begin();
        StatusCode::from_u16(status).expect("a status")
    };
    Router::new().route("/{status}", on_post(handler))
}

#[tokio::test]
async fn which_statuses_are_kept_and_which_free_the_key() {
    let kept = [200, 201, 202, 204, 303, 307, 400, 402, 403, 404, 410, 422];
    let freed = [401, 407, 408, 409, 425, 429, 500, 502, 503, 504];
    for (statuses_of, times) in [(&kept[..], 1), (&freed[..], 2)] {
        for &status in statuses_of {
            let runs = Runs::default();
            let rig = Rig::new(statuses(&runs)).await;
            for _ in 0..2 {
                let request = post(&format!("/{status}"), "k", "{}");
                let answer = rig.send(with(request, "authorization", "alice")).await;
                assert_eq!(answer.status, status);
            }
            assert_eq!(runs.begun(), times, "{status}");
        }
    }
}

#[tokio::test]
async fn an_answer_without_a_body_is_replayed_without_one() {
    for protocol in BOTH {
        let rig = Rig::new(statuses(&Runs::default())).await;
        let mut client = rig.client(protocol).await;
        for _ in 0..2 {
            let answer = client.send(post("/204", "k", Body::empty())).await;
            assert_eq!(answer.status, StatusCode::NO_CONTENT);
            assert!(answer.body.is_empty());
        }
    }
}

#[tokio::test]
async fn oversized_headers_are_left_out_and_the_replay_says_so() {
    let runs = Runs::default();
    let counted = runs.clone();
    let handler = move || async move {
        counted.begin();
        (
            [(header::LOCATION, format!("/{}", "x".repeat(20_000)))],
            "done",
        )
    };
    let rig = Rig::new(Router::new().route("/", on_post(handler))).await;
    let mut client = rig.client(Protocol::Http1).await;
    let first = client.send(post("/", "k", "{}")).await;
    assert!(first.header("location").is_some());
    let replay = client.send(post("/", "k", "{}")).await;
    assert_eq!((replay.status, replay.text()), (StatusCode::OK, "done"));
    assert_eq!(replay.header("idempotent-not-kept"), Some("headers"));
    assert_eq!(runs.begun(), 1);
}
