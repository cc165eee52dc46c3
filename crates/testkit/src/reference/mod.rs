//! The protocol written a second time, and a driver that holds a store to it.
//!
//! [`KeyModel`] is `spec/protocol.md` as plainly as it can be put: one struct per key, plain
//! integers for time, no code shared with `semel_core::protocol`. [`Op`] is one step of a random
//! sequence; [`compare`] applies a sequence to a store and to the models, and stops at the first
//! answer that differs. [`explain`] shrinks such a sequence to one that can be read.
//!
//! ```
//! use std::sync::Arc;
//! use semel_core::{MemoryConfig, MemoryStore, StoreAdmin};
//! use semel_testkit::reference::{self, RuleTally};
//!
//! # futures_util::FutureExt::now_or_never(async {
//! let make = |clock: &semel_conformance::clock::FakeClock| -> Arc<dyn StoreAdmin> {
//!     Arc::new(MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone())))
//! };
//! let ops = reference::generate(42);
//! if reference::fresh(&make, &ops, &mut RuleTally::default()).await.is_err() {
//!     panic!("{}", reference::explain(&make, Some(42), &ops).await);
//! }
//! # });
//! ```

mod driver;
mod entry;
mod look;
mod op;
mod rules;
mod shrink;
mod tables;
mod tally;

pub use driver::{Difference, compare};
pub use entry::{KeySubject, ReferenceEntry};
pub use op::{LeaseChoice, Moment, Named, Op, generate};
pub use rules::KeyModel;
pub use shrink::{DifferenceReport, Make, explain, fresh};
pub use tally::{Rule, RuleTally};
