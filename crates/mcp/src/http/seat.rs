//! One session of a caller on HTTP: which of its streams a message of the server's belongs to.

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

use super::client::{EVENT_STREAM, Said};
use super::proxy::{json, plain};
use super::upstream::answers_id;
use crate::message::{Id, Kind, Message};
use crate::session::QUEUE;

/// The most messages kept for a caller that listens to none, or not as fast as they come.
const MOST_UNHEARD: usize = 256;

/// One session as its caller's requests see it.
pub(super) struct Seat {
    pub(super) whose: [String; 2],
    tell: mpsc::Sender<Bytes>,
    heard: Mutex<Heard>,
    pub(super) used: Mutex<Tick>,
}

/// Who listens to what.
#[derive(Default)]
struct Heard {
    /// The streams of requests that have no answer yet.
    requests: HashMap<Id, mpsc::Sender<Bytes>>,
    /// Which request a progress belongs to.
    progress: HashMap<Box<str>, Id>,
    /// Whoever listens to what belongs to no request.
    listener: Option<mpsc::Sender<Bytes>>,
    /// What waits for a listener, or for one to take more, in order.
    unheard: VecDeque<Bytes>,
}

impl Heard {
    /// A listener, if it is still there.
    fn listener(&self) -> Option<&mpsc::Sender<Bytes>> {
        self.listener.as_ref().filter(|of| !of.is_closed())
    }

    fn keep(&mut self, text: Bytes) {
        if self.unheard.len() >= MOST_UNHEARD {
            self.unheard.pop_front();
        }
        self.unheard.push_back(text);
        self.tell();
    }

    /// Tells the listener as much as it takes.
    fn tell(&mut self) {
        while let Some(listener) = &self.listener
            && let Ok(place) = listener.try_reserve()
            && let Some(text) = self.unheard.pop_front()
        {
            place.send(text);
        }
    }

    /// The stream of the request that a message belongs to; none where it is for whoever listens.
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
        // What the server asks meanwhile is about a request that runs: its stream is sure to be read.
        let is_asked = matches!(message.kind, Kind::Request { .. });
        if !is_asked && self.listener().is_some() {
            return None;
        }
        self.requests.values().find(|of| !of.is_closed()).cloned()
    }
}

pub(super) fn no_session() -> Response<Body> {
    plain(StatusCode::NOT_FOUND, "there is no such session")
}

impl Seat {
    pub(super) fn new(whose: [String; 2], tell: mpsc::Sender<Bytes>, now: Tick) -> Self {
        Self {
            whose,
            tell,
            heard: Mutex::default(),
            used: Mutex::new(now),
        }
    }

    pub(super) async fn post(self: Arc<Self>, message: Message) -> Response<Body> {
        let Kind::Request { id, .. } = message.kind.clone() else {
            let is_told = self.tell.send(message.text).await.is_ok();
            return match is_told {
                true => {
                    let mut response = Response::new(Body::empty());
                    *response.status_mut() = StatusCode::ACCEPTED;
                    response
                }
                false => no_session(),
            };
        };
        let (say, mut says) = mpsc::channel(QUEUE);
        {
            let mut heard = self.heard.lock();
            let meta = message.params().object("_meta").unwrap_or_default();
            if let Some(token) = meta.get("progressToken") {
                heard.progress.insert(token.get().into(), id.clone());
            }
            heard.requests.insert(id.clone(), say);
        }
        if self.tell.send(message.text).await.is_err() {
            return no_session();
        }
        // Dropped with the body, should the caller go: the call itself goes on.
        match says.recv().await {
            Some(text) if answers_id(&text, &id) => json(text),
            Some(first) => events(Some(first), says, Weak::new()),
            None => plain(
                StatusCode::BAD_GATEWAY,
                "the server ended before it answered",
            ),
        }
    }

    pub(super) fn listen(self: &Arc<Self>) -> Response<Body> {
        let (say, says) = mpsc::channel(QUEUE);
        let mut heard = self.heard.lock();
        if heard.listener().is_some() {
            return plain(StatusCode::CONFLICT, "somebody listens already");
        }
        heard.listener = Some(say);
        heard.tell();
        events(None, says, Arc::downgrade(self))
    }

    /// Passes a message of the server's to whom it belongs. Waits for nobody: a caller that reads one of its streams slowly
    /// must not keep the answers on the others back.
    pub(super) fn hear(&self, text: Bytes) {
        let message = Message::new(text);
        let mut heard = self.heard.lock();
        let unheard = match heard.stream_of(&message) {
            Some(stream) => told(&stream, message),
            None => Some(message.text),
        };
        if let Some(text) = unheard {
            heard.keep(text);
        }
    }

    /// The server has ended: so has every stream.
    pub(super) fn end(&self) {
        *self.heard.lock() = Heard::default();
    }
}

/// Tells it to a request's stream, whose last place is for its answer. → what it doesn't take.
fn told(stream: &mpsc::Sender<Bytes>, message: Message) -> Option<Bytes> {
    let is_answer = matches!(message.kind, Kind::Response { .. });
    if !is_answer && stream.capacity() <= 1 {
        return Some(message.text);
    }
    let unheard = stream.try_send(message.text).err()?;
    Some(unheard.into_inner())
}

/// A stream of events, to the end of the channel. A listener's gets what was kept for it, as it is read.
fn events(
    first: Option<Bytes>,
    says: mpsc::Receiver<Bytes>,
    listens_to: Weak<Seat>,
) -> Response<Body> {
    let body = stream::unfold((first, says), move |(first, mut says)| {
        let listens_to = listens_to.clone();
        async move {
            let text = match first {
                Some(text) => text,
                None => says.recv().await?,
            };
            if let Some(seat) = listens_to.upgrade() {
                seat.heard.lock().tell();
            }
            let event = Said { text, event: None }.encode();
            Some((Ok::<_, std::convert::Infallible>(event), (None, says)))
        }
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
