//! [`Answer`]: a whole response.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;

/// A response with its whole body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// What came after the body.
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    /// Reads a response to its end.
    ///
    /// # Errors
    /// Where the body ends early.
    pub async fn read<B: http_body::Body>(response: http::Response<B>) -> Result<Self, B::Error> {
        let (parts, body) = response.into_parts();
        let collected = body.collect().await?;
        let trailers = collected.trailers().cloned();
        Ok(Self {
            status: parts.status,
            headers: parts.headers,
            body: collected.to_bytes(),
            trailers,
        })
    }

    /// The first header of this name.
    ///
    /// # Panics
    /// Where it is not text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name)?;
        Some(value.to_str().expect("text"))
    }

    /// The body as text.
    ///
    /// # Panics
    /// Where it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// Where it is none.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let parsed = serde_json::from_slice(&self.body);
        parsed.unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Whether it says that it is a replay.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Status and code of a problem document.
    ///
    /// # Panics
    /// Where it is no problem document.
    #[must_use]
    #[track_caller]
    pub fn problem(&self) -> (u16, String) {
        let (status, code, _) = self.problem_and_retry();
        (status, code)
    }

    /// Status, code and `retryable` of a problem document.
    ///
    /// # Panics
    /// Where it is no problem document.
    #[must_use]
    #[track_caller]
    pub fn problem_and_retry(&self) -> (u16, String, bool) {
        let kind = self.header("content-type");
        assert_eq!(kind, Some("application/problem+json"), "{self:?}");
        let document = self.json();
        assert_eq!(document["status"], self.status.as_u16());
        let code = document["code"].as_str().expect("a code");
        let retryable = document["retryable"].as_bool().expect("a truth");
        (self.status.as_u16(), code.to_owned(), retryable)
    }
}
