//! A server behind HTTP as one end of a session, for a caller on standard input and output.

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

use super::client::{Patience, Said, Stream, Upstream, is_event_stream, never_sent, whole};
use super::{IDEMPOTENCY_KEY, METHOD, NAME, SESSION, VERSION};
use crate::call::DOWNSTREAM;
use crate::members::Members;
use crate::message::{self, Id, Kind, Message};
use crate::session::{End, QUEUE};

/// The most messages that are on their way at once.
const AT_ONCE: usize = 256;

/// What the server has said about the session.
#[derive(Debug, Default)]
struct Agreed {
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
    listens: bool,
}

struct Link {
    upstream: Upstream,
    agreed: Mutex<Agreed>,
    say: mpsc::Sender<Bytes>,
    clock: Arc<dyn Clock>,
    limit: Option<Duration>,
}

impl Upstream {
    /// An end that posts what it is told, and says what the server answers. A request's answer that breaks off is asked
    /// for again until the request's `limit`.
    pub(crate) fn connect(self, clock: Arc<dyn Clock>, limit: Option<Duration>) -> End {
        let (say, says) = mpsc::channel(QUEUE);
        let (told, mut to_send) = mpsc::channel::<Bytes>(QUEUE);
        let link = Arc::new(Link {
            upstream: self,
            agreed: Mutex::default(),
            say,
            clock,
            limit,
        });
        tokio::spawn(async move {
            let mut sending = tokio::task::JoinSet::new();
            while let Some(text) = to_send.recv().await {
                let message = Message::new(text);
                // What begins a session is waited for: everything after it depends on what it brings.
                let is_first = matches!(
                    message.method(),
                    Some("initialize" | "notifications/initialized")
                );
                let link = Arc::clone(&link);
                if is_first {
                    link.post(message).await;
                } else {
                    while sending.len() >= AT_ONCE {
                        sending.join_next().await;
                    }
                    sending.spawn(async move { link.post(message).await });
                }
                while sending.try_join_next().is_some() {}
            }
            while sending.join_next().await.is_some() {}
            link.end().await;
        });
        End { says, told }
    }
}

impl Link {
    fn headers(&self, message: Option<&Message>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        let both = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(CONTENT_TYPE, json);
        headers.insert(ACCEPT, both);
        let agreed = self.agreed.lock();
        headers.extend(agreed.session.clone().map(|value| (SESSION, value)));
        headers.extend(agreed.version.clone().map(|value| (VERSION, value)));
        drop(agreed);
        if let Some(message) = message {
            modern(&mut headers, message);
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
                let why = match never_sent(&error) {
                    true => "the server can't be reached",
                    false => "the connection to the server ended",
                };
                // Saying nothing would leave the caller waiting; an error would say that nothing happened. Only
                // what was never sent is answered; a call that was, is found out by its own waiter.
                return self.failed(&message, why, never_sent(&error)).await;
            }
        };
        let status = response.status();
        self.agree(&message, response.headers());
        if is_event_stream(response.headers()) {
            let (_, body) = response.into_parts();
            let patience = Patience::new(Arc::clone(&self.clock), self.limit);
            let mut stream = Stream::new(&self.upstream, uri, headers, body, patience);
            let mut is_answered = false;
            while let Some(Said { text, .. }) = stream.next().await {
                let is_end = answers(&text, &message);
                self.said(&message, text).await;
                is_answered |= is_end;
                if is_end {
                    break;
                }
            }
            if !is_answered {
                self.failed(
                    &message,
                    "the server's stream ended without an answer",
                    false,
                )
                .await;
            }
        } else if status != StatusCode::ACCEPTED {
            match whole(response.into_body()).await {
                Some(text) if answers(&text, &message) => self.said(&message, text).await,
                _ => {
                    let why = format!("the server answered {status}");
                    self.failed(&message, &why, status.is_client_error()).await;
                }
            }
        }
        self.listen(&message);
    }

    async fn said(&self, to: &Message, text: Bytes) {
        if to.method() == Some("initialize") {
            let result = Members::parse(&text).and_then(|message| message.object("result"));
            let version = result.and_then(|result| result.read::<String>("protocolVersion"));
            let version = version.and_then(|version| HeaderValue::from_str(&version).ok());
            self.agreed.lock().version = version;
        }
        let _ = self.say.send(text).await;
    }

    /// A request that will get no answer: the caller is told so, as an error that a session takes apart.
    async fn failed(&self, message: &Message, why: &str, not_begun: bool) {
        tracing::warn!("{why}");
        if let Kind::Request { id, .. } = &message.kind {
            let code = if not_begun { -32600 } else { -32000 };
            let _ = self.say.send(message::error(id, code, why)).await;
        }
    }

    fn agree(&self, message: &Message, headers: &HeaderMap) {
        if message.method() == Some("initialize") {
            self.agreed.lock().session = headers.get(SESSION).cloned();
        }
    }

    /// Listens to what the server says unasked, once there is a session.
    fn listen(self: &Arc<Self>, message: &Message) {
        let is_ready = message.method() == Some("notifications/initialized");
        if !is_ready || std::mem::replace(&mut self.agreed.lock().listens, true) {
            return;
        }
        let link = Arc::downgrade(self);
        let (upstream, say) = (self.upstream.clone(), self.say.clone());
        let headers = self.headers(None);
        let patience = Patience::new(Arc::clone(&self.clock), None);
        tokio::spawn(async move {
            let uri = upstream.uri.clone();
            let listening = async {
                let mut stream = Stream::standing(&upstream, &uri, headers, patience);
                while let Some(Said { text, .. }) = stream.next().await {
                    say.send(text).await.ok()?;
                }
                Some(())
            };
            // Ends with the session: the channel to it must not be kept open by listening alone.
            let mut look = tokio::time::interval(Duration::from_millis(200));
            let gone = async {
                while link.strong_count() > 0 {
                    look.tick().await;
                }
            };
            tokio::select! { _ = listening => {}, () = gone => {} }
        });
    }

    /// Ends the session at the server.
    async fn end(&self) {
        if self.agreed.lock().session.is_some() {
            let headers = self.headers(None);
            let ended =
                self.upstream
                    .send(Method::DELETE, &self.upstream.uri, headers, Body::empty());
            let _ = tokio::time::timeout(Duration::from_secs(2), ended).await;
        }
    }
}

/// Whether `text` answers the request that `message` is.
fn answers(text: &Bytes, message: &Message) -> bool {
    let Kind::Request { id, .. } = &message.kind else {
        return false;
    };
    answers_id(text, id)
}

pub(crate) fn answers_id(text: &Bytes, id: &Id) -> bool {
    matches!(Message::new(text.clone()).kind, Kind::Response { id: of } if of == *id)
}

/// What is said in a request's head, too: the key for the systems behind, and what the protocol without sessions wants.
fn modern(headers: &mut HeaderMap, message: &Message) {
    let params = message.params();
    let meta = params.object("_meta").unwrap_or_default();
    let downstream = meta.read::<String>(DOWNSTREAM);
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
