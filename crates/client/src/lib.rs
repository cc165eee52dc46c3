//! Calls that are safe to retry: the caller's half of idempotency.
//!
//! The key is created once, before the first attempt, and kept for all of them. Pauses follow
//! `Retry-After` and have jitter, a retry budget bounds the retries of a process, and a conflict
//! ends the call at once. For callers that may crash between two attempts, an [`Outbox`] keeps key
//! and request on disk.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use semel_client::{CallInfo, IdempotencyKey};
//!
//! let client = semel_client::client(reqwest::Client::new());
//! let answer = client
//!     .post("http://127.0.0.1:8080/charges")
//!     .json(&serde_json::json!({"order": "ord-1", "cents": 500}))
//!     .with_extension(IdempotencyKey::new("charge-ord-1")?)
//!     .send()
//!     .await?;
//! let replayed = CallInfo::from_response(&answer).is_some_and(|called| called.replayed);
//! println!("{} {}", answer.status(), if replayed { "as before" } else { "new" });
//! # Ok(())
//! # }
//! ```
//!
//! | the server | `send` |
//! |---|---|
//! | 2xx, 3xx, a final 4xx of the service | the response; [`CallInfo::from_response`] tells more |
//! | the key was used with another payload | [`Error::Conflict`], at once |
//! | it is unknown whether an earlier run took effect | [`Error::InDoubt`], at once |
//! | a run with this key is in progress | retries after `Retry-After`, until the time is up |
//! | 408, 425, 429, 500, 502, 503, 504; a problem with `retryable: true` | retries |
//! | no connection, a timeout, a truncated response | retries with the same key |
//! | attempts, time or budget are used up | [`Error::GaveUp`], which says whether it may have been done |

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "it runs in its caller's process, and uses that process's clock, randomness and metrics"
)]

mod body_sentinel;
mod code;
mod decision;
mod error;
mod middleware;
mod outbox;
mod policy;
mod retry_state;

pub use error::{Error, GiveUpReason};
pub use middleware::{CallInfo, IdempotencyKey, IdempotencyMiddleware, client};
pub use outbox::{Outbox, OutboxCall, OutboxError};
pub use policy::{RetryBudget, RetryPolicy};

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust-client.md")]
struct Guide;
