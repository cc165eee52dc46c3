//! The server's clock, estimated: asked for from time to time, carried on by our monotonic clock in between.
//!
//! An answer says what the server's clock showed at some moment between question and answer. So there are two estimates:
//!
//! | estimate | is | used for |
//! |---|---|---|
//! | [`ServerTime::now`] | never behind the server | fences of new keys: they keep growing even if a key moves to another server (P22) |
//! | [`ServerTime::at_least`] | never ahead of the server | times written into records that are there |
//!
//! A brief record's next fence may be the server's own time. A time that was ahead of the server would become a fence by
//! the next claim, and that one would be larger. Neither estimate decides about lapse and expiry: the server does, by the
//! time to live that it counts down itself.

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

/// What the servers said, and when they were asked.
#[derive(Clone, Copy)]
struct Sample {
    times: ServerTimes,
    asked: Tick,
    answered: Tick,
}

/// The clocks that are furthest ahead and furthest behind, of the servers that answered.
#[derive(Clone, Copy)]
pub(super) struct ServerTimes {
    pub(super) latest: Timestamp,
    earliest: Timestamp,
}

impl Sample {
    async fn ask(clock: &dyn Clock, link: &Link) -> StoreResult<Self> {
        let asked = clock.now();
        let times = ask(link).await?;
        Ok(Self {
            times,
            asked,
            answered: clock.now(),
        })
    }

    /// An upper bound: the server may have answered right after the question.
    fn latest(&self, now: Tick) -> Timestamp {
        self.times.latest.plus(now.since(self.asked))
    }

    /// A lower bound: the server may have answered right before the answer arrived.
    fn earliest(&self, now: Tick) -> Timestamp {
        self.times.earliest.plus(now.since(self.answered))
    }
}

impl ServerTime {
    /// Asks for the first time.
    pub(super) async fn new(clock: Arc<dyn Clock>, link: &Link) -> StoreResult<Self> {
        let sample = Mutex::new(Sample::ask(&*clock, link).await?);
        Ok(Self { clock, sample })
    }

    /// Our own clock.
    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Now, on the server's clock, or a little later.
    pub(super) fn now(&self) -> Timestamp {
        let now = self.clock.now();
        self.sample.lock().latest(now)
    }

    /// Now, on the server's clock, or a little earlier.
    pub(super) fn at_least(&self) -> Timestamp {
        let now = self.clock.now();
        self.sample.lock().earliest(now)
    }

    /// Refreshes both estimates. Without an answer they stay, carried on by our own clock.
    pub(super) async fn refresh(&self, link: &Link) {
        let Ok(mut new) = Sample::ask(&*self.clock, link).await else {
            return;
        };
        let mut sample = self.sample.lock();
        // Never backwards: a fence must not be smaller than an earlier one.
        new.times.latest = new.times.latest.max(sample.latest(new.asked));
        *sample = new;
    }
}

/// Asks all masters. It fails if none of them answers.
pub(super) async fn ask(link: &Link) -> StoreResult<ServerTimes> {
    let (_, masters) = link.masters();
    let cmd = redis::cmd("TIME");
    let replies = join_all(masters.iter().map(|node| node.ask(&cmd))).await;
    let mut answered: StoreResult<ServerTimes> = Err(unexpected("no server to ask for the time"));
    for reply in replies {
        let time = reply.and_then(|reply| parse(&reply));
        answered = match (answered, time) {
            (Ok(times), Ok(time)) => Ok(ServerTimes {
                latest: times.latest.max(time),
                earliest: times.earliest.min(time),
            }),
            (Err(_), Ok(time)) => Ok(ServerTimes {
                latest: time,
                earliest: time,
            }),
            (Ok(times), Err(_)) => Ok(times),
            (Err(_), Err(error)) => Err(error),
        };
    }
    answered
}

fn parse(reply: &Value) -> StoreResult<Timestamp> {
    let parts: (u64, u64) = redis::from_redis_value_ref(reply).map_err(|_| unexpected("TIME"))?;
    Ok(Timestamp::from_micros(
        parts.0.saturating_mul(1_000_000).saturating_add(parts.1),
    ))
}
