//! Callers on HTTP, and a process of the server's for each of their sessions.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use parking_lot::Mutex;
use semel::core::Tick;
use tokio::sync::mpsc;

use super::SESSION;
use super::client::{EVENT_STREAM, Said};
use super::proxy::{caller, json, plain};
use crate::call::Caller;
use crate::gateway::Gateway;
use crate::message::{Id, Kind, MAX_BYTES, Message};
use crate::server::{Child, DRAIN};
use crate::session::{End, QUEUE, Session};

/// The most sessions at once, and how long one may be silent before another takes its place.
const MOST_SESSIONS: usize = 100;
const IDLE: Duration = Duration::from_secs(30 * 60);
/// The most messages kept for a caller that listens to none.
const MOST_UNHEARD: usize = 256;

/// Sessions, each with a server of its own.
pub(crate) struct Sessions {
    gateway: Arc<Gateway>,
    child: Child,
    principal: Option<HeaderName>,
    seats: Mutex<HashMap<String, Arc<Seat>>>,
}

/// One session as its caller's requests see it.
struct Seat {
    principal: String,
    tell: mpsc::Sender<Bytes>,
    heard: Mutex<Heard>,
    used: Mutex<Tick>,
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
    unheard: VecDeque<Bytes>,
}

impl Sessions {
    pub(crate) fn new(gateway: Arc<Gateway>, child: Child, principal: Option<HeaderName>) -> Self {
        Self {
            gateway,
            child,
            principal,
            seats: Mutex::default(),
        }
    }

    pub(crate) async fn handle(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let caller = caller(&self.gateway, self.principal.as_ref(), &parts.headers);
        match parts.method {
            Method::POST => {
                let Ok(body) = Limited::new(body, MAX_BYTES).collect().await else {
                    return plain(StatusCode::PAYLOAD_TOO_LARGE, "the message is too large");
                };
                self.post(caller, &parts.headers, Message::new(body.to_bytes()))
                    .await
            }
            Method::GET => match self.seat(&caller) {
                Some(seat) => seat.listen(),
                None => no_session(),
            },
            Method::DELETE => match self.seat(&caller) {
                Some(_) => {
                    self.seats.lock().remove(&caller.session);
                    Response::new(Body::empty())
                }
                None => no_session(),
            },
            _ => {
                let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "POST, GET or DELETE");
                let allowed = HeaderValue::from_static("POST, GET, DELETE");
                response.headers_mut().insert(ALLOW, allowed);
                response
            }
        }
    }

    /// The caller's session, if it is this caller's.
    fn seat(&self, caller: &Caller) -> Option<Arc<Seat>> {
        let seats = self.seats.lock();
        let seat = seats.get(&caller.session)?;
        if seat.principal != caller.principal {
            return None;
        }
        *seat.used.lock() = self.gateway.semel.engine().env().clock.now();
        Some(Arc::clone(seat))
    }

    async fn post(
        self: &Arc<Self>,
        caller: Caller,
        headers: &HeaderMap,
        message: Message,
    ) -> Response<Body> {
        if headers.contains_key(SESSION) {
            return match self.seat(&caller) {
                Some(seat) => seat.post(message).await,
                None => no_session(),
            };
        }
        if message.method() != Some("initialize") {
            return plain(StatusCode::BAD_REQUEST, "begin a session with initialize");
        }
        let (name, seat) = match self.open(caller) {
            Ok(opened) => opened,
            Err((status, why)) => return plain(status, why),
        };
        let mut response = seat.post(message).await;
        if let Ok(name) = HeaderValue::from_str(&name) {
            response.headers_mut().insert(SESSION, name);
        }
        response
    }

    /// A new session, with a server of its own.
    fn open(
        self: &Arc<Self>,
        caller: Caller,
    ) -> Result<(String, Arc<Seat>), (StatusCode, &'static str)> {
        let env = self.gateway.semel.engine().env();
        let now = env.clock.now();
        let mut seats = self.seats.lock();
        if seats.len() >= MOST_SESSIONS {
            seats.retain(|_, seat| now.since(*seat.used.lock()) < IDLE);
        }
        if seats.len() >= MOST_SESSIONS {
            return Err((StatusCode::SERVICE_UNAVAILABLE, "too many sessions"));
        }
        let (running, server) = self.child.start().map_err(|error| {
            tracing::error!("{error}");
            (StatusCode::BAD_GATEWAY, "the server can't be started")
        })?;
        let name = format!("{:032x}", env.entropy.next_u128());
        let (tell, says) = mpsc::channel(QUEUE);
        let (told, mut to_hear) = mpsc::channel::<Bytes>(QUEUE);
        let seat = Arc::new(Seat {
            principal: caller.principal.clone(),
            tell,
            heard: Mutex::default(),
            used: Mutex::new(now),
        });
        seats.insert(name.clone(), Arc::clone(&seat));
        drop(seats);
        let gateway = Arc::clone(&self.gateway);
        let session = name.clone();
        let caller = Caller {
            session: session.clone(),
            ..caller
        };
        tokio::spawn(async move {
            Session::run(gateway, caller, End { says, told }, server, DRAIN).await;
            running.end().await;
        });
        let (weak, sessions) = (Arc::downgrade(&seat), Arc::downgrade(self));
        tokio::spawn(async move {
            while let Some(text) = to_hear.recv().await {
                let Some(seat) = weak.upgrade() else { continue };
                seat.hear(text).await;
            }
            // The server has ended: so has the session, and every stream of it.
            if let Some(sessions) = sessions.upgrade() {
                sessions.seats.lock().remove(&session);
            }
            if let Some(seat) = weak.upgrade() {
                *seat.heard.lock() = Heard::default();
            }
        });
        Ok((name, seat))
    }
}

