//! [`HttpSession`]: one session of an HTTP caller. It routes each message of the server to the
//! right stream.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use parking_lot::Mutex;
use semel::core::Tick;
use tokio::sync::mpsc;

use super::client::{EVENT_STREAM, StreamMessage};
use super::proxy::{error_response, json_response};
use super::upstream::is_response_to;
use crate::message::{Id, Kind, Message};
use crate::peer::QUEUE;

/// The largest backlog of messages for a caller that reads no stream, or reads too slowly.
const MAX_BACKLOG: usize = 256;

/// A session, as the requests of its caller see it.
pub(super) struct HttpSession {
    pub(super) owner: [String; 2],
    to_server: mpsc::Sender<Bytes>,
    streams: Mutex<SessionStreams>,
    pub(super) used: Mutex<Tick>,
}

/// The open streams of a session.
#[derive(Default)]
struct SessionStreams {
    /// The streams of requests that have no response yet.
    requests: HashMap<Id, mpsc::Sender<Bytes>>,
    /// The request that a progress token belongs to.
    progress: HashMap<Box<str>, Id>,
    /// The stream for messages that belong to no request.
    listener: Option<mpsc::Sender<Bytes>>,
    /// Messages that wait for the listener, in order.
    backlog: VecDeque<Bytes>,
}

impl SessionStreams {
    /// The listener, if it is still connected.
    fn listener(&self) -> Option<&mpsc::Sender<Bytes>> {
        self.listener.as_ref().filter(|of| !of.is_closed())
    }

    fn keep(&mut self, text: Bytes) {
        if self.backlog.len() >= MAX_BACKLOG {
            self.backlog.pop_front();
        }
        self.backlog.push_back(text);
        self.flush();
    }

    /// Sends the backlog to the listener, as far as its channel has room.
    fn flush(&mut self) {
        while let Some(listener) = &self.listener
            && let Ok(place) = listener.try_reserve()
            && let Some(text) = self.backlog.pop_front()
        {
            place.send(text);
        }
    }

    /// The stream of the request that a message belongs to; `None` for messages to the listener.
    fn stream_of(&mut self, message: &Message) -> Option<mpsc::Sender<Bytes>> {
        if let Kind::Response { id } = &message.kind {
            self.progress.retain(|_, of| of != id);
            return self.requests.remove(id);
        }
        let token = message
            .params()
            .get("progressToken")
            .map(|raw| raw.get().to_owned());
        let request = token.and_then(|token| self.progress.get(token.as_str()));
        if let Some(stream) = request.and_then(|id| self.requests.get(id)) {
            return Some(stream.clone());
        }
        // A request of the server belongs to a running call, whose stream is certainly read.
        let is_asked = matches!(message.kind, Kind::Request { .. });
        if !is_asked && self.listener().is_some() {
            return None;
        }
        self.requests.values().find(|of| !of.is_closed()).cloned()
    }
}

pub(super) fn session_not_found() -> Response<Body> {
    error_response(StatusCode::NOT_FOUND, "there is no such session")
}

impl HttpSession {
    pub(super) fn new(owner: [String; 2], to_server: mpsc::Sender<Bytes>, now: Tick) -> Self {
        Self {
            owner,
            to_server,
            streams: Mutex::default(),
            used: Mutex::new(now),
        }
    }

    pub(super) async fn post(self: Arc<Self>, message: Message) -> Response<Body> {
        let Kind::Request { id, .. } = message.kind.clone() else {
            let is_sent = self.to_server.send(message.text).await.is_ok();
            return match is_sent {
                true => {
                    let mut response = Response::new(Body::empty());
                    *response.status_mut() = StatusCode::ACCEPTED;
                    response
                }
                false => session_not_found(),
            };
        };
        let (sender, mut events_of) = mpsc::channel(QUEUE);
        {
            let mut streams = self.streams.lock();
            let meta = message.params().object("_meta").unwrap_or_default();
            if let Some(token) = meta.get("progressToken") {
                streams.progress.insert(token.get().into(), id.clone());
            }
            streams.requests.insert(id.clone(), sender);
        }
        if self.to_server.send(message.text).await.is_err() {
            return session_not_found();
        }
        // If the caller disconnects, the receiver is dropped with the body, and the call goes on.
        match events_of.recv().await {
            Some(text) if is_response_to(&text, &id) => json_response(text),
            Some(first) => events(Some(first), events_of, Weak::new()),
            None => error_response(
                StatusCode::BAD_GATEWAY,
                "the server ended before it answered",
            ),
        }
    }

    pub(super) fn listen(self: &Arc<Self>) -> Response<Body> {
        let (sender, events_of) = mpsc::channel(QUEUE);
        let mut streams = self.streams.lock();
        if streams.listener().is_some() {
            return error_response(StatusCode::CONFLICT, "somebody listens already");
        }
        streams.listener = Some(sender);
        streams.flush();
        events(None, events_of, Arc::downgrade(self))
    }

    /// Delivers a message of the server to its stream without waiting, so that one slow stream does
    /// not block the others.
    pub(super) fn deliver(&self, text: Bytes) {
        let message = Message::new(text);
        let mut streams = self.streams.lock();
        let backlog = match streams.stream_of(&message) {
            Some(stream) => try_deliver(&stream, message),
            None => Some(message.text),
        };
        if let Some(text) = backlog {
            streams.keep(text);
        }
    }

    /// Closes every stream, because the server has ended.
    pub(super) fn end(&self) {
        *self.streams.lock() = SessionStreams::default();
    }
}

/// Sends a message to a request's stream, and reserves the last place for the response. Returns the
/// message if there is no room.
fn try_deliver(stream: &mpsc::Sender<Bytes>, message: Message) -> Option<Bytes> {
    let is_answer = matches!(message.kind, Kind::Response { .. });
    if !is_answer && stream.capacity() <= 1 {
        return Some(message.text);
    }
    let backlog = stream.try_send(message.text).err()?;
    Some(backlog.into_inner())
}

/// A response that streams events until the channel closes. For a listener it also sends the
/// backlog.
fn events(
    first: Option<Bytes>,
    events_of: mpsc::Receiver<Bytes>,
    listening: Weak<HttpSession>,
) -> Response<Body> {
    let body = stream::unfold((first, events_of), move |(first, mut events_of)| {
        let listening = listening.clone();
        async move {
            let text = match first {
                Some(text) => text,
                None => events_of.recv().await?,
            };
            if let Some(session) = listening.upgrade() {
                session.streams.lock().flush();
            }
            let event = StreamMessage { text, event: None }.encode();
            Some((Ok::<_, std::convert::Infallible>(event), (None, events_of)))
        }
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
