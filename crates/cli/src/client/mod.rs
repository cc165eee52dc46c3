//! The admin API as a command uses it: over the network, or as a router in this process on a store.
//!
//! Both share one code path and one output.

mod link;
mod target;
pub(crate) mod view;

use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use semel::core::Code;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::exit::{self, Exit};
use link::Link;
pub(crate) use link::{HttpClient, cause, http_client};
pub(crate) use target::Target;

/// The largest response accepted. A page of a thousand records is well below it.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// A client of the admin API.
pub(crate) struct Client {
    link: Link,
    token: Option<String>,
    /// The name of the other side, for messages.
    pub(crate) name: String,
    /// The environment of the records, if it was given.
    pub(crate) environment: Option<String>,
}

impl Client {
    /// Whether another process answers, which also sees the events there.
    pub(crate) const fn is_remote(&self) -> bool {
        matches!(self.link, Link::Remote { .. })
    }

    /// Whether changes are written to an audit trail.
    pub(crate) const fn keeps_trail(&self) -> bool {
        match self.link {
            Link::Remote { .. } => true,
            Link::Local { kept, .. } => kept,
        }
    }

    /// Waits until the trail of this process is written.
    async fn flush(&self) {
        if let Link::Local { trail, .. } = &self.link {
            trail.flush().await;
        }
    }

    pub(crate) async fn get(&self, path: &ApiPath) -> Result<Value, Exit> {
        self.call(Method::GET, &path.text, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Result<Value, Exit> {
        let done = self.call(Method::POST, path, Some(body)).await;
        self.flush().await;
        done
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, Exit> {
        let answer = self.link.within(self.send(method, path, body)).await?;
        let read = Limited::new(answer, MAX_ANSWER_BYTES).collect();
        let read = self.link.within(async { Ok(read.await) }).await?;
        let bytes = read.map_err(|error| {
            let message = format!("the response of {} broke off: {error}", self.name);
            Exit::failed(exit::UNREACHABLE, message)
        })?;
        serde_json::from_slice(&bytes.to_bytes()).map_err(|_| self.not_admin_api())
    }

    /// The body of a streaming response.
    pub(crate) async fn stream(&self, path: &ApiPath) -> Result<Body, Exit> {
        let sent = self.send(Method::GET, &path.text, None);
        self.link.within(sent).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Result<Body, Exit> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.link.uri(path))
            .header(header::HOST, self.link.host());
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = match body {
            None => Body::empty(),
            Some(value) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(value.to_string())
            }
        };
        let request = request
            .body(body)
            .map_err(|error| Exit::failed(exit::UNEXPECTED, error.to_string()))?;
        let response = self.link.send(request, &self.name).await?;
        let status = response.status();
        let body = response.into_body();
        if status.is_success() {
            return Ok(body);
        }
        let problem = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        let problem = problem.map(|whole| whole.to_bytes()).unwrap_or_default();
        Err(self.refused(
            status,
            &serde_json::from_slice(&problem).unwrap_or_default(),
        ))
    }

    fn refused(&self, status: StatusCode, problem: &Value) -> Exit {
        let text = |name: &str| problem[name].as_str().unwrap_or_default();
        let (code, detail) = (text("code"), text("detail"));
        if code.is_empty() {
            return self.not_admin_api();
        }
        let fix = match status {
            StatusCode::UNAUTHORIZED => {
                "\n    fix: --token-file FILE, with your operator token or that of \
                 admin.token_file"
            }
            _ => "",
        };
        let exit = match (status, code.parse()) {
            (_, Ok(Code::NotFound)) => exit::NOT_FOUND,
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => exit::NOT_ALLOWED,
            (StatusCode::NOT_FOUND, _) => return self.not_admin_api(),
            (status, _) if status.is_server_error() => exit::STORE,
            _ => exit::REFUSED,
        };
        let detail = if detail.is_empty() { code } else { detail };
        Exit::failed(exit, format!("{detail}{fix}"))
    }

    /// The error for a response that is not from the admin API.
    fn not_admin_api(&self) -> Exit {
        let message = format!(
            "{} is not an admin API\n    fix: use the address of `admin.address`, not the one \
             that your clients use",
            self.name
        );
        Exit::failed(exit::UNREACHABLE, message)
    }
}

/// Converts a JSON value of the API into a type.
pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Exit> {
    serde_json::from_value(value).map_err(|error| {
        let message = format!("the response of the admin API can't be read: {error}");
        Exit::failed(exit::UNEXPECTED, message)
    })
}

/// A path with a query.
pub(crate) struct ApiPath {
    text: String,
    has_query: bool,
}

impl ApiPath {
    pub(crate) fn new(path: impl Into<String>) -> Self {
        Self {
            text: path.into(),
            has_query: false,
        }
    }

    /// Adds a parameter, if there is a value.
    pub(crate) fn with(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            let value = value.to_string();
            let value = utf8_percent_encode(&value, NON_ALPHANUMERIC);
            let before = if self.has_query { '&' } else { '?' };
            self.text.push_str(&format!("{before}{name}={value}"));
            self.has_query = true;
        }
        self
    }
}
