//! Listening for callers on HTTP, and whom to listen to.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, StatusCode, Uri};
use semel::Secret;
use semel::core::Fingerprint;

use super::Upstream;
use super::proxy::{Proxy, plain};
use super::sessions::Sessions;
use crate::gateway::Gateway;
use crate::server::Child;

/// How long an answer may take from the engine to whoever reads it.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// A gateway for callers on HTTP.
#[derive(Clone, Debug, Default)]
pub struct Serve {
    /// Origins of pages that may call, besides those of this machine: `https://app.example`.
    pub origins: Vec<String>,
    /// Host names under which callers may reach it, besides those of this machine. Where it listens on an address of
    /// the network, any name is taken unless some are given.
    pub hosts: Vec<String>,
    /// The header that says who calls, where something in front of this gateway has checked it and sets it; else
    /// whoever has the same credentials is the same caller.
    pub principal: Option<HeaderName>,
    /// The bearer token that callers have to show. It ends here: the server never sees it.
    pub token: Option<CallerToken>,
    /// Whether a credential of the gateway's own is lent to every path of the server's address, and not to its own alone.
    pub any_path: bool,
}

/// A bearer token, kept as its digest.
#[derive(Clone, PartialEq, Eq)]
pub struct CallerToken(Fingerprint);

impl CallerToken {
    /// The shortest that is taken.
    pub const MIN_BYTES: usize = 16;

    /// A token given as text; nothing where it is too short to be one.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        (text.trim().len() >= Self::MIN_BYTES).then(|| Self(digest(text.trim())))
    }

    fn is_shown(&self, headers: &HeaderMap) -> bool {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return false;
        };
        let shown = line.to_str().ok().and_then(|line| line.split_once(' '));
        shown.is_some_and(|(scheme, token)| {
            // Digests are compared: how long that takes says nothing about the token.
            scheme.eq_ignore_ascii_case("bearer") && digest(token.trim()) == self.0
        })
    }
}

impl std::fmt::Debug for CallerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CallerToken(…)")
    }
}

fn digest(token: &str) -> Fingerprint {
    let parts = Fingerprint::builder(&Secret::none()).part(b"mcp-caller-token");
    parts.part(token.as_bytes()).finish()
}

/// Why it can't listen.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {message}")]
pub struct ServeError {
    /// Where.
    pub address: SocketAddr,
    /// Why.
    pub message: String,
}

