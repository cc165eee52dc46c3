//! [`HttpFrontend`]: listens for callers on HTTP, and checks their origin, host name and token.

use std::net::SocketAddr;
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

use super::HttpUpstream;
use super::host::is_loopback_host;
use super::proxy::{Proxy, error_response};
use super::sessions::Sessions;
use crate::gateway::Gateway;
use crate::process::ServerCommand;

/// How long the last responses get to be written before the process ends.
const FLUSH_TIME: Duration = Duration::from_millis(200);

/// A gateway for callers on HTTP.
#[derive(Clone, Debug, Default)]
pub struct HttpFrontend {
    /// Origins of web pages that may call, such as `https://app.example`. Loopback origins are
    /// always allowed.
    pub origins: Vec<String>,
    /// Host names by which callers may reach the gateway, besides loopback names. If the list is
    /// empty, a listener on a network address accepts any name.
    pub hosts: Vec<String>,
    /// The header with the authenticated caller, which a proxy in front of the gateway checks and
    /// sets. Without it, a caller is identified by its credentials.
    pub principal: Option<HeaderName>,
    /// The bearer token that callers must send. The gateway removes it before it forwards a
    /// request.
    pub token: Option<CallerToken>,
    /// Whether the gateway's own credential is sent to every path of the server's address.
    pub any_path: bool,
}

/// The digest of a bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct CallerToken(Fingerprint);

impl CallerToken {
    /// The minimum length of a token.
    pub const MIN_BYTES: usize = 16;

    /// Creates a token from text; `None` if it is too short.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        (text.trim().len() >= Self::MIN_BYTES).then(|| Self(digest(text.trim())))
    }

    fn is_shown_in(&self, headers: &HeaderMap) -> bool {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return false;
        };
        let shown = line.to_str().ok().and_then(|line| line.split_once(' '));
        shown.is_some_and(|(scheme, token)| {
            // Compares digests, so that the time it takes reveals nothing about the token.
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

/// Why the gateway cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {message}")]
pub struct ListenError {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The reason.
    pub message: String,
}

/// Accepts connections for a router. The binary brings a listener with limits and TLS.
pub trait HttpListener: Send {
    /// Serves at this address until it is dropped, or returns why it cannot.
    fn listen(
        self,
        address: SocketAddr,
        router: Router,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

impl HttpFrontend {
    /// Serves callers of a server behind HTTP, until `end`.
    ///
    /// # Errors
    /// [`ListenError`] if the address cannot be used.
    pub async fn serve_upstream(
        self,
        gateway: Arc<Gateway>,
        upstream: HttpUpstream,
        address: SocketAddr,
        listen: impl HttpListener,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ListenError> {
        let ending = Arc::clone(&gateway);
        let mut proxy = Proxy::new(gateway, upstream, self.principal.clone());
        proxy.any_path = self.any_path;
        let proxy = Arc::new(proxy);
        let router =
            Router::new().fallback(move |request: Request| Arc::clone(&proxy).handle(request));
        self.listen(router, address, listen, end).await?;
        ending.semel.idle().await;
        // The last responses still have to be written.
        ending.sleep(FLUSH_TIME).await;
        Ok(())
    }

    /// Serves callers of a server command, with one process for each session, until `end`.
    ///
    /// # Errors
    /// As [`HttpFrontend::serve_upstream`].
    pub async fn serve_command(
        self,
        gateway: Arc<Gateway>,
        command: ServerCommand,
        address: SocketAddr,
        listen: impl HttpListener,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ListenError> {
        let ending = Arc::clone(&gateway);
        let sessions = Arc::new(Sessions::new(gateway, command, self.principal.clone()));
        let handle = move |request: Request| Arc::clone(&sessions).handle(request);
        let router = Router::new().route("/mcp", axum::routing::any(handle));
        self.listen(router, address, listen, end).await?;
        ending.semel.idle().await;
        // The last responses still have to be written.
        ending.sleep(FLUSH_TIME).await;
        Ok(())
    }

    async fn listen(
        self,
        router: Router,
        address: SocketAddr,
        listen: impl HttpListener,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ListenError> {
        let guard = Arc::new(Guard {
            serve: self,
            is_local: address.ip().is_loopback(),
        });
        let guarded = move |mut request: Request, next: Next| {
            let refused = guard.refusal_reason(&request);
            let stranger = guard.lacks_token(request.headers());
            if guard.serve.token.is_some() {
                request.headers_mut().remove(AUTHORIZATION);
            }
            async move {
                match refused {
                    Some(why) => error_response(StatusCode::FORBIDDEN, why),
                    None if stranger => unauthorized(),
                    None => next.run(request).await,
                }
            }
        };
        let router = router.layer(axum::middleware::from_fn(guarded));
        // Open streams would keep the listener alive, so it is dropped at once. The caller of this
        // function waits for the running calls.
        tokio::select! {
            served = listen.listen(address, router) => {
                served.map_err(|message| ListenError { address, message })
            }
            () = end => Ok(()),
        }
    }
}

/// Protects a local gateway from web pages (DNS rebinding and foreign origins).
struct Guard {
    serve: HttpFrontend,
    is_local: bool,
}

impl Guard {
    fn lacks_token(&self, headers: &HeaderMap) -> bool {
        let token = self.serve.token.as_ref();
        token.is_some_and(|token| !token.is_shown_in(headers))
    }

    fn refusal_reason(&self, request: &http::Request<Body>) -> Option<&'static str> {
        if let Some(origin) = request.headers().get(ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            let is_named = self.serve.origins.iter().any(|allowed| allowed == origin);
            let is_own = origin
                .parse::<Uri>()
                .is_ok_and(|uri| uri.host().is_some_and(is_loopback_host));
            if !is_named && !is_own {
                return Some("this origin is not allowed; --allow-origin adds it");
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
            is_loopback_host(host) || self.serve.hosts.iter().any(|allowed| allowed == host)
        });
        (!is_known).then_some("this host name is not allowed; --allow-host adds it")
    }
}

fn unauthorized() -> http::Response<Body> {
    let mut response = error_response(
        StatusCode::UNAUTHORIZED,
        "this gateway asks for a bearer token",
    );
    let challenge = http::HeaderValue::from_static("Bearer");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_token_is_required() {
        let guard = Guard {
            serve: HttpFrontend {
                token: CallerToken::new("0123456789abcdef\n"),
                ..HttpFrontend::default()
            },
            is_local: false,
        };
        let lacks_token = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(AUTHORIZATION, line.parse().unwrap());
            }
            guard.lacks_token(&headers)
        };
        assert!(!lacks_token(&["Bearer 0123456789abcdef"]));
        let two = ["Bearer 0123456789abcdef", "Bearer 0123456789abcdef"];
        for lines in [&[][..], &["Bearer x"], &["Basic 0123456789abcdef"], &two] {
            assert!(lacks_token(lines), "{lines:?}");
        }
        assert!(CallerToken::new("short").is_none());
    }

    #[test]
    fn foreign_origins_and_host_names_are_refused() {
        let guard = |is_local| Guard {
            serve: HttpFrontend {
                origins: vec!["https://app.example".to_owned()],
                ..HttpFrontend::default()
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
            guard(is_local).refusal_reason(&request).is_some()
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
