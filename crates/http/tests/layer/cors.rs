//! Browsers ask first: preflights pass, and the lists that the crate exports are enough.

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, header};
use axum::routing::post as on_post;
use semel::http::cors::{ALLOW_HEADERS, EXPOSE_HEADERS};
use tower_http::cors::{Any, CorsLayer};

use crate::support::*;

#[tokio::test]
async fn preflight_passes_and_replay_gets_fresh_cors_headers() {
    let cors = CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::POST])
        .allow_headers(ALLOW_HEADERS)
        .expose_headers(EXPOSE_HEADERS);
    let app = Router::new().route("/", on_post(|| async { "ran" }));
    let address = serve(app.layer(layer().await).layer(cors)).await;
    let mut client = Client::connect(address, Protocol::Http1).await;
    let preflight = Request::options("/")
        .header("host", "test")
        .header("origin", "https://shop.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "idempotency-key");
    let answer = client.send(preflight.body(Body::empty()).unwrap()).await;
    assert!(answer.status.is_success());
    let allowed = answer.header("access-control-allow-headers").unwrap();
    assert!(allowed.contains("idempotency-key"), "{allowed}");

    for replayed in [false, true] {
        let request = with(post("/", "k", "{}"), "origin", "https://shop.example");
        let answer = client.send(request).await;
        assert_eq!(answer.is_replay(), replayed);
        assert_eq!(
            answer
                .headers
                .get_all(header::ACCESS_CONTROL_ALLOW_ORIGIN)
                .iter()
                .count(),
            1
        );
        let exposed = answer.header("access-control-expose-headers").unwrap();
        assert!(exposed.contains("idempotent-replayed") && exposed.contains("retry-after"));
    }
}

#[tokio::test]
async fn without_a_cors_layer_a_preflight_still_passes_the_layer() {
    let app = Router::new().route("/", axum::routing::options(|| async { "asked" }));
    let address = serve(app.layer(layer().await)).await;
    let mut client = Client::connect(address, Protocol::Http1).await;
    for _ in 0..2 {
        let request = Request::options("/")
            .header("host", "test")
            .header("idempotency-key", "k");
        assert_eq!(
            client
                .send(request.body(Body::empty()).unwrap())
                .await
                .text(),
            "asked"
        );
    }
}
