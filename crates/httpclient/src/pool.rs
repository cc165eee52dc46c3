//! [`Pool`]: many requests, over connections that are kept.

#![expect(clippy::disallowed_methods, reason = "real sockets run on real time")]

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::answer::Answer;

/// Connections that are kept, and requests that are given up after a while. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
    patience: Duration,
}

impl Pool {
    /// Waits so long for an answer.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        let builder = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
        Self {
            inner: builder.build_http(),
            patience,
        }
    }

    /// Sends a request to the server that its URL names.
    ///
    /// # Errors
    /// Where there is no answer in time, or half of one.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let answer = tokio::time::timeout(self.patience, self.whole(request)).await;
        answer.unwrap_or_else(|_| Err("no answer in time".to_owned()))
    }

    async fn whole(&self, request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let response = self.inner.request(request).await;
        let response = response.map_err(|error| error.to_string())?;
        Answer::read(response)
            .await
            .map_err(|error| error.to_string())
    }

    /// Sends a JSON body with a key.
    ///
    /// # Errors
    /// Where there is no answer in time, or half of one.
    ///
    /// # Panics
    /// Where the URL is none.
    pub async fn post(&self, url: &str, key: &str, body: String) -> Result<Answer, String> {
        let request = Request::post(url)
            // One name for the service, whichever way leads to it.
            .header("host", "payments.test")
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(Full::from(body));
        self.send(request.expect("a URL")).await
    }

    /// Sends a GET.
    ///
    /// # Errors
    /// Where there is no answer in time, or half of one.
    ///
    /// # Panics
    /// Where the URL is none.
    pub async fn get(&self, url: &str) -> Result<Answer, String> {
        let request = Request::get(url).body(Full::default());
        self.send(request.expect("a URL")).await
    }
}
