//! WebSocket and event streams.

use std::convert::Infallible;

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::response::sse::{Event, Sse};
use axum::routing::get;
use futures_util::{SinkExt as _, StreamExt as _};
use http_body_util::BodyExt as _;
use tokio_tungstenite::tungstenite;

use crate::support::*;

pub(crate) async fn echo(upgrade: WebSocketUpgrade) -> Response {
    let answer = async |mut socket: WebSocket| {
        while let Some(Ok(message)) = socket.recv().await {
            if let Message::Text(text) = message {
                let _ = socket
                    .send(Message::Text(format!("heard {text}").into()))
                    .await;
            }
        }
    };
    upgrade.protocols(["chat"]).on_upgrade(answer)
}

#[tokio::test]
async fn websocket_is_tunneled() {
    let upstream = service(Router::new().route("/socket", get(echo))).await;
    for protocol in ["auto", "h2c"] {
        let sidecar =
            Sidecar::new(upstream, &format!("upstream.protocol = \"{protocol}\"\n")).await;
        let url = format!("ws://{}/socket", sidecar.address);
        let mut request = tungstenite::client::IntoClientRequest::into_client_request(url).unwrap();
        request
            .headers_mut()
            .insert("sec-websocket-protocol", "chat".parse().unwrap());
        let (mut socket, response) = tokio_tungstenite::connect_async(request).await.unwrap();
        assert_eq!(response.headers()["sec-websocket-protocol"], "chat");
        for word in ["one", "two"] {
            socket.send(tungstenite::Message::text(word)).await.unwrap();
            let heard = socket.next().await.unwrap().unwrap();
            assert_eq!(heard.into_text().unwrap().as_str(), format!("heard {word}"));
        }
        socket.close(None).await.unwrap();
    }
}

#[tokio::test]
async fn other_upgrades_are_not_forwarded() {
    // A service that accepts any upgrade, and then requests that bypass the layer.
    let runs = Runs::default();
    let asked = runs.clone();
    let willing = move |headers: axum::http::HeaderMap| async move {
        if headers.contains_key("upgrade") {
            asked.begin();
        }
        "not changed"
    };
    let upstream = service(Router::new().route("/", get(willing))).await;
    let sidecar = Sidecar::new(upstream, "").await;
    for protocol in ["h2c", "HTTP/2.0", "websocket, h2c", "tcp"] {
        let request = with(plain("GET", "/", ""), "connection", "upgrade");
        let request = with(request, "http2-settings", "AAMAAABk");
        let answer = sidecar.send(with(request, "upgrade", protocol)).await;
        assert_eq!(answer.text(), "not changed", "{protocol}");
    }
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn tunnel_keeps_its_connection_slot() {
    let upstream = service(Router::new().route("/socket", get(echo))).await;
    let sidecar = Sidecar::new(upstream, "limits.connections = 1\n").await;
    let url = format!("ws://{}/socket", sidecar.address);
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let mut second = sidecar.raw().await;
    second
        .try_write("GET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await;
    // The connection is refused while the tunnel is open, and accepted afterwards.
    assert!(second.rest().await.starts_with("HTTP/1.1 503"));
    socket.close(None).await.unwrap();
    drop(socket);
    pause(100).await;
    let answer = sidecar.send(plain("GET", "/none", "")).await;
    assert_eq!(answer.status, 404);
}

#[tokio::test]
async fn refused_upgrade_is_a_normal_response() {
    let upstream = service(Router::new().route("/socket", get(|| async { "no socket" }))).await;
    let sidecar = Sidecar::new(upstream, "").await;
    let request = with(plain("GET", "/socket", ""), "connection", "upgrade");
    let answer = sidecar.send(with(request, "upgrade", "websocket")).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "no socket"));
}

#[tokio::test]
async fn server_sent_events_are_streamed() {
    let (sender, events) = tokio::sync::broadcast::channel::<String>(4);
    let again = sender.clone();
    let handler = move || async move {
        let events = again.subscribe();
        let stream = futures_util::stream::unfold(events, |mut events| async {
            let text = events.recv().await.ok()?;
            Some((Ok::<_, Infallible>(Event::default().data(text)), events))
        });
        Sse::new(stream)
    };
    drop(events);
    let upstream = service(Router::new().route("/events", get(handler))).await;
    let sidecar = Sidecar::new(upstream, "").await;
    for protocol in BOTH {
        let mut client = sidecar.client(protocol).await;
        let response = client.begin(plain("GET", "/events", "")).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut body = response.into_body();
        for word in ["one", "two"] {
            sender.send(word.to_owned()).unwrap();
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(frame, format!("data: {word}\n\n"), "{protocol:?}");
        }
        drop(body);
        drop(client);
        until("the service sees that the client left", || {
            // A send fails once the stream is closed.
            sender.send("gone?".to_owned()).is_err() || sender.receiver_count() == 0
        })
        .await;
    }
}

#[tokio::test]
async fn expect_continue_is_answered() {
    let echo = |body: String| async move { body };
    let upstream = service(Router::new().route("/", axum::routing::post(echo))).await;
    let sidecar = Sidecar::new(upstream, "").await;
    for key in ["", "Idempotency-Key: k-1\r\n"] {
        let mut raw = sidecar.raw().await;
        raw.try_write(&format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{key}Expect: \
         100-continue\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"
        ))
        .await;
        raw.read_to("HTTP/1.1 100 Continue\r\n\r\n").await;
        raw.try_write("hello").await;
        let all = raw.rest().await;
        assert!(
            all.starts_with("HTTP/1.1 200") && all.ends_with("hello"),
            "{all}"
        );
    }
}
