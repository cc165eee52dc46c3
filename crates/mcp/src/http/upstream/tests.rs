#![expect(clippy::disallowed_methods, reason = "peers are tasks on real time")]

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::super::client::EVENT_STREAM;
use super::*;

/// A server that answers the handshake, and sends one unsolicited message on each of two streams.
async fn answer(streams: Arc<AtomicUsize>, request: Request<Body>) -> Response<Body> {
    let (kind, body) = if request.method() == Method::GET {
        let number = streams.fetch_add(1, Ordering::SeqCst);
        if number == 2 {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            return response;
        }
        let note = json!({"method": "notifications/message", "params": {"number": number}});
        (EVENT_STREAM, format!("retry: 1\ndata: {note}\n\n"))
    } else {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let message: Value = serde_json::from_slice(&body).unwrap();
        let result = json!({"id": message["id"], "result": {"protocolVersion": "2025-06-18"}});
        ("application/json", result.to_string())
    };
    let mut response = Response::new(Body::from(body));
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[tokio::test]
async fn unsolicited_stream_is_reopened_after_it_ends() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let streams = Arc::new(AtomicUsize::new(0));
    let handle = move |request: Request<Body>| answer(Arc::clone(&streams), request);
    let router = Router::new().fallback(handle);
    tokio::spawn(async move { axum::serve(listener, router).await });
    let upstream = HttpUpstream::new(&url, HeaderMap::new()).unwrap();
    let mut end = upstream.connect(semel::tokio_env().clock, None);
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize"}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    ] {
        end.outgoing.send(message.to_string().into()).await.unwrap();
    }
    let mut heard = Vec::new();
    while heard.len() < 2 {
        let said = tokio::time::timeout(Duration::from_secs(10), end.incoming.recv()).await;
        let said = said.expect("in time").expect("it talks");
        let said: Value = serde_json::from_slice(&said).unwrap();
        heard.extend(said["params"]["number"].as_u64());
    }
    assert_eq!(heard, [0, 1]);
}
