//! Requests to sidecars, and the service behind them.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use semel_httpclient::{Answer, json, try_send};
use tokio::net::TcpListener;

/// A POST request.
pub(crate) struct Post<'a> {
    pub(crate) path: &'a str,
    /// The idempotency key, if it is sent in a header.
    pub(crate) key: Option<&'a str>,
    /// The JSON body.
    pub(crate) body: &'a str,
}

/// Sends the request, and waits for the response for at most this time.
pub(crate) async fn post(to: SocketAddr, what: &Post<'_>, patience: Duration) -> Option<Answer> {
    let mut request = json("POST", &format!("http://{to}{}", what.path), what.body);
    if let Some(key) = what.key {
        request
            .headers_mut()
            .insert("idempotency-key", key.parse().ok()?);
    }
    let answer = tokio::time::timeout(patience, try_send(request)).await;
    answer.ok()?.ok()
}

/// Serves a listener: each request is answered 201 with the result of `answer`, which sees the
/// headers. It runs to its end, even where the caller hangs up.
pub(crate) async fn serve<F, Fut>(listener: TcpListener, answer: F)
where
    F: Fn(HeaderMap) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = String> + Send + 'static,
{
    while let Ok((stream, _)) = listener.accept().await {
        let answer = answer.clone();
        let handler = service_fn(move |request: Request<Incoming>| {
            let answer = answer.clone();
            async move {
                let (head, body) = request.into_parts();
                body.collect().await?;
                let text = tokio::spawn(answer(head.headers)).await?;
                let mut response = Response::new(Full::<Bytes>::from(text));
                *response.status_mut() = StatusCode::CREATED;
                anyhow::Ok(response)
            }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), handler);
        // An error means that the caller hung up.
        tokio::spawn(async { drop(connection.await) });
    }
}
