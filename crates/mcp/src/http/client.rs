//! Requests to a server behind streamable HTTP.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use sse_stream::SseStream;

use super::LAST_EVENT;
use crate::message::MAX_BYTES;

const CONNECT: Duration = Duration::from_secs(5);
/// How often a stream of events that broke off is taken up again, and how long to wait before.
const RESUMES: u32 = 5;
const RESUME_AFTER: Duration = Duration::from_millis(500);

/// A server behind streamable HTTP.
#[derive(Clone, Debug)]
pub struct Upstream {
    pub(crate) uri: Uri,
    /// Headers for every request, such as `Authorization`.
    pub(crate) headers: HeaderMap,
    client: Client<HttpsConnector<HttpConnector>, Body>,
}

impl Upstream {
    /// The server at `url`, with headers of the user's.
    ///
    /// # Errors
    /// A sentence about what is wrong.
    pub fn new(url: &str, headers: HeaderMap) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| format!("{url} is not a URL"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.authority().is_none() {
            return Err(format!(
                "{url} is not the URL of a server: write http://HOST:PORT/mcp"
            ));
        }
        // The same provider as everywhere: some dependency may have brought another.
        let tls = rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_native_roots()
        .map_err(|error| format!("this machine's certificates can't be read: {error}"))?
        .with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        Ok(Self {
            uri,
            headers,
            client: Client::builder(TokioExecutor::new()).build(connector),
        })
    }

    /// Sends a request; hop-by-hop headers are the caller's to leave out.
    pub(crate) async fn send(
        &self,
        method: Method,
        uri: &Uri,
        headers: HeaderMap,
        body: Body,
    ) -> Result<Response<Incoming>, Error> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers;
        request.headers_mut().remove(HOST);
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        self.client.request(request).await
    }

    /// Takes up a stream of events that broke off after the event `last`.
    async fn resume(&self, uri: &Uri, mut headers: HeaderMap, last: &str) -> Option<Events> {
        headers.insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        headers.remove(CONTENT_TYPE);
        headers.insert(LAST_EVENT, HeaderValue::from_str(last).ok()?);
        let response = self
            .send(Method::GET, uri, headers, Body::empty())
            .await
            .ok()?;
        (response.status().is_success() && is_event_stream(response.headers()))
            .then(|| Events::new(response.into_body()))
    }
}

/// Whether nothing of a request can have reached the server.
pub(crate) fn never_sent(error: &Error) -> bool {
    error.is_connect()
}

pub(crate) const EVENT_STREAM: &str = "text/event-stream";

pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().starts_with(EVENT_STREAM))
}

/// A whole body, within bounds.
pub(crate) async fn whole(body: Incoming) -> Option<Bytes> {
    let body = Limited::new(body, MAX_BYTES).collect().await.ok()?;
    Some(body.to_bytes())
}

/// The events of one stream.
pub(crate) struct Events {
    stream: SseStream<UnsyncBoxBody<Bytes, std::io::Error>>,
}

/// A message from a stream, and what its event is called.
pub(crate) struct Said {
    pub(crate) text: Bytes,
    pub(crate) event: Option<String>,
}

impl Said {
    /// As an event again.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = String::new();
        if let Some(id) = &self.event {
            out.push_str("id: ");
            out.push_str(id);
            out.push('\n');
        }
        out.push_str("event: message\n");
        for line in String::from_utf8_lossy(&self.text).split(['\n', '\r']) {
            out.push_str("data: ");
            out.push_str(line);
            out.push('\n');
        }
        out.push('\n');
        out.into()
    }
}

/// What a stream of a request's says, over all its parts.
pub(crate) struct Stream<'a> {
    upstream: &'a Upstream,
    uri: &'a Uri,
    headers: HeaderMap,
    events: Events,
    last: Option<String>,
    pause: Duration,
    resumes: u32,
}

impl Events {
    /// How much one stream may say before it has to be taken up again: it bounds a single event, too.
    const MOST: usize = 256 * 1024 * 1024;

    pub(crate) fn new(body: Incoming) -> Self {
        let bounded = Limited::new(body, Self::MOST).map_err(std::io::Error::other);
        Self {
            stream: SseStream::new(bounded.boxed_unsync()),
        }
    }

    /// The next event; nothing at the end, or where it broke off.
    pub(crate) async fn next(&mut self) -> Option<sse_stream::Sse> {
        let event = self.stream.next().await?.ok()?;
        let size = event.data.as_ref().map_or(0, String::len);
        (size <= MAX_BYTES).then_some(event)
    }
}

impl<'a> Stream<'a> {
    pub(crate) fn new(
        upstream: &'a Upstream,
        uri: &'a Uri,
        headers: HeaderMap,
        body: Incoming,
    ) -> Self {
        Self {
            upstream,
            uri,
            headers,
            events: Events::new(body),
            last: None,
            pause: RESUME_AFTER,
            resumes: 0,
        }
    }

    /// The next message and its event's name. A stream that breaks off is taken up again where the server has given its events names;
    /// nothing where it can't be.
    pub(crate) async fn next(&mut self) -> Option<Said> {
        loop {
            while let Some(event) = self.events.next().await {
                if event.id.is_some() {
                    self.last.clone_from(&event.id);
                }
                if let Some(retry) = event.retry {
                    self.pause = Duration::from_millis(retry.min(60_000));
                }
                if let Some(data) = event.data.filter(|data| !data.trim().is_empty()) {
                    self.resumes = 0;
                    let (text, event) = (data.into(), event.id);
                    return Some(Said { text, event });
                }
            }
            self.events = self.resumed().await?;
        }
    }

    async fn resumed(&mut self) -> Option<Events> {
        let last = self.last.clone()?;
        while self.resumes < RESUMES {
            self.resumes += 1;
            let mut pause = tokio::time::interval(self.pause.max(Duration::from_millis(1)));
            pause.tick().await;
            pause.tick().await;
            let headers = self.headers.clone();
            if let Some(events) = self.upstream.resume(self.uri, headers, &last).await {
                return Some(events);
            }
        }
        None
    }
}