/// Takes connections for a router: the process has a listener with bounds and TLS, and this crate has none.
pub trait Listen: Send {
    /// Serves at this address until it is dropped; or says why it can't.
    fn listen(
        self,
        address: SocketAddr,
        router: Router,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

impl Serve {
    /// Serves callers of a server behind HTTP, until `end`.
    ///
    /// # Errors
    /// [`ServeError`] where the address can't be used.
    pub async fn proxy(
        self,
        gateway: Arc<Gateway>,
        upstream: Upstream,
        address: SocketAddr,
        listen: impl Listen,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServeError> {
        let ending = Arc::clone(&gateway);
        let mut proxy = Proxy::new(gateway, upstream, self.principal.clone());
        proxy.any_path = self.any_path;
        let proxy = Arc::new(proxy);
        let router =
            Router::new().fallback(move |request: Request| Arc::clone(&proxy).handle(request));
        self.listen(router, address, listen, end).await?;
        ending.semel.idle().await;
        // What was answered last still has to be written.
        ending.sleep(LAST_WORDS).await;
        Ok(())
    }

    /// Serves callers of a server that is a process, one for each session, until `end`.
    ///
    /// # Errors
    /// As [`Serve::proxy`].
    pub async fn child(
        self,
        gateway: Arc<Gateway>,
        child: Child,
        address: SocketAddr,
        listen: impl Listen,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServeError> {
        let ending = Arc::clone(&gateway);
        let sessions = Arc::new(Sessions::new(gateway, child, self.principal.clone()));
        let handle = move |request: Request| Arc::clone(&sessions).handle(request);
        let router = Router::new().route("/mcp", axum::routing::any(handle));
        self.listen(router, address, listen, end).await?;
        ending.semel.idle().await;
        // What was answered last still has to be written.
        ending.sleep(LAST_WORDS).await;
        Ok(())
    }

    async fn listen(
        self,
        router: Router,
        address: SocketAddr,
        listen: impl Listen,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServeError> {
        let guard = Arc::new(Guard {
            serve: self,
            is_local: address.ip().is_loopback(),
        });
        let guarded = move |mut request: Request, next: Next| {
            let refused = guard.refused(&request);
            let stranger = guard.is_stranger(request.headers());
            if guard.serve.token.is_some() {
                request.headers_mut().remove(AUTHORIZATION);
            }
            async move {
                match refused {
                    Some(why) => plain(StatusCode::FORBIDDEN, why),
                    None if stranger => unauthorized(),
                    None => next.run(request).await,
                }
            }
        };
        let router = router.layer(axum::middleware::from_fn(guarded));
        // Streams that a caller holds open would keep it from ending: it ends at the first word, and what runs under
        // a key is waited for by whoever called.
        tokio::select! {
            served = listen.listen(address, router) => {
                served.map_err(|message| ServeError { address, message })
            }
            () = end => Ok(()),
        }
    }
}

/// Keeps web pages from calling a gateway that listens on their reader's own machine.
struct Guard {
    serve: Serve,
    is_local: bool,
}

impl Guard {
    fn is_stranger(&self, headers: &HeaderMap) -> bool {
        let token = self.serve.token.as_ref();
        token.is_some_and(|token| !token.is_shown(headers))
    }

    fn refused(&self, request: &http::Request<Body>) -> Option<&'static str> {
        if let Some(origin) = request.headers().get(ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            let is_named = self.serve.origins.iter().any(|allowed| allowed == origin);
            let is_own = origin
                .parse::<Uri>()
                .is_ok_and(|uri| uri.host().is_some_and(is_this_machine));
            if !is_named && !is_own {
                return Some("this origin may not call; --allow-origin lets it");
            }
        }
        if !self.is_local && self.serve.hosts.is_empty() {
            return None;
        }
        let host = request
            .headers()
            .get(HOST)
            .and_then(|host| host.to_str().ok());
        let host = host.and_then(|host| host.parse::<Authority>().ok());
        let is_known = host.is_some_and(|host| {
            let host = host.host();
            is_this_machine(host) || self.serve.hosts.iter().any(|allowed| allowed == host)
        });
        (!is_known).then_some("this host name is not known; --allow-host adds it")
    }
}

fn unauthorized() -> http::Response<Body> {
    let mut response = plain(
        StatusCode::UNAUTHORIZED,
        "this gateway asks for a bearer token",
    );
    let challenge = http::HeaderValue::from_static("Bearer");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

pub(super) fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_show_the_token_where_there_is_one() {
        let guard = Guard {
            serve: Serve {
                token: CallerToken::new("0123456789abcdef\n"),
                ..Serve::default()
            },
            is_local: false,
        };
        let is_stranger = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(AUTHORIZATION, line.parse().unwrap());
            }
            guard.is_stranger(&headers)
        };
        assert!(!is_stranger(&["Bearer 0123456789abcdef"]));
        let two = ["Bearer 0123456789abcdef", "Bearer 0123456789abcdef"];
        for lines in [&[][..], &["Bearer x"], &["Basic 0123456789abcdef"], &two] {
            assert!(is_stranger(lines), "{lines:?}");
        }
        assert!(CallerToken::new("short").is_none());
    }

    #[test]
    fn pages_of_others_and_borrowed_names_are_refused() {
        let guard = |is_local| Guard {
            serve: Serve {
                origins: vec!["https://app.example".to_owned()],
                ..Serve::default()
            },
            is_local,
        };
        let refused = |is_local, host: &str, origin: Option<&str>| {
            let mut request = http::Request::new(Body::empty());
            request.headers_mut().insert(HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                request
                    .headers_mut()
                    .insert(ORIGIN, origin.parse().unwrap());
            }
            guard(is_local).refused(&request).is_some()
        };
        assert!(!refused(true, "127.0.0.1:9000", None));
        assert!(!refused(
            true,
            "localhost:9000",
            Some("http://localhost:5173")
        ));
        assert!(!refused(
            true,
            "localhost:9000",
            Some("https://app.example")
        ));
        assert!(!refused(true, "[::1]:9000", None));
        assert!(refused(
            true,
            "localhost:9000",
            Some("https://evil.example")
        ));
        assert!(refused(true, "localhost:9000", Some("null")));
        assert!(refused(true, "rebound.example", None));
        assert!(!refused(false, "gateway.internal", None));
    }
}
