#![doc = include_str!("../README.md")]
//!
//! A program that wants the whole result at once calls [`run`]:
//!
//! ```
//! use std::sync::Arc;
//! use semel_conformance::MemorySubject;
//!
//! # tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build()?.block_on(async {
//! let report = semel_conformance::run(Arc::new(MemorySubject::new())).await;
//! report.assert_all_passed();
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Each check works in a namespace that nobody used before, so that suites may share a server.
//! Nothing is skipped: what a store can't do it says in its
//! [`Capabilities`](semel_core::Capabilities) or its [`Stats`](semel_core::store::Stats), and the
//! check then holds it to that.

mod calls;
mod claim;
pub mod clock;
mod doubt;
mod elsewhere;
mod forms;
mod identity;
mod keys;
mod listing;
mod make;
mod memory;
mod mismatch;
mod races;
mod registry;
mod renew;
mod replay;
mod report;
mod resend;
mod resolve;
mod restore;
mod room;
mod scene;
mod settle;
mod storms;
mod takeover;
mod terms;
mod time;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use semel_core::{BoxFuture, Identity, StoreAdmin};

pub use memory::MemorySubject;
pub use registry::{ALL, ConformanceCheck};
pub use report::{ConformanceReport, Row, run, test};
pub use scene::Scene;

/// What a check gives: nothing, or why the store does not keep the rule.
pub type CheckVerdict = anyhow::Result<()>;

/// A store, as the suite sees it.
pub trait Subject: Send + Sync + 'static {
    /// The store under test.
    fn store(&self) -> Arc<dyn StoreAdmin>;

    /// A second handle to the same records that shares as little as possible with the first: its
    /// own connections where the store has any. Stands for another process.
    fn another(&self) -> Arc<dyn StoreAdmin>;

    /// Lets at least `time` pass on the store's clock.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()>;

    /// How long leases and retentions are to be in this suite.
    fn spans(&self) -> Spans;

    /// An empty store of the same kind, on the same clock, that takes two or three records and no
    /// more. `None`, the default, where the kind has no capacity; its statistics must then say so
    /// (P26).
    fn tiny(&self) -> BoxFuture<'_, Option<Arc<dyn StoreAdmin>>> {
        Box::pin(async { None })
    }

    /// Whether the store encrypts what it is given. It then has a key of its own for everything
    /// that it writes (P46).
    fn encrypts(&self) -> bool {
        false
    }

    /// Changes the stored record of `identity`, behind the store's back, into what a later version
    /// of Semel might have written: a format version that this one doesn't know. Answers `false`,
    /// the default, where records are not kept as bytes; such a store must neither outlive nor
    /// leave its process (P25).
    fn spoil<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, bool> {
        let _ = identity;
        Box::pin(async { false })
    }
}

/// How long things last in a suite: as short as the store's clock and the way to it allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spans {
    /// A lease that a check can wait out.
    pub lease: Duration,
    /// A retention that a check can wait out; a few times the lease.
    pub retention: Duration,
    /// What to wait on top, so that a moment is surely past. Zero where time is exact.
    pub grace: Duration,
}

impl Spans {
    /// For a store whose clock the test moves: ordinary spans, since time is free.
    pub const FREE: Self = Self {
        lease: Duration::from_secs(30),
        retention: Duration::from_secs(60 * 60),
        grace: Duration::ZERO,
    };

    /// For a server with its own clock: short spans, since the test has to sit them out.
    pub const SERVER: Self = Self {
        lease: Duration::from_millis(300),
        retention: Duration::from_secs(2),
        grace: Duration::from_millis(50),
    };

    /// Spans of these lengths.
    #[must_use]
    pub const fn new(lease: Duration, retention: Duration, grace: Duration) -> Self {
        Self {
            lease,
            retention,
            grace,
        }
    }
}
