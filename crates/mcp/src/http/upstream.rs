//! Connects a server behind HTTP as one end of a session, for a caller on standard input and
//! output.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use semel::core::Clock;
use tokio::sync::mpsc;

use super::client::{
    HttpUpstream, ResumeLimit, Stream, StreamMessage, is_connect_failure, is_event_stream,
    read_whole,
};
use super::{IDEMPOTENCY_KEY, METHOD, NAME, SESSION, VERSION};
use crate::call::DOWNSTREAM_KEY;
use crate::members::Members;
use crate::message::{self, Id, Kind, Message};
use crate::peer::{Peer, QUEUE};

/// How often to look whether the session is still there.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The largest number of messages in flight.
const MAX_IN_FLIGHT: usize = 256;

/// What the server said when the session began.
#[derive(Debug, Default)]
struct SessionTerms {
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
    listens: bool,
}

struct Link {
    upstream: HttpUpstream,
    terms: Mutex<SessionTerms>,
    say: mpsc::Sender<Bytes>,
    clock: Arc<dyn Clock>,
    limit: Option<Duration>,
}

impl HttpUpstream {
    /// Connects to the server. Messages are posted, and an interrupted response is resumed until
    /// `limit`.
    pub(crate) fn connect(self, clock: Arc<dyn Clock>, limit: Option<Duration>) -> Peer {
        let (say, incoming) = mpsc::channel(QUEUE);
        let (outgoing, mut to_send) = mpsc::channel::<Bytes>(QUEUE);
        let link = Arc::new(Link {
            upstream: self,
            terms: Mutex::default(),
            say,
            clock,
            limit,
        });
        tokio::spawn(async move {
            let mut sending = tokio::task::JoinSet::new();
            while let Some(text) = to_send.recv().await {
                let message = Message::new(text);
                // The handshake is awaited, because later messages depend on its result.
                let is_first = matches!(
                    message.method(),
                    Some("initialize" | "notifications/initialized")
                );
                let link = Arc::clone(&link);
                if is_first {
                    link.post(message).await;
                } else {
                    while sending.len() >= MAX_IN_FLIGHT {
                        sending.join_next().await;
                    }
                    sending.spawn(async move { link.post(message).await });
                }
                while sending.try_join_next().is_some() {}
            }
            while sending.join_next().await.is_some() {}
            link.end().await;
        });
        Peer { incoming, outgoing }
    }
}

impl Link {
    fn headers(&self, message: Option<&Message>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        let both = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(CONTENT_TYPE, json);
        headers.insert(ACCEPT, both);
        let terms = self.terms.lock();
        headers.extend(terms.session.clone().map(|value| (SESSION, value)));
        headers.extend(terms.version.clone().map(|value| (VERSION, value)));
        drop(terms);
        if let Some(message) = message {
            add_message_headers(&mut headers, message);
        }
        headers
    }

    async fn post(self: &Arc<Self>, message: Message) {
        let headers = self.headers(Some(&message));
        let uri = &self.upstream.uri;
        let body = Body::from(message.text.clone());
        let sent = self
            .upstream
            .send(Method::POST, uri, headers.clone(), body)
            .await;
        let response = match sent {
            Ok(response) => response,
            Err(error) => {
                let why = match is_connect_failure(&error) {
                    true => "the server can't be reached",
                    false => "the connection to the server ended",
                };
                // A request that was never sent gets an error that says so. A request that was sent
                // gets an error that leaves its outcome open.
                return self
                    .report_failure(&message, why, is_connect_failure(&error))
                    .await;
            }
        };
        let status = response.status();
        self.remember_session(&message, response.headers());
        if is_event_stream(response.headers()) {
            let (_, body) = response.into_parts();
            let resume_limit = ResumeLimit::new(Arc::clone(&self.clock), self.limit);
            let mut stream = Stream::new(&self.upstream, uri, headers, body, resume_limit);
            let mut is_answered = false;
            while let Some(StreamMessage { text, .. }) = stream.next().await {
                let is_end = is_answer_to(&text, &message);
                self.pass_on(&message, text).await;
                is_answered |= is_end;
                if is_end {
                    break;
                }
            }
            if !is_answered {
                self.report_failure(
                    &message,
                    "the server's stream ended without an answer",
                    false,
                )
                .await;
            }
        } else if status != StatusCode::ACCEPTED {
            match read_whole(response.into_body()).await {
                Some(text) if is_answer_to(&text, &message) => self.pass_on(&message, text).await,
                _ => {
                    let why = format!("the server answered {status}");
                    self.report_failure(&message, &why, status.is_client_error())
                        .await;
                }
            }
        }
        self.listen(&message);
    }

