//! Streamable HTTP, on both sides.
//!
//! | module | is |
//! |---|---|
//! | `client` | requests to a server |
//! | `upstream` | a server behind HTTP, for a caller on standard input and output |
//! | `proxy` | callers and server both on HTTP: each request passes by itself |
//! | `relay` | one call through the proxy: its events as they come, its answer once it is settled |
//! | `sessions`, `seat` | callers on HTTP, a process of the server's for each of their sessions; which stream a message belongs to |
//! | `serve` | listening, and whom to listen to |

mod client;
mod proxy;
mod relay;
mod seat;
mod serve;
mod sessions;
mod upstream;

pub(crate) use client::Patience;
pub use client::Upstream;
pub use serve::{CallerToken, Listen, Serve, ServeError};

use ::http::HeaderName;

pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(crate) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
