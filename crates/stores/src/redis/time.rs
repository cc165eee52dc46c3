//! The server's clock, estimated: asked for from time to time, carried on by our monotonic clock in
//! between.
//!
//! New fences and the displayed times of records come from it, unless a record is brief: the server
//! itself stamps those, because the estimate may be ahead of it by more than the record lives
//! (P22). It decides nothing: the server decides lapse and expiry, from the time to live that it
//! counts down itself. With several servers it is the clock that is furthest ahead, so that fences
//! keep growing even if a key moves to another server (P22).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::Value;
use semel_core::{Clock, StoreResult, Tick, Timestamp};

use super::error::unexpected;
use super::link::Link;

/// How often the servers are asked.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(10);

pub(super) struct ServerTime {
    clock: Arc<dyn Clock>,
    sample: Mutex<Sample>,
}

#[derive(Clone, Copy)]
struct Sample {
    server: Timestamp,
    at: Tick,
}

impl ServerTime {
    /// Asks for the first time.
    pub(super) async fn new(clock: Arc<dyn Clock>, link: &Link) -> StoreResult<Self> {
        // Measured before the call: an estimate that is behind makes fences too small.
        let at = clock.now();
        let server = ask(link).await?;
        Ok(Self {
            clock,
            sample: Mutex::new(Sample { server, at }),
        })
    }

    /// Our own clock.
    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Now, on the server's clock.
    pub(super) fn now(&self) -> Timestamp {
        let now = self.clock.now();
        let sample = *self.sample.lock();
        sample.server.plus(now.since(sample.at))
    }

    /// Refreshes the estimate. Without an answer it stays, carried on by our own clock.
    pub(super) async fn refresh(&self, link: &Link) {
        let at = self.clock.now();
        let Ok(server) = ask(link).await else { return };
        let mut sample = self.sample.lock();
        // Never backwards: a fence must not be smaller than an earlier one.
        let carried = sample.server.plus(at.since(sample.at));
        *sample = Sample {
            server: server.max(carried),
            at,
        };
    }
}

/// The time of the server that is furthest ahead, of those that answer.
pub(super) async fn ask(link: &Link) -> StoreResult<Timestamp> {
    let (_, masters) = link.masters();
    let cmd = redis::cmd("TIME");
    let replies = join_all(masters.iter().map(|node| node.ask(&cmd))).await;
    let mut latest = Err(unexpected("no server to ask for the time"));
    for reply in replies {
        let time = reply.and_then(|reply| parse(&reply));
        latest = match (latest, time) {
            (Ok(latest), Ok(time)) => Ok(time.max(latest)),
            (Ok(time), Err(_)) | (Err(_), Ok(time)) => Ok(time),
            (Err(_), Err(error)) => Err(error),
        };
    }
    latest
}

fn parse(reply: &Value) -> StoreResult<Timestamp> {
    let parts: (u64, u64) = redis::from_redis_value_ref(reply).map_err(|_| unexpected("TIME"))?;
    Ok(Timestamp::from_micros(
        parts.0.saturating_mul(1_000_000).saturating_add(parts.1),
    ))
}
