//! The environment of the engine: clock, task spawner and random source, passed in.
//!
//! This crate depends on no runtime. The `semel` crate passes in Tokio's, and a simulation its own,
//! as an [`Env`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rand::RngExt as _;

use crate::clock::Clock;

/// A boxed future that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Starts tasks.
pub trait Spawn: Send + Sync + 'static {
    /// Runs `task` to its end, independent of the caller.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// Where random numbers come from.
pub trait Entropy: Send + Sync + 'static {
    /// 128 unpredictable bits.
    fn next_u128(&self) -> u128;
}

/// The process's cryptographic generator, seeded by the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one blessed source of randomness"
    )]
    fn next_u128(&self) -> u128 {
        rand::rng().random()
    }
}

/// Clock, task spawner and random source.
#[derive(Clone)]
#[non_exhaustive]
pub struct Env {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Starts tasks.
    pub spawn: Arc<dyn Spawn>,
    /// Where random numbers come from.
    pub entropy: Arc<dyn Entropy>,
}

impl Env {
    /// An environment of these three.
    #[must_use]
    pub const fn new(
        clock: Arc<dyn Clock>,
        spawn: Arc<dyn Spawn>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self {
            clock,
            spawn,
            entropy,
        }
    }

    /// Sets [`clock`](Self::clock).
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets [`spawn`](Self::spawn).
    #[must_use]
    pub fn with_spawn(mut self, spawn: Arc<dyn Spawn>) -> Self {
        self.spawn = spawn;
        self
    }

    /// Sets [`entropy`](Self::entropy).
    #[must_use]
    pub fn with_entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Env")
    }
}
