//! Histories: what was asked and answered, by whom and when, and whether it could have come from a
//! store that keeps the protocol.
//!
//! A [`Recorder`] wraps a store and writes every call into a [`Log`]; whoever runs effects tells it of
//! those too. Afterwards [`check`] decides, key by key, the invariants that a history can show. What it
//! reports is certain: a call that was never answered may have happened or not, now or later, and is
//! held against nobody.
//!
//! [`clients`] are concurrent callers that misbehave in every way that real ones do, from a seed.
//!
//! A history is plain data, so that processes that are killed can write theirs line by line
//! ([`Log::in_lines`]) and a test can read them with [`read_lines`] and put them together with
//! [`History::merge`]. [`callers`] has the rules for what callers were told, whatever is between them and the effect.
//!
//! ```
//! use std::sync::Arc;
//! use semel_core::{Identity, MemoryConfig, MemoryStore, Store as _};
//! use semel_testkit::clock::FakeClock;
//! use semel_testkit::history::{Log, check};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let clock = Arc::new(FakeClock::new());
//! let memory = MemoryStore::new(MemoryConfig::default(), clock.clone());
//! let log = Log::new(clock);
//! let store = log.recorder(Arc::new(memory), 1);
//! store.read(&Identity::from_bytes([1; 32])).await.unwrap();
//! assert!(check(&log.history()).is_empty());
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod callers;
mod check;
pub mod clients;
mod event;
mod lines;
mod log;
mod order;
mod recorder;
pub mod rig;
mod rules;
pub mod seeded;
mod told;
mod unlock;
mod view;

pub use check::{Checked, Clocks, Violation, check, check_with_losses, check_with_slack};
pub use event::{
    Ask, Call, Effect, Ending, History, OPERATOR, Reply, Stand, answer_mark, checkpoint_mark,
    key_of,
};
pub use lines::{Line, Read, read_lines};
pub use log::Log;
pub use recorder::Recorder;
pub(crate) use told::{claimed, stand};
