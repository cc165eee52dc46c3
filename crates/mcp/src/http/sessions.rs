//! Callers on HTTP, and a process of the server's for each of their sessions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::ALLOW;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::SESSION;
use super::proxy::{caller, plain};
use super::seat::{Seat, no_session};
use crate::call::Caller;
use crate::gateway::Gateway;
use crate::message::{MAX_BYTES, Message};
use crate::server::{Child, DRAIN};
use crate::session::{End, QUEUE, Session};

/// The most sessions at once, and how long one may be silent before another takes its place.
const MOST_SESSIONS: usize = 100;
const IDLE: Duration = Duration::from_secs(30 * 60);

/// Sessions, each with a server of its own.
pub(crate) struct Sessions {
    gateway: Arc<Gateway>,
    child: Child,
    principal: Option<HeaderName>,
    seats: Mutex<HashMap<String, Arc<Seat>>>,
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
        let caller = match caller {
            Ok(caller) => caller,
            Err(refused) => return refused,
        };
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
        if seat.whose != whose(caller) {
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
        let seat = Arc::new(Seat::new(whose(&caller), tell, now));
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
                seat.hear(text);
            }
            // The server has ended: so has the session, and every stream of it.
            if let Some(sessions) = sessions.upgrade() {
                sessions.seats.lock().remove(&session);
            }
            if let Some(seat) = weak.upgrade() {
                seat.end();
            }
        });
        Ok((name, seat))
    }
}

/// Who may use a session: whoever began it.
fn whose(caller: &Caller) -> [String; 2] {
    [caller.principal.clone(), caller.credentials.clone()]
}
