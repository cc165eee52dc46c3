use std::net::SocketAddr;

use axum::Router;
use axum::response::Redirect;
use axum::routing::post;

use super::*;

/// A client that asks once.
pub(crate) fn asks_once() -> ClientWithMiddleware {
    let policy = RetryPolicy {
        max_attempts: 1,
        ..RetryPolicy::default()
    };
    let builder = reqwest_middleware::ClientBuilder::new(bare());
    builder
        .with(IdempotencyMiddleware::default().policy(policy))
        .build()
}

fn bare() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// A URL where nobody listens.
pub(crate) fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/charges", listener.local_addr().unwrap())
}

pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Whether a call that finds nobody may be done.
async fn may_be_done(url: &str, body: Option<&'static str>) -> bool {
    let mut request = asks_once().post(url);
    if let Some(body) = body {
        request = request.body(body);
    }
    let error = request.send().await.unwrap_err();
    match Error::find_in(&error) {
        Some(Error::GaveUp { unknown, .. }) => *unknown,
        other => panic!("{other:?}: {error}"),
    }
}

#[tokio::test]
async fn failed_redirect_after_post_may_be_done() {
    let charge = |_: Bytes| async { Redirect::to(&nowhere()) };
    let address = serve(Router::new().route("/charges", post(charge))).await;
    let redirected = format!("http://{address}/charges");
    for body in [None, Some(""), Some("{\"cents\":500}")] {
        assert!(may_be_done(&redirected, body).await, "{body:?}: it arrived");
        let never = may_be_done(&nowhere(), body).await;
        assert!(!never, "{body:?}: it never left");
    }
}

#[tokio::test]
async fn a_request_arrives_as_reqwest_alone_would_send_it() {
    let echo = |headers: http::HeaderMap, body: Bytes| async move {
        let length = headers.get(http::header::CONTENT_LENGTH);
        format!("{length:?} {}", String::from_utf8_lossy(&body))
    };
    let address = serve(Router::new().route("/charges", post(echo))).await;
    let url = format!("http://{address}/charges");
    for body in [None, Some(""), Some("{\"cents\":500}")] {
        let (mut request, mut alone) = (asks_once().post(&url), bare().post(&url));
        if let Some(body) = body {
            (request, alone) = (request.body(body), alone.body(body));
        }
        let (answer, alone) = (request.send().await.unwrap(), alone.send().await.unwrap());
        let (answer, alone) = (answer.text().await.unwrap(), alone.text().await.unwrap());
        assert_eq!(answer, alone);
        assert!(answer.contains(body.unwrap_or_default()), "{answer}");
    }
}
