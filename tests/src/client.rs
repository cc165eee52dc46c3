//! A client that keeps its connections, and gives up after a while.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// A client. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    inner: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
    patience: Duration,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Whether it says that it is a replay.
    pub replayed: bool,
    /// Its body.
    pub body: String,
}

impl Client {
    /// One that waits so long for an answer.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        let builder = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
        Self {
            inner: builder.build_http(),
            patience,
        }
    }

    /// Asks.
    ///
    /// # Errors
    /// Where there is no answer in time, or half of one.
    pub async fn ask(&self, request: Request<Full<Bytes>>) -> Result<Reply, String> {
        let asked = tokio::time::timeout(self.patience, self.whole(request)).await;
        asked.unwrap_or_else(|_| Err("no answer in time".to_owned()))
    }

    async fn whole(&self, request: Request<Full<Bytes>>) -> Result<Reply, String> {
        let said = |error: &dyn std::error::Error| error.to_string();
        let response = self.inner.request(request).await;
        let response = response.map_err(|error| said(&error))?;
        let status = response.status().as_u16();
        let replayed = response.headers().contains_key("idempotent-replayed");
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| said(&error))?.to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        Ok(Reply {
            status,
            replayed,
            body,
        })
    }

    /// Sends a JSON body with a key.
    ///
    /// # Errors
    /// Where there is no answer in time, or half of one.
    ///
    /// # Panics
    /// Where the URL is none.
    pub async fn post(&self, url: &str, key: &str, body: String) -> Result<Reply, String> {
        let request = Request::post(url)
            // One name for the service, whichever way leads to it.
            .header("host", "payments.test")
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(Full::from(body));
        self.ask(request.expect("a URL of our own")).await
    }

    /// Reads.
    ///
    /// # Errors
    /// Where there is no answer in time, or half of one.
    ///
    /// # Panics
    /// Where the URL is none.
    pub async fn get(&self, url: &str) -> Result<Reply, String> {
        let request = Request::get(url).body(Full::default());
        self.ask(request.expect("a URL of our own")).await
    }
}
