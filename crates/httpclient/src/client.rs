//! [`Client`]: one connection.

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, ToSocketAddrs};

use crate::answer::Answer;
use crate::{AnyBody, BodyError, any_body};

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
}

/// Both protocols.
pub const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// One connection.
#[derive(Debug)]
pub enum Client {
    /// Takes one request at a time.
    Http1(http1::SendRequest<AnyBody>),
    /// Takes requests beside each other: [`Client::share`].
    Http2(http2::SendRequest<AnyBody>),
}

impl Client {
    /// Connects to a server.
    ///
    /// # Panics
    /// Where that fails.
    pub async fn connect(address: impl ToSocketAddrs, protocol: Protocol) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("an open connection");
        Self::over(stream, protocol).await
    }

    /// Speaks HTTP over a connection: one with TLS, for example.
    ///
    /// # Panics
    /// Where the server doesn't.
    pub async fn over<S>(stream: S, protocol: Protocol) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
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
    ///
    /// # Panics
    /// On HTTP/1.1.
    #[must_use]
    pub fn share(&self) -> Self {
        match self {
            Self::Http1(_) => panic!("HTTP/1.1 takes one request at a time"),
            Self::Http2(sender) => Self::Http2(sender.clone()),
        }
    }

    /// Sends a request; the response's head, as soon as it is there.
    ///
    /// # Panics
    /// Where there is no response.
    pub async fn begin<B>(&mut self, request: Request<B>) -> Response<Incoming>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        self.try_begin(request).await.expect("a response")
    }

    /// Like [`Self::begin`], where the server may hang up.
    ///
    /// # Errors
    /// Where there is no response.
    pub async fn try_begin<B>(&mut self, request: Request<B>) -> hyper::Result<Response<Incoming>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        let request = request.map(any_body);
        match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => sender.send_request(with_authority(request)).await,
        }
    }

    /// Sends a request, and reads its whole answer.
    ///
    /// # Panics
    /// Where there is none.
    pub async fn send<B>(&mut self, request: Request<B>) -> Answer
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        let response = self.begin(request).await;
        Answer::read(response).await.expect("a whole body")
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }
}

/// In HTTP/2 the host is a part of the request's target.
fn with_authority(request: Request<AnyBody>) -> Request<AnyBody> {
    let (mut parts, body) = request.into_parts();
    let host = parts.headers.remove("host");
    let host = host
        .as_ref()
        .map_or("test", |host| host.to_str().expect("text"));
    parts.uri = format!("http://{host}{}", parts.uri)
        .parse()
        .expect("a URI");
    Request::from_parts(parts, body)
}
