//! HTTP client for a server behind streamable HTTP, with resumable event streams.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::{ACCEPT, ACCEPT_LANGUAGE, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use semel::core::{Clock, Tick};
use sse_stream::SseStream;

use super::LAST_EVENT;
use super::host::is_loopback_host;
use crate::gateway::Gateway;
use crate::message::MAX_BYTES;

const CONNECT: Duration = Duration::from_secs(5);
/// The pause before an interrupted stream is resumed, unless the server names one. It doubles after
/// each failure, up to the maximum (exponential back-off).
const RESUME_AFTER: Duration = Duration::from_millis(500);
const RESUME_AT_LEAST: Duration = Duration::from_millis(10);
const RESUME_AT_MOST: Duration = Duration::from_secs(30);
/// A stream that lived this long resets the back-off even if it carried no event.
const LIVED: Duration = Duration::from_secs(10);

/// A server behind streamable HTTP.
#[derive(Clone, Debug)]
pub struct HttpUpstream {
    pub(crate) uri: Uri,
    /// Headers added to every request, such as `Authorization`.
    pub(crate) headers: HeaderMap,
    client: Client<HttpsConnector<HttpConnector>, Body>,
}

impl HttpUpstream {
    /// Creates a client for the server at `url`, which sends `headers` with every request.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn new(url: &str, headers: HeaderMap) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| format!("{url} is not a URL"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.authority().is_none() {
            return Err(format!(
                "{url} is not the URL of a server: write http://HOST:PORT/mcp"
            ));
        }
        let in_the_clear =
            uri.scheme_str() == Some("http") && !uri.host().is_some_and(is_loopback_host);
        if in_the_clear && headers.keys().any(is_credential) {
            return Err(format!(
                "a credential would be sent to {url} unencrypted\n    fix: https://"
            ));
        }
        // Names the provider explicitly, because a dependency may enable another one.
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(
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

    /// Whether the gateway adds a credential of its own to requests.
    #[must_use]
    pub fn has_own_credential(&self) -> bool {
        self.headers.keys().any(is_credential)
    }

    /// Sends a request. The caller has removed hop-by-hop headers.
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

    /// Opens an event stream: after the event `last`, or from now on.
    async fn open(&self, uri: &Uri, mut headers: HeaderMap, last: Option<&str>) -> StreamOpening {
        headers.insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        headers.remove(CONTENT_TYPE);
        if let Some(last) = last {
            let Ok(last) = HeaderValue::from_str(last) else {
                return StreamOpening::Refused;
            };
            headers.insert(LAST_EVENT, last);
        }
        let Ok(response) = self.send(Method::GET, uri, headers, Body::empty()).await else {
            return StreamOpening::NotNow;
        };
        match response.status() {
            status if status.is_success() && is_event_stream(response.headers()) => {
                StreamOpening::Events(Box::new(Events::new(response.into_body())))
            }
            status if is_transient(status) => StreamOpening::NotNow,
            _ => StreamOpening::Refused,
        }
    }
}

/// Headers that say nothing about who asks. Every other one may be a credential, since services
/// name theirs as they like.
static HARMLESS: [HeaderName; 9] = [
    ACCEPT,
    ACCEPT_LANGUAGE,
    CONTENT_TYPE,
    USER_AGENT,
    HeaderName::from_static("baggage"),
    HeaderName::from_static("mcp-protocol-version"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-request-id"),
];

fn is_credential(name: &HeaderName) -> bool {
    !HARMLESS.contains(name)
}

/// The result of opening a stream.
enum StreamOpening {
    Events(Box<Events>),
    /// The server may open it later.
    NotNow,
    /// The server has no such stream, or refuses it.
    Refused,
}

/// Whether a later request may succeed. This includes a conflict: the server may not have noticed
/// yet that the previous stream broke off.
fn is_transient(status: StatusCode) -> bool {
    let passing = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::CONFLICT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    let is_failure = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED;
    is_failure || passing.contains(&status)
}

/// Whether the connection failed before anything was sent.
pub(crate) fn is_connect_failure(error: &Error) -> bool {
    error.is_connect()
}

pub(crate) const EVENT_STREAM: &str = "text/event-stream";

pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().starts_with(EVENT_STREAM))
}

/// Reads a whole body of limited size.
pub(crate) async fn read_whole(body: Incoming) -> Option<Bytes> {
    let body = Limited::new(body, MAX_BYTES).collect().await.ok()?;
    Some(body.to_bytes())
}

/// The events of one HTTP response.
pub(crate) struct Events {
    stream: SseStream<UnsyncBoxBody<Bytes, std::io::Error>>,
    /// Whether it ended with an event above the size limit. Resuming would end in the same way.
    is_too_large: bool,
}

/// A message from a stream, with the ID of its event.
pub(crate) struct StreamMessage {
    pub(crate) text: Bytes,
    pub(crate) event: Option<String>,
}

