//! A client as Azure's are: it sends the headers of *Repeatable Requests Version 1.0* (OASIS), once
//! made for all attempts, and reads `Repeatability-Result`.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post as on_post;
use semel_httpclient::imf_fixdate;

use crate::support::*;

const SETTINGS: &str = "[defaults]\nprofile = \"repeatable\"\nkey_age = \"5m\"\n";
const ID: &str = "9b2b8b0e-79b0-4cc3-98c4-dc0c0c07398f";
const MINUTE: u64 = 60_000;

/// A service that sends mail. The first attempt fails where a header says so.
async fn mail(runs: &Runs) -> std::net::SocketAddr {
    let send = |State(runs): State<Runs>, headers: HeaderMap| async move {
        let run = runs.begin();
        let first_fails = headers.contains_key("x-first-fails");
        if headers.contains_key("x-slow") {
            pause(800).await;
        }
        match first_fails && run == 1 {
            true => StatusCode::BAD_GATEWAY.into_response(),
            false => accepted(run, &headers),
        }
    };
    let routes = Router::new().route("/emails:send", on_post(send));
    service(routes.with_state(runs.clone())).await
}

/// A service may read the headers too: they are passed on.
fn accepted(run: usize, headers: &HeaderMap) -> Response {
    let id = headers.get("repeatability-request-id");
    let id = id.and_then(|id| id.to_str().ok()).unwrap_or("none");
    (StatusCode::ACCEPTED, format!("mail {run} for {id}")).into_response()
}

/// A request that is made once, and sent as often as it takes.
struct Repeatable {
    id: &'static str,
    first_sent: String,
    body: &'static str,
}

impl Repeatable {
    fn new() -> Self {
        Self {
            id: ID,
            first_sent: imf_fixdate(now()),
            body: r#"{"to":"a@example.com"}"#,
        }
    }

    fn request(&self) -> Request<Body> {
        let request = plain("POST", "/emails:send", self.body);
        let request = with(request, "content-type", "application/json");
        let request = with(request, "repeatability-request-id", self.id);
        with(request, "repeatability-first-sent", &self.first_sent)
    }
}

fn now() -> u64 {
    semel::tokio_env().clock.wall().as_micros() / 1000
}

fn told(answer: &Answer) -> (u16, Option<&str>) {
    (
        answer.status.as_u16(),
        answer.header("repeatability-result"),
    )
}

async fn start() -> (Runs, Sidecar) {
    let runs = Runs::default();
    let upstream = mail(&runs).await;
    (runs, Sidecar::new(upstream, SETTINGS).await)
}

#[tokio::test]
async fn a_mail_is_sent_once_however_often_it_is_asked_for() {
    let (runs, sidecar) = start().await;
    let mail = Repeatable::new();
    for _ in 0..3 {
        let answer = sidecar.send(mail.request()).await;
        assert_eq!(told(&answer), (202, Some("accepted")));
        assert_eq!(answer.text(), format!("mail 1 for {ID}"));
    }
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_failed_attempt_is_repeated() {
    let (runs, sidecar) = start().await;
    let mail = Repeatable::new();
    let failing = || with(mail.request(), "x-first-fails", "1");
    assert_eq!(told(&sidecar.send(failing()).await).0, 502);
    let again = sidecar.send(failing()).await;
    assert_eq!(told(&again), (202, Some("accepted")));
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn an_attempt_during_another_is_told_to_wait() {
    let (runs, sidecar) = start().await;
    let mail = Repeatable::new();
    let slow = || with(mail.request(), "x-slow", "1");
    let first = sidecar.send(slow());
    let second = async {
        until("it runs", || runs.count() == 1).await;
        sidecar.send(slow()).await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(told(&first), (202, Some("accepted")));
    assert_eq!(told(&second), (409, Some("accepted")));
    assert!(second.header("retry-after").is_some());
    let last = sidecar.send(slow()).await;
    assert_eq!(
        (told(&last), last.is_replay()),
        ((202, Some("accepted")), true)
    );
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn requests_that_cannot_be_repeated_safely_are_rejected() {
    let (runs, sidecar) = start().await;
    let mail = Repeatable::new();
    sidecar.send(mail.request()).await;
    let changed = Repeatable {
        body: r#"{"to":"b@example.com"}"#,
        ..Repeatable::new()
    };
    let old = Repeatable {
        first_sent: imf_fixdate(now() - 6 * MINUTE),
        ..Repeatable::new()
    };
    let no_date = Repeatable {
        first_sent: "yesterday".to_owned(),
        ..Repeatable::new()
    };
    let no_guid = Repeatable {
        id: "mail-7",
        ..Repeatable::new()
    };
    for (request, status) in [(changed, 400), (old, 412), (no_date, 400), (no_guid, 400)] {
        let answer = sidecar.send(request.request()).await;
        assert_eq!(
            told(&answer),
            (status, Some("rejected")),
            "{}",
            answer.text()
        );
    }
    assert_eq!(runs.count(), 1);
}
