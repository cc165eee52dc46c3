//! Tokio as the engine's environment.

use std::sync::Arc;
use std::time::Duration;

use semel_core::clock::{Sleep, SystemTime};
use semel_core::env::SystemEntropy;
use semel_core::{BoxFuture, Clock, Env, Spawn, Tick, Timestamp};

/// The machine's clocks, Tokio's tasks and timers, the operating system's chance.
///
/// Tasks start on the runtime that the call which starts them runs in.
#[must_use]
pub fn tokio_env() -> Env {
    Env {
        clock: Arc::new(TokioClock(SystemTime::default())),
        spawn: Arc::new(TokioSpawn),
        entropy: Arc::new(SystemEntropy),
    }
}

struct TokioClock(SystemTime);

impl Clock for TokioClock {
    fn now(&self) -> Tick {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        self.0.wall()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that others are told to use"
    )]
    fn sleep(&self, for_time: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(for_time))
    }
}

struct TokioSpawn;

impl Spawn for TokioSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}
