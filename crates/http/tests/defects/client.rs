//! A client: one connection per request, cookies kept as a browser would.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;

use super::app::pause;

#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    cookie: Option<String>,
}

pub(super) struct Answer {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let values = self.headers.get_all(name).iter();
        values
            .map(|value| value.to_str().unwrap_or("").to_owned())
            .collect()
    }
}

impl Client {
    /// A client that has been here before: layers that keep answers in a session have given it one.
    pub(super) async fn to(address: SocketAddr) -> Self {
        let mut client = Self {
            address,
            cookie: None,
        };
        let answer = client.post("/session", "session", "").await;
        let cookies = answer.all("set-cookie");
        let pairs: Vec<&str> = cookies.iter().filter_map(|c| c.split(';').next()).collect();
        client.cookie = (!pairs.is_empty()).then(|| pairs.join("; "));
        client
    }

    /// Another client of the same server.
    pub(super) async fn another(&self) -> Self {
        Self::to(self.address).await
    }

    pub(super) async fn post(&self, path: &str, key: &str, body: &str) -> Answer {
        let answer = self.try_post(path, key, body).await;
        answer.expect("an answer")
    }

    pub(super) async fn post_as(&self, path: &str, key: &str, body: &str, who: &str) -> Answer {
        let request = self.request(path, key, body, Some(who));
        let answer = send(self.address, request).await;
        answer.expect("an answer")
    }

    /// `None` where the server hung up instead of answering.
    pub(super) async fn try_post(&self, path: &str, key: &str, body: &str) -> Option<Answer> {
        send(self.address, self.request(path, key, body, None)).await
    }

    /// Sends, and hangs up after `patience`.
    pub(super) async fn give_up(&self, path: &str, key: &str, body: &str, patience: Duration) {
        let request = self.request(path, key, body, None);
        tokio::select! {
            _ = send(self.address, request) => {}
            () = pause(patience) => {}
        }
    }

    fn request(&self, path: &str, key: &str, body: &str, who: Option<&str>) -> Request<Body> {
        let mut request = Request::post(path)
            .header(header::HOST, "test")
            .header(header::CONTENT_TYPE, "text/plain")
            .header("idempotency-key", key);
        if let Some(cookie) = &self.cookie {
            request = request.header(header::COOKIE, cookie);
        }
        if let Some(who) = who {
            request = request.header(header::AUTHORIZATION, who);
        }
        request
            .body(Body::from(body.to_owned()))
            .expect("a request")
    }
}

async fn send(address: SocketAddr, request: Request<Body>) -> Option<Answer> {
    let stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let io = TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.ok()?;
    // On this task: a caller that gives up takes its connection with it.
    let exchange = async move {
        let response = sender.send_request(request).await.ok()?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some(Answer {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    };
    let connection = async move {
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = exchange => answer,
        () = connection => None,
    }
}
