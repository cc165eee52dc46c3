//! Requests to a server behind streamable HTTP.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::{ACCEPT, CONTENT_TYPE, COOKIE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use semel::core::{Clock, Tick};
use semel::http::CREDENTIAL_HEADERS;
use sse_stream::SseStream;

use super::LAST_EVENT;
use super::serve::is_this_machine;
use crate::message::MAX_BYTES;

const CONNECT: Duration = Duration::from_secs(5);
/// How long to wait before a stream of events that broke off is taken up again, unless the server says; twice as long each
/// time that nothing comes of it, up to the most.
const RESUME_AFTER: Duration = Duration::from_millis(500);
const RESUME_AT_LEAST: Duration = Duration::from_millis(10);
const RESUME_AT_MOST: Duration = Duration::from_secs(30);
/// How long a stream has to live to count as one that came to something, though nothing was said.
const LIVED: Duration = Duration::from_secs(10);

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
        let in_the_clear =
            uri.scheme_str() == Some("http") && !uri.host().is_some_and(is_this_machine);
        if in_the_clear && headers.keys().any(is_credential) {
            return Err(format!(
                "a credential would be sent to {url} in the clear: write https://"
            ));
        }
        // The same provider as everywhere: some dependency may have brought another.
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

    /// Whether requests are sent with a credential that isn't their caller's.
    #[must_use]
    pub fn lends(&self) -> bool {
        self.headers.keys().any(is_credential)
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

    /// Asks for a stream of events: what comes after the event `last`, or what is said from now on.
    async fn open(&self, uri: &Uri, mut headers: HeaderMap, last: Option<&str>) -> Opened {
        headers.insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        headers.remove(CONTENT_TYPE);
        if let Some(last) = last {
            let Ok(last) = HeaderValue::from_str(last) else {
                return Opened::Refused;
            };
            headers.insert(LAST_EVENT, last);
        }
        let Ok(response) = self.send(Method::GET, uri, headers, Body::empty()).await else {
            return Opened::NotNow;
        };
        match response.status() {
            status if status.is_success() && is_event_stream(response.headers()) => {
                Opened::Events(Box::new(Events::new(response.into_body())))
            }
            status if is_passing(status) => Opened::NotNow,
            _ => Opened::Refused,
        }
    }
}

fn is_credential(name: &HeaderName) -> bool {
    *name == COOKIE || CREDENTIAL_HEADERS.contains(name)
}

/// What became of asking for a stream.
enum Opened {
    Events(Box<Events>),
    /// It may be had later.
    NotNow,
    /// The server has no such stream, or not for us.
    Refused,
}

/// Whether a server that answers so may answer otherwise after a while. A conflict is one: the server may not have noticed
/// yet that the stream before this one broke off.
fn is_passing(status: StatusCode) -> bool {
    let passing = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::CONFLICT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    let is_failure = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED;
    is_failure || passing.contains(&status)
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
    /// Whether it ended with an event that is too large: taken up again, it would end with the same.
    is_too_large: bool,
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

/// How long a stream that broke off is taken up again.
pub(crate) struct Patience {
    clock: Arc<dyn Clock>,
    /// For ever, where there is no end.
    until: Option<Tick>,
}

impl Patience {
    /// For as long as `limit`, from now.
    pub(crate) fn new(clock: Arc<dyn Clock>, limit: Option<Duration>) -> Self {
        let until = limit.map(|limit| clock.now().plus(limit));
        Self { clock, until }
    }
}

/// What a stream of events says, over all its parts.
pub(crate) struct Stream<'a> {
    upstream: &'a Upstream,
    uri: &'a Uri,
    headers: HeaderMap,
    patience: Patience,
    /// Whether it may begin anew where it can't go on: what is said unasked has no beginning.
    is_standing: bool,
    /// None before the first part of one that is standing.
    events: Option<Box<Events>>,
    opened: Tick,
    last: Option<String>,
    /// How long to wait before the next part by the server's word, and by how often it was in vain.
    pause: Duration,
    wait: Duration,
}

impl Events {
    /// How much one stream may say before it has to be taken up again: it bounds a single event, too.
    const MOST: usize = 256 * 1024 * 1024;

    pub(crate) fn new(body: Incoming) -> Self {
        let bounded = Limited::new(body, Self::MOST).map_err(std::io::Error::other);
        Self {
            stream: SseStream::new(bounded.boxed_unsync()),
            is_too_large: false,
        }
    }

    /// The next event; nothing at the end, or where it broke off.
    pub(crate) async fn next(&mut self) -> Option<sse_stream::Sse> {
        let event = self.stream.next().await?.ok()?;
        let size = event.data.as_ref().map_or(0, String::len);
        self.is_too_large = size > MAX_BYTES;
        (!self.is_too_large).then_some(event)
    }
}

impl<'a> Stream<'a> {
    /// The stream that `body` begins: a request's.
    pub(crate) fn new(
        upstream: &'a Upstream,
        uri: &'a Uri,
        headers: HeaderMap,
        body: Incoming,
        patience: Patience,
    ) -> Self {
        Self {
            is_standing: false,
            events: Some(Box::new(Events::new(body))),
            wait: RESUME_AFTER,
            ..Self::standing(upstream, uri, headers, patience)
        }
    }

    /// What the server says unasked.
    pub(crate) fn standing(
        upstream: &'a Upstream,
        uri: &'a Uri,
        headers: HeaderMap,
        patience: Patience,
    ) -> Self {
        Self {
            upstream,
            uri,
            headers,
            is_standing: true,
            events: None,
            opened: patience.clock.now(),
            last: None,
            pause: RESUME_AFTER,
            wait: Duration::ZERO,
            patience,
        }
    }

    /// The next message and its event's name. A stream that breaks off is taken up again where the server has given its events names;
    /// nothing where it can't be.
    pub(crate) async fn next(&mut self) -> Option<Said> {
        loop {
            while let Some(event) = self.heard().await {
                if event.id.is_some() {
                    self.last.clone_from(&event.id);
                }
                if let Some(retry) = event.retry {
                    let retry = Duration::from_millis(retry.min(60_000));
                    self.pause = retry.max(RESUME_AT_LEAST);
                }
                // It came to something: the next time begins anew.
                self.wait = self.pause;
                if let Some(data) = event.data.filter(|data| !data.trim().is_empty()) {
                    let (text, event) = (data.into(), event.id);
                    return Some(Said { text, event });
                }
            }
            self.events = Some(self.resumed().await?);
        }
    }

    async fn heard(&mut self) -> Option<sse_stream::Sse> {
        self.events.as_mut()?.next().await
    }

    async fn resumed(&mut self) -> Option<Box<Events>> {
        let is_too_large = self.events.as_ref().is_some_and(|of| of.is_too_large);
        if is_too_large || (self.last.is_none() && !self.is_standing) {
            return None;
        }
        let clock = Arc::clone(&self.patience.clock);
        if self.events.is_some() && clock.now().since(self.opened) >= LIVED {
            self.wait = self.pause;
        }
        while self.patience.until.is_none_or(|until| clock.now() < until) {
            clock.sleep(self.wait).await;
            let most = RESUME_AT_MOST.max(self.pause);
            self.wait = (self.wait * 2).clamp(self.pause, most);
            let (headers, last) = (self.headers.clone(), self.last.as_deref());
            match self.upstream.open(self.uri, headers, last).await {
                Opened::Events(events) => {
                    self.opened = clock.now();
                    return Some(events);
                }
                Opened::NotNow => {}
                Opened::Refused => return None,
            }
        }
        None
    }
}
