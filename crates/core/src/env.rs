//! What the engine needs of the world besides a store: time, tasks and chance.
//!
//! This crate knows no runtime. Whoever has one (the `semel` crate brings Tokio's, a simulation brings
//! its own) hands the engine an [`Env`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rand::RngExt as _;

use crate::clock::Clock;

/// A boxed future that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Starts tasks.
pub trait Spawn: Send + Sync + 'static {
    /// Runs `task` to its end, whatever becomes of the caller.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// Where random numbers come from.
pub trait Entropy: Send + Sync + 'static {
    /// 128 bits that nobody can foresee.
    fn next_u128(&self) -> u128;
}

/// The process's cryptographic generator, seeded by the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one blessed source of chance"
    )]
    fn next_u128(&self) -> u128 {
        rand::rng().random()
    }
}

/// Time, tasks and chance, together.
#[derive(Clone)]
pub struct Env {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Starts tasks.
    pub spawn: Arc<dyn Spawn>,
    /// Where random numbers come from.
    pub entropy: Arc<dyn Entropy>,
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Env")
    }
}