fn no_session() -> Response<Body> {
    plain(StatusCode::NOT_FOUND, "there is no such session")
}

impl Seat {
    async fn post(self: Arc<Self>, message: Message) -> Response<Body> {
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
            Some(text) if super::upstream::answers_id(&text, &id) => json(text),
            Some(first) => events(Some(first), says),
            None => plain(
                StatusCode::BAD_GATEWAY,
                "the server ended before it answered",
            ),
        }
    }

    fn listen(&self) -> Response<Body> {
        let (say, says) = mpsc::channel(QUEUE);
        let mut heard = self.heard.lock();
        if heard
            .listener
            .as_ref()
            .is_some_and(|listener| !listener.is_closed())
        {
            return plain(StatusCode::CONFLICT, "somebody listens already");
        }
        for text in heard.unheard.drain(..).take(QUEUE) {
            let _ = say.try_send(text);
        }
        heard.listener = Some(say);
        events(None, says)
    }

    /// Passes a message of the server's to whom it belongs.
    async fn hear(&self, text: Bytes) {
        let message = Message::new(text);
        let to = self.listener_of(&message);
        match to {
            Some(listener) => {
                if let Err(unheard) = listener.send(message.text).await {
                    self.keep(unheard.0);
                }
            }
            None => self.keep(message.text),
        }
    }

    fn keep(&self, text: Bytes) {
        let mut heard = self.heard.lock();
        if heard.unheard.len() >= MOST_UNHEARD {
            heard.unheard.pop_front();
        }
        heard.unheard.push_back(text);
    }

    fn listener_of(&self, message: &Message) -> Option<mpsc::Sender<Bytes>> {
        let mut heard = self.heard.lock();
        if let Kind::Response { id } = &message.kind {
            heard.progress.retain(|_, of| of != id);
            return heard.requests.remove(id);
        }
        let token = message
            .params()
            .get("progressToken")
            .map(|raw| raw.get().to_owned());
        let request = token.and_then(|token| heard.progress.get(token.as_str()).cloned());
        if let Some(listener) = request.and_then(|id| heard.requests.get(&id)) {
            return Some(listener.clone());
        }
        // What the server asks meanwhile is about a request that runs: its stream is sure to be read.
        let of_a_request = heard
            .requests
            .values()
            .find(|listener| !listener.is_closed());
        let listener = heard
            .listener
            .as_ref()
            .filter(|listener| !listener.is_closed());
        match message.kind {
            Kind::Request { .. } => of_a_request.or(listener).cloned(),
            _ => listener.or(of_a_request).cloned(),
        }
    }
}

/// A stream of events, to the end of the channel.
fn events(first: Option<Bytes>, says: mpsc::Receiver<Bytes>) -> Response<Body> {
    let body = stream::unfold((first, says), |(first, mut says)| async move {
        let text = match first {
            Some(text) => text,
            None => says.recv().await?,
        };
        let event = Said { text, event: None }.encode();
        Some((Ok::<_, std::convert::Infallible>(event), (None, says)))
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
