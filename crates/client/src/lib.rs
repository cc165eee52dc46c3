//! Calls that are safe to repeat: half of idempotency is on the caller's side.
//!
//! The key is made once, before the first attempt, and kept for all of them; `Retry-After` is obeyed, pauses are random,
//! a budget bounds the retries of a process, and a conflict ends the call at once. For callers that may crash between two
//! attempts, an [`Outbox`] keeps key and request on disk.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use semel_client::{Called, IdempotencyKey};
//!
//! let client = semel_client::client(reqwest::Client::new());
//! let answer = client
//!     .post("http://127.0.0.1:8080/charges")
//!     .json(&serde_json::json!({"order": "ord-1", "cents": 500}))
//!     .with_extension(IdempotencyKey::new("charge-ord-1")?)
//!     .send()
//!     .await?;
//! let replayed = Called::of(&answer).is_some_and(|called| called.replayed);
//! println!("{} {}", answer.status(), if replayed { "as before" } else { "new" });
//! # Ok(())
//! # }
//! ```
//!
//! | the server | `send` |
//! |---|---|
//! | 2xx, 3xx, a final 4xx of the service | the response; [`Called::of`] tells more |
//! | the key was used with another payload | [`Error::Conflict`], at once |
//! | nobody knows whether an earlier run took effect | [`Error::InDoubt`], at once |
//! | a run with this key is under way | asks again after `Retry-After`, until the time is up |
//! | 408, 425, 429, 500, 502, 503, 504; a problem with `retryable: true` | asks again |
//! | no connection, a timeout, an answer that broke off | asks again with the same key |
//! | nothing left: attempts, time or budget | [`Error::GaveUp`], which says whether it may have been done |

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "it lives in its caller's process and speaks to the world: that one's clock, chance and metrics"
)]

mod course;
mod error;
mod judge;
mod left;
mod middleware;
mod outbox;
mod policy;

pub use error::{Error, GaveUp};
pub use middleware::{Called, Idempotency, IdempotencyKey, client};
pub use outbox::{Call, Outbox, OutboxError};
pub use policy::{RetryBudget, RetryPolicy};

/// What the guide shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust-client.md")]
struct Guide;
