//! The server's clock, estimated: asked for now and then, carried on by our monotonic clock in between.
//!
//! It gives new fences their size and records their times for people. It decides nothing: lapse and expiry
//! are decided by the server, from the time to live that it counts down itself.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use semel_core::{Clock, StoreResult, Tick, Timestamp};

use super::error::unexpected;
use super::link::Link;

const ASK_EVERY: Duration = Duration::from_secs(10);

pub(super) struct ServerTime {
    clock: Arc<dyn Clock>,
    sample: Mutex<Option<Sample>>,
}

#[derive(Clone, Copy)]
struct Sample {
    server: Timestamp,
    at: Tick,
}

impl ServerTime {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            sample: Mutex::new(None),
        }
    }

    /// Now, on the server's clock.
    pub(super) async fn now(&self, link: &Link) -> StoreResult<Timestamp> {
        let now = self.clock.now();
        let known = *self.sample.lock();
        if let Some(sample) = known.filter(|sample| now.since(sample.at) < ASK_EVERY) {
            return Ok(sample.server.plus(now.since(sample.at)));
        }
        let server = parse(&link.query(&redis::cmd("TIME")).await?)?;
        let at = self.clock.now();
        // Never back: a fence must not be smaller than one that was given out before.
        let carried = known.map_or(server, |sample| sample.server.plus(at.since(sample.at)));
        let server = server.max(carried);
        *self.sample.lock() = Some(Sample { server, at });
        Ok(server)
    }
}

fn parse(reply: &Value) -> StoreResult<Timestamp> {
    let parts: (u64, u64) = redis::from_redis_value_ref(reply).map_err(|_| unexpected("TIME"))?;
    Ok(Timestamp::from_micros(
        parts.0.saturating_mul(1_000_000).saturating_add(parts.1),
    ))
}
