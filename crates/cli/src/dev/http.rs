//! A plain HTTP/1.1 client for the loopback, with one connection per request.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::client::cause;

/// The largest reply read.
const MAX_REPLY_BYTES: usize = 1024 * 1024;
/// Longer than a sidecar lets a request wait for another's run.
const PATIENCE: Duration = Duration::from_secs(45);

/// The client.
#[derive(Clone)]
pub(super) struct Http(Client<HttpConnector, Body>);

/// A whole reply.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Http {
    pub(super) fn new() -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        Self(builder.pool_max_idle_per_host(0).build_http())
    }

    pub(super) async fn get(&self, url: &str) -> Result<Reply, String> {
        self.whole(Request::get(url), Body::empty()).await
    }

    /// Sends JSON under an idempotency key.
    pub(super) async fn post(&self, url: &str, key: &str, json: String) -> Result<Reply, String> {
        let request = Request::post(url)
            .header(header::CONTENT_TYPE, "application/json")
            .header("idempotency-key", key);
        self.whole(request, Body::from(json)).await
    }

    /// A reply whose body goes on.
    pub(super) async fn stream(&self, url: &str) -> Result<Body, String> {
        let response = self.send(Request::get(url), Body::empty()).await?;
        match response.status().is_success() {
            true => Ok(Body::new(response.into_body())),
            false => Err(response.status().to_string()),
        }
    }

    async fn whole(&self, request: http::request::Builder, body: Body) -> Result<Reply, String> {
        let asked = async {
            let (parts, body) = self.send(request, body).await?.into_parts();
            let body = Limited::new(body, MAX_REPLY_BYTES).collect().await;
            Ok(Reply {
                status: parts.status.as_u16(),
                headers: parts.headers,
                body: body.map_err(|error| error.to_string())?.to_bytes(),
            })
        };
        let clock = semel::tokio_env().clock;
        let asked = clock.timeout(PATIENCE, asked).await;
        asked.unwrap_or_else(|_| Err(format!("no reply within {} s", PATIENCE.as_secs())))
    }

    async fn send(
        &self,
        request: http::request::Builder,
        body: Body,
    ) -> Result<Response<Incoming>, String> {
        let request = request.body(body).map_err(|error| error.to_string())?;
        let sent = self.0.request(request).await;
        sent.map_err(|error| cause(&error))
    }
}