    async fn pass_on(&self, to: &Message, text: Bytes) {
        if to.method() == Some("initialize") {
            let result = Members::parse(&text).and_then(|message| message.object("result"));
            let version = result.and_then(|result| result.read::<String>("protocolVersion"));
            let version = version.and_then(|version| HeaderValue::from_str(&version).ok());
            self.terms.lock().version = version;
        }
        let _ = self.say.send(text).await;
    }

    /// Reports to the caller that a request gets no response. The error code says whether the
    /// server may have begun.
    async fn report_failure(&self, message: &Message, why: &str, not_begun: bool) {
        tracing::warn!("{why}");
        if let Kind::Request { id, .. } = &message.kind {
            let code = if not_begun { -32600 } else { -32000 };
            let _ = self.say.send(message::error(id, code, why)).await;
        }
    }

    fn remember_session(&self, message: &Message, headers: &HeaderMap) {
        if message.method() == Some("initialize") {
            self.terms.lock().session = headers.get(SESSION).cloned();
        }
    }

    /// Listens for unsolicited messages once the session has begun.
    fn listen(self: &Arc<Self>, message: &Message) {
        let is_ready = message.method() == Some("notifications/initialized");
        if !is_ready || std::mem::replace(&mut self.terms.lock().listens, true) {
            return;
        }
        let link = Arc::downgrade(self);
        let (upstream, say) = (self.upstream.clone(), self.say.clone());
        let headers = self.headers(None);
        let clock = Arc::clone(&self.clock);
        let resume_limit = ResumeLimit::new(Arc::clone(&clock), None);
        tokio::spawn(async move {
            let uri = upstream.uri.clone();
            let listening = async {
                let mut stream = Stream::unsolicited(&upstream, &uri, headers, resume_limit);
                while let Some(StreamMessage { text, .. }) = stream.next().await {
                    say.send(text).await.ok()?;
                }
                Some(())
            };
            // The task holds a weak reference, so that listening does not keep the session alive.
            let gone = async {
                while link.strong_count() > 0 {
                    clock.sleep(LOOK_EVERY).await;
                }
            };
            tokio::select! { _ = listening => {}, () = gone => {} }
        });
    }

    /// Ends the session at the server.
    async fn end(&self) {
        if self.terms.lock().session.is_some() {
            let headers = self.headers(None);
            let ended =
                self.upstream
                    .send(Method::DELETE, &self.upstream.uri, headers, Body::empty());
            let _ = self.clock.timeout(Duration::from_secs(2), ended).await;
        }
    }
}

/// Whether `text` is the response to `message`.
fn is_answer_to(text: &Bytes, message: &Message) -> bool {
    let Kind::Request { id, .. } = &message.kind else {
        return false;
    };
    is_response_to(text, id)
}

pub(crate) fn is_response_to(text: &Bytes, id: &Id) -> bool {
    matches!(Message::new(text.clone()).kind, Kind::Response { id: of } if of == *id)
}

/// Adds the headers that a message needs: the downstream key, and those of the protocol without
/// sessions.
fn add_message_headers(headers: &mut HeaderMap, message: &Message) {
    let params = message.params();
    let meta = params.object("_meta").unwrap_or_default();
    let downstream = meta.read::<String>(DOWNSTREAM_KEY);
    if let Some(key) = downstream.and_then(|key| HeaderValue::from_str(&key).ok()) {
        headers.insert(IDEMPOTENCY_KEY, key);
    }
    let Some(version) = meta.read::<String>("io.modelcontextprotocol/protocolVersion") else {
        return;
    };
    let name = match message.method() {
        Some("tools/call" | "prompts/get") => params.read::<String>("name"),
        Some("resources/read") => params.read::<String>("uri"),
        _ => None,
    };
    let method = message.method().map(str::to_owned);
    let mut set = |header: HeaderName, value: Option<String>| {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
            headers.insert(header, value);
        }
    };
    set(VERSION, Some(version));
    set(METHOD, method);
    set(NAME, name);
}
