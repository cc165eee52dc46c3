//! Clients that speak HTTP/1.1, HTTP/2 and raw bytes.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

pub(crate) const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// One connection.
pub(crate) enum Client {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("text"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Status and code of a problem document.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        let document = self.json();
        assert_eq!(document["status"], self.status.as_u16());
        let code = document["code"].as_str().expect("a code");
        (self.status.as_u16(), code.to_owned())
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, protocol: Protocol) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("an open connection");
        let io = TokioIo::new(stream);
        match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(io).await.expect("HTTP/1.1");
                tokio::spawn(connection);
                Self::Http1(sender)
            }
            Protocol::Http2 => {
                let made = http2::handshake(TokioExecutor::new(), io).await;
                let (sender, connection) = made.expect("HTTP/2");
                tokio::spawn(connection);
                Self::Http2(sender)
            }
        }
    }

    /// Another handle on the same HTTP/2 connection.
    pub(crate) fn share(&self) -> Self {
        match self {
            Self::Http1(_) => panic!("HTTP/1.1 takes one request at a time"),
            Self::Http2(sender) => Self::Http2(sender.clone()),
        }
    }

    pub(crate) async fn begin(
        &mut self,
        request: Request<Body>,
    ) -> hyper::Response<hyper::body::Incoming> {
        let response = match self {
            Self::Http1(sender) => sender.send_request(request).await,
            Self::Http2(sender) => {
                let (mut parts, body) = request.into_parts();
                // The authority is a part of the request's target there.
                parts.headers.remove("host");
                parts.uri = format!("http://test{}", parts.uri).parse().expect("a URI");
                sender.send_request(Request::from_parts(parts, body)).await
            }
        };
        response.expect("a response")
    }

    pub(crate) async fn send(&mut self, request: Request<Body>) -> Answer {
        if let Self::Http1(sender) = self {
            sender.ready().await.expect("the connection lives");
        }
        let (parts, body) = self.begin(request).await.into_parts();
        let collected = body.collect().await.expect("a whole body");
        let trailers = collected.trailers().cloned();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: collected.to_bytes(),
            trailers,
        }
    }
}

/// A connection on which a test writes what it likes.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        Self {
            stream,
            read: Vec::new(),
        }
    }

    pub(crate) async fn write(&mut self, text: &str) {
        let written = self.stream.write_all(text.as_bytes()).await;
        written.expect("the server reads");
    }

    /// The next head, as text, and its body by its Content-Length. `None` where the server hung up.
    pub(crate) async fn answer(&mut self) -> Option<(String, String)> {
        loop {
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.read[..end]).to_ascii_lowercase();
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.map_or(0, |text| text.parse().expect("a length"));
                let all = end + 4 + length;
                while self.read.len() < all {
                    self.more().await?;
                }
                let body = String::from_utf8_lossy(&self.read[end + 4..all]).into_owned();
                self.read.drain(..all);
                return Some((head, body));
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Option<()> {
        let mut buffer = [0; 4096];
        let read = self.stream.read(&mut buffer);
        let limit = Duration::from_secs(5);
        let count = tokio::time::timeout(limit, read).await.expect("in time");
        let count = count.unwrap_or(0);
        self.read.extend_from_slice(&buffer[..count]);
        (count > 0).then_some(())
    }

    /// Whether the server hangs up, sooner or later, without another word.
    pub(crate) async fn is_closed(&mut self) -> bool {
        self.read.is_empty() && self.more().await.is_none()
    }
}
