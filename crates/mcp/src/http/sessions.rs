//! [`Sessions`]: the sessions of HTTP callers, each with its own server process.

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
use super::proxy::{error_response, identify_caller};
use super::session::{HttpSession, session_not_found};
use crate::call::Caller;
use crate::gateway::Gateway;
use crate::message::{MAX_BYTES, Message};
use crate::peer::{Peer, QUEUE};
use crate::process::{DRAIN_TIME, ServerCommand};
use crate::session::Session;

/// The largest number of sessions.
const MAX_SESSIONS: usize = 100;
/// The largest number of sessions of one caller. Each has a process.
const MAX_SESSIONS_OF_CALLER: usize = 25;
/// The idle time after which a session may be replaced.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// The table of sessions.
pub(crate) struct Sessions {
    gateway: Arc<Gateway>,
    command: ServerCommand,
    principal: Option<HeaderName>,
    sessions: Mutex<HashMap<String, Arc<HttpSession>>>,
}

impl Sessions {
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        command: ServerCommand,
        principal: Option<HeaderName>,
    ) -> Self {
        Self {
            gateway,
            command,
            principal,
            sessions: Mutex::default(),
        }
    }

    pub(crate) async fn handle(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let caller = identify_caller(&self.gateway, self.principal.as_ref(), &parts.headers);
        let caller = match caller {
            Ok(caller) => caller,
            Err(refused) => return refused,
        };
        match parts.method {
            Method::POST => {
                let Ok(body) = Limited::new(body, MAX_BYTES).collect().await else {
                    return error_response(
                        StatusCode::PAYLOAD_TOO_LARGE,
                        "the message is too large",
                    );
                };
                self.post(caller, &parts.headers, Message::new(body.to_bytes()))
                    .await
            }
            Method::GET => match self.session(&caller) {
                Some(session) => session.listen(),
                None => session_not_found(),
            },
            Method::DELETE => match self.session(&caller) {
                Some(_) => {
                    self.sessions.lock().remove(&caller.session);
                    Response::new(Body::empty())
                }
                None => session_not_found(),
            },
            _ => {
                let mut response =
                    error_response(StatusCode::METHOD_NOT_ALLOWED, "POST, GET or DELETE");
                let allowed = HeaderValue::from_static("POST, GET, DELETE");
                response.headers_mut().insert(ALLOW, allowed);
                response
            }
        }
    }

    /// The caller's session, if this caller owns it.
    fn session(&self, caller: &Caller) -> Option<Arc<HttpSession>> {
        let sessions = self.sessions.lock();
        let session = sessions.get(&caller.session)?;
        if session.owner != owner(caller) {
            return None;
        }
        *session.used.lock() = self.gateway.semel.engine().env().clock.now();
        Some(Arc::clone(session))
    }

    async fn post(
        self: &Arc<Self>,
        caller: Caller,
        headers: &HeaderMap,
        message: Message,
    ) -> Response<Body> {
        if headers.contains_key(SESSION) {
            return match self.session(&caller) {
                Some(session) => session.post(message).await,
                None => session_not_found(),
            };
        }
        if message.method() != Some("initialize") {
            return error_response(StatusCode::BAD_REQUEST, "begin a session with initialize");
        }
        let (name, session) = match self.open(caller) {
            Ok(opened) => opened,
            Err((status, why)) => return error_response(status, why),
        };
        let mut response = session.post(message).await;
        if let Ok(name) = HeaderValue::from_str(&name) {
            response.headers_mut().insert(SESSION, name);
        }
        response
    }

    /// Opens a session and starts its server.
    fn open(
        self: &Arc<Self>,
        caller: Caller,
    ) -> Result<(String, Arc<HttpSession>), (StatusCode, &'static str)> {
        let env = self.gateway.semel.engine().env();
        let now = env.clock.now();
        let mut sessions = self.sessions.lock();
        if sessions.len() >= MAX_SESSIONS {
            sessions.retain(|_, session| now.since(*session.used.lock()) < IDLE);
        }
        if sessions.len() >= MAX_SESSIONS {
            return Err((StatusCode::SERVICE_UNAVAILABLE, "too many sessions"));
        }
        let owner = owner(&caller);
        let own = sessions.values().filter(|session| session.owner == owner);
        if own.count() >= MAX_SESSIONS_OF_CALLER {
            return Err((
                StatusCode::TOO_MANY_REQUESTS,
                "you have too many sessions; end one",
            ));
        }
        let (running, server) = self.command.start().map_err(|error| {
            tracing::error!("{error}");
            (StatusCode::BAD_GATEWAY, "the server can't be started")
        })?;
        let name = format!("{:032x}", env.entropy.next_u128());
        let (to_server, incoming) = mpsc::channel(QUEUE);
        let (outgoing, mut from_server) = mpsc::channel::<Bytes>(QUEUE);
        let session = Arc::new(HttpSession::new(owner, to_server, now));
        sessions.insert(name.clone(), Arc::clone(&session));
        drop(sessions);
        let gateway = Arc::clone(&self.gateway);
        let ended = name.clone();
        let caller = Caller {
            session: name.clone(),
            ..caller
        };
        let clock = gateway.clock();
        tokio::spawn(async move {
            Session::run(
                gateway,
                caller,
                Peer { incoming, outgoing },
                server,
                DRAIN_TIME,
            )
            .await;
            running.end(&*clock).await;
        });
        let (weak, sessions) = (Arc::downgrade(&session), Arc::downgrade(self));
        tokio::spawn(async move {
            while let Some(text) = from_server.recv().await {
                let Some(session) = weak.upgrade() else {
                    continue;
                };
                session.deliver(text);
            }
            // The server has ended, so the session and its streams end, too.
            if let Some(sessions) = sessions.upgrade() {
                sessions.sessions.lock().remove(&ended);
            }
            if let Some(session) = weak.upgrade() {
                session.end();
            }
        });
        Ok((name, session))
    }
}

/// The owner of a session: only this caller may use it.
fn owner(caller: &Caller) -> [String; 2] {
    [caller.principal.clone(), caller.credentials.clone()]
}
