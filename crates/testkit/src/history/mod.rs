//! Histories: what was asked and answered, by whom and when, and whether it could have come from a
//! store that keeps the protocol.
//!
//! A [`Recorder`] wraps a store and writes every call into a [`HistoryLog`]; whoever runs effects
//! tells it of those too. Afterwards [`check`] decides, key by key, the invariants that a history
//! can show. What it reports is certain: a call that was never answered may have happened or not,
//! now or later, and is held against nobody.
//!
//! [`clients`] are concurrent callers that misbehave in every way that real ones do, from a seed.
//!
//! A history is plain data, so that processes that are killed can write theirs line by line
//! ([`HistoryLog::in_lines`]) and a test can read them with [`read_lines`] and put them together
//! with [`History::merge`]. [`callers`] has the rules for what callers were told, whatever is
//! between them and the effect.
//!
//! ```
//! use std::sync::Arc;
//! use semel_core::{Identity, MemoryConfig, MemoryStore, Store as _};
//! use semel_conformance::clock::FakeClock;
//! use semel_testkit::history::{HistoryLog, check};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let clock = Arc::new(FakeClock::new());
//! let memory = MemoryStore::new(MemoryConfig::default(), clock.clone());
//! let log = HistoryLog::new(clock);
//! let store = log.recorder(Arc::new(memory), 1);
//! store.read(&Identity::from_bytes([1; 32])).await.unwrap();
//! assert!(check(&log.history()).is_empty());
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod callers;
mod check;
pub mod clients;
mod clocks;
mod event;
mod lines;
mod log;
mod order;
mod recorder;
mod replies;
pub mod rig;
mod rules;
pub mod seeded;
mod unlock;
mod view;
mod violation;

pub use check::{CheckResult, check, check_with_losses, check_with_slack};
pub use clocks::Clocks;
pub use event::{
    CallRecord, CallReply, CallRequest, EffectRecord, History, KeyEnding, KeyStanding, OPERATOR,
    answer_mark, checkpoint_mark, key_of,
};
pub use lines::{Line, Read, read_lines};
pub use log::HistoryLog;
pub use recorder::Recorder;
pub(crate) use replies::{claimed, stand};
pub use violation::Violation;