impl StreamMessage {
    /// Encodes the message as a server-sent event.
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

/// How long an interrupted stream is resumed.
pub(crate) struct ResumeLimit {
    clock: Arc<dyn Clock>,
    /// The end of the time; `None` means no limit.
    until: Option<Tick>,
}

impl ResumeLimit {
    /// A limit that starts now.
    pub(crate) fn new(clock: Arc<dyn Clock>, limit: Option<Duration>) -> Self {
        let until = limit.map(|limit| clock.now().plus(limit));
        Self { clock, until }
    }

    /// A limit as long as a call of this gateway may take.
    pub(crate) fn for_calls(gateway: &Gateway) -> Self {
        Self::new(gateway.clock(), gateway.settings.limit())
    }
}

/// A stream of messages that resumes after interruptions.
pub(crate) struct Stream<'a> {
    upstream: &'a HttpUpstream,
    uri: &'a Uri,
    headers: HeaderMap,
    resume_limit: ResumeLimit,
    /// Whether it carries unsolicited messages. Such a stream may start again without an event ID.
    is_unsolicited: bool,
    /// `None` before an unsolicited stream is first opened.
    events: Option<Box<Events>>,
    opened: Tick,
    last: Option<String>,
    /// The pause that the server asked for, and the current back-off.
    pause: Duration,
    wait: Duration,
}

impl Events {
    /// The largest number of bytes of one response. It bounds a single event, too.
    const MOST: usize = 256 * 1024 * 1024;

    pub(crate) fn new(body: Incoming) -> Self {
        let bounded = Limited::new(body, Self::MOST).map_err(std::io::Error::other);
        Self {
            stream: SseStream::new(bounded.boxed_unsync()),
            is_too_large: false,
        }
    }

    /// The next event; `None` at the end of the response or after an interruption.
    pub(crate) async fn next(&mut self) -> Option<sse_stream::Sse> {
        let event = self.stream.next().await?.ok()?;
        let size = event.data.as_ref().map_or(0, String::len);
        self.is_too_large = size > MAX_BYTES;
        (!self.is_too_large).then_some(event)
    }
}

impl<'a> Stream<'a> {
    /// The stream of a request, which begins with `body`.
    pub(crate) fn new(
        upstream: &'a HttpUpstream,
        uri: &'a Uri,
        headers: HeaderMap,
        body: Incoming,
        resume_limit: ResumeLimit,
    ) -> Self {
        Self {
            is_unsolicited: false,
            events: Some(Box::new(Events::new(body))),
            wait: RESUME_AFTER,
            ..Self::unsolicited(upstream, uri, headers, resume_limit)
        }
    }

    /// The stream of messages that the server sends unsolicited.
    pub(crate) fn unsolicited(
        upstream: &'a HttpUpstream,
        uri: &'a Uri,
        headers: HeaderMap,
        resume_limit: ResumeLimit,
    ) -> Self {
        Self {
            upstream,
            uri,
            headers,
            is_unsolicited: true,
            events: None,
            opened: resume_limit.clock.now(),
            last: None,
            pause: RESUME_AFTER,
            wait: Duration::ZERO,
            resume_limit,
        }
    }

    /// The next message. An interrupted stream resumes after the last event ID; `None` if it cannot
    /// resume.
    pub(crate) async fn next(&mut self) -> Option<StreamMessage> {
        loop {
            while let Some(event) = self.next_event().await {
                if event.id.is_some() {
                    self.last.clone_from(&event.id);
                }
                if let Some(retry) = event.retry {
                    let retry = Duration::from_millis(retry.min(60_000));
                    self.pause = retry.max(RESUME_AT_LEAST);
                }
                // An event arrived: reset the back-off.
                self.wait = self.pause;
                if let Some(data) = event.data.filter(|data| !data.trim().is_empty()) {
                    let (text, event) = (data.into(), event.id);
                    return Some(StreamMessage { text, event });
                }
            }
            self.events = Some(self.resume().await?);
        }
    }

    async fn next_event(&mut self) -> Option<sse_stream::Sse> {
        self.events.as_mut()?.next().await
    }

    async fn resume(&mut self) -> Option<Box<Events>> {
        let is_too_large = self.events.as_ref().is_some_and(|of| of.is_too_large);
        if is_too_large || (self.last.is_none() && !self.is_unsolicited) {
            return None;
        }
        let clock = Arc::clone(&self.resume_limit.clock);
        if self.events.is_some() && clock.now().since(self.opened) >= LIVED {
            self.wait = self.pause;
        }
        while self
            .resume_limit
            .until
            .is_none_or(|until| clock.now() < until)
        {
            clock.sleep(self.wait).await;
            let most = RESUME_AT_MOST.max(self.pause);
            self.wait = (self.wait * 2).clamp(self.pause, most);
            let (headers, last) = (self.headers.clone(), self.last.as_deref());
            match self.upstream.open(self.uri, headers, last).await {
                StreamOpening::Events(events) => {
                    self.opened = clock.now();
                    return Some(events);
                }
                StreamOpening::NotNow => {}
                StreamOpening::Refused => return None,
            }
        }
        None
    }
}
