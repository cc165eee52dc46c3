//! Profile `Repeatable`, line by line as Azure Communication Services publish it for *Repeatable
//! Requests Version 1.0*.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use semel::http::{Profile, Route};
use semel_httpclient::imf_fixdate;

use crate::support::*;

const ID: &str = "9b2b8b0e-79b0-4cc3-98c4-dc0c0c07398f";
const OTHER: &str = "1c4f0a3d-2f6e-4a51-8a53-0d9f3b7e6c21";

fn ask(id: Option<&str>, first_sent: Option<&str>, body: &'static str) -> Request<Body> {
    let mut request = without_key(post("/", "", body));
    if let Some(id) = id {
        request = with(request, "repeatability-request-id", id);
    }
    if let Some(first_sent) = first_sent {
        request = with(request, "repeatability-first-sent", first_sent);
    }
    request
}

async fn rig(router: Router) -> Rig {
    let window = Duration::from_secs(5 * 60);
    let route = Route::new().profile(Profile::Repeatable).key_age(window);
    Rig::with(route, router).await
}

fn told(answer: &Answer) -> (u16, Option<&str>) {
    (
        answer.status.as_u16(),
        answer.header("repeatability-result"),
    )
}

#[tokio::test]
async fn a_new_request_is_accepted_and_so_is_its_repetition() {
    for protocol in BOTH {
        let runs = Runs::default();
        let rig = rig(counting(&runs)).await;
        let mut client = rig.client(protocol).await;
        let sent = imf_fixdate(now());
        for is_replay in [false, true] {
            let answer = client.send(ask(Some(ID), Some(&sent), "{}")).await;
            assert_eq!(told(&answer), (200, Some("accepted")));
            assert_eq!((answer.text(), answer.is_replay()), ("1", is_replay));
        }
        assert_eq!(runs.begun(), 1);
    }
}

#[tokio::test]
async fn malformed_headers_are_rejected() {
    let runs = Runs::default();
    let rig = rig(counting(&runs)).await;
    let sent = imf_fixdate(now());
    for (id, first_sent) in [
        (Some(ID), Some("soon")),
        (Some(ID), Some("2026-11-19T10:00:00Z")),
        (Some(ID), None),
        (None, Some(&*sent)),
        (Some("k-1"), Some(&sent)),
        (Some("k-1"), Some("soon")),
    ] {
        let answer = rig.send(ask(id, first_sent, "{}")).await;
        assert_eq!(
            told(&answer),
            (400, Some("rejected")),
            "{id:?} {first_sent:?}"
        );
        assert_eq!(answer.problem().1, "idempotency_key_invalid");
    }
    assert_eq!(runs.begun(), 0);
}

#[tokio::test]
async fn a_request_first_sent_outside_the_window_is_rejected() {
    let runs = Runs::default();
    let rig = rig(counting(&runs)).await;
    let old = imf_fixdate(now() - 6 * 60_000);
    let answer = rig.send(ask(Some(ID), Some(&old), "{}")).await;
    assert_eq!(told(&answer), (412, Some("rejected")));
    assert_eq!(answer.problem().1, "idempotency_key_too_old");
    assert_eq!(runs.begun(), 0);
    let recent = imf_fixdate(now() - 4 * 60_000);
    let answer = rig.send(ask(Some(ID), Some(&recent), "{}")).await;
    assert_eq!(told(&answer), (200, Some("accepted")));
}

#[tokio::test]
async fn another_request_with_the_same_id_is_rejected() {
    let runs = Runs::default();
    let rig = rig(counting(&runs)).await;
    let sent = imf_fixdate(now());
    rig.send(ask(Some(ID), Some(&sent), "{}")).await;
    let later = imf_fixdate(now() + 60_000);
    for request in [
        ask(Some(ID), Some(&sent), "[]"),
        // A repetition repeats the time of the first attempt.
        ask(Some(ID), Some(&later), "{}"),
    ] {
        let answer = rig.send(request).await;
        assert_eq!(told(&answer), (400, Some("rejected")));
        assert_eq!(answer.problem().1, "idempotency_conflict");
    }
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn a_repetition_of_a_running_request_gets_409_at_once() {
    let runs = Runs::default();
    let counted = runs.clone();
    let slow = move || async move {
        let run = counted.begin();
        pause(1_000).await;
        run.to_string()
    };
    let rig = rig(Router::new().fallback(slow)).await;
    let sent = imf_fixdate(now());
    let first = rig.send(ask(Some(ID), Some(&sent), "{}"));
    let second = async {
        until("it runs", || runs.begun() == 1).await;
        rig.send(ask(Some(ID), Some(&sent), "{}")).await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(told(&first), (200, Some("accepted")));
    assert_eq!(told(&second), (409, Some("accepted")));
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn only_final_statuses_are_repeated() {
    let runs = Runs::default();
    let counted = runs.clone();
    let answer = move |request: Request<Body>| async move {
        counted.begin();
        match request.headers().get("x-fails").is_some() {
            true => StatusCode::BAD_GATEWAY,
            false => StatusCode::NOT_FOUND,
        }
    };
    let rig = rig(Router::new().fallback(answer)).await;
    let sent = imf_fixdate(now());
    for _ in 0..2 {
        let failing = with(ask(Some(ID), Some(&sent), "{}"), "x-fails", "1");
        assert_eq!(told(&rig.send(failing).await), (502, Some("accepted")));
    }
    assert_eq!(runs.begun(), 2);
    for _ in 0..2 {
        let missing = rig.send(ask(Some(OTHER), Some(&sent), "{}")).await;
        assert_eq!(told(&missing), (404, Some("accepted")));
    }
    assert_eq!(runs.begun(), 3);
}

#[tokio::test]
async fn requests_without_the_headers_pass() {
    let runs = Runs::default();
    let rig = rig(counting(&runs)).await;
    for run in ["1", "2"] {
        let answer = rig.send(ask(None, None, "{}")).await;
        assert_eq!((told(&answer), answer.text()), ((200, None), run));
    }
}
