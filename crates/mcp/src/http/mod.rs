//! Streamable HTTP, on both sides.
//!
//! | module | content |
//! |---|---|
//! | `client` | HTTP client with resumable event streams |
//! | `host` | host names of this machine |
//! | `upstream` | a server behind HTTP as one end of a session |
//! | `proxy` | reverse proxy between HTTP callers and an HTTP server |
//! | `relay` | one keyed call through the proxy |
//! | `sessions`, `session` | sessions of HTTP callers with a child process |
//! | `serve` | the listener, with its checks of origin, host and token |

mod client;
mod host;
mod proxy;
mod relay;

mod serve;
mod session;
mod sessions;
mod upstream;

pub use client::HttpUpstream;
pub use serve::{CallerToken, HttpFrontend, HttpListener, ListenError};

use ::http::HeaderName;

pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(crate) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
