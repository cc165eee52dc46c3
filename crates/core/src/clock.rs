//! Clocks, passed in: the only place of this crate that reads the machine's time.
//!
//! Two kinds of time never mix. [`Tick`] is this process's monotonic clock: it measures durations
//! and the owner's own deadline. [`Timestamp`] is the *store's* clock: it decides when a lease has
//! lapsed and when a record has expired. No rule compares the clocks of two processes.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// A point on this process's monotonic clock, counted from an origin that means nothing elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(Duration);

impl Tick {
    /// The tick that lies `since_origin` after the clock's origin.
    #[must_use]
    pub const fn new(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// How far this tick lies from the clock's origin.
    #[must_use]
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// The tick that lies `micros` microseconds after the clock's origin.
    pub(crate) const fn from_micros(micros: u64) -> Self {
        Self(Duration::from_micros(micros))
    }

    /// How many whole microseconds this tick lies from the clock's origin.
    pub(crate) fn as_micros(self) -> u64 {
        micros(self.0)
    }

    /// The tick `by` later.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }

    /// Time from `earlier` to this tick; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// A point on a store's clock: microseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The point `micros` microseconds after the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The point `by` later.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(micros(by)))
    }

    /// Time from `earlier` to this point; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A future that completes when a span of time has passed.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where time comes from.
///
/// A runtime provides one ([`crate::env::Env`]). Tests use one that only moves when they advance
/// it.
pub trait Clock: Send + Sync + 'static {
    /// Now, on this process's monotonic clock. Never runs backwards. It should advance while the
    /// machine is suspended, because leases do (P30).
    fn now(&self) -> Tick;

    /// Now, on this machine's wall clock. Only for display, and for the memory store, whose clock
    /// it is.
    fn wall(&self) -> Timestamp;

    /// Completes once `for_time` has passed on the monotonic clock.
    fn sleep(&self, for_time: Duration) -> Sleep;
}

impl dyn Clock + '_ {
    /// Awaits `future` for at most `limit`, and drops it then. Creates no timer if it completes at
    /// once.
    ///
    /// # Errors
    /// [`Elapsed`], if it takes longer.
    pub async fn timeout<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        let mut timer: Option<Sleep> = None;
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            let timer = timer.get_or_insert_with(|| self.sleep(limit));
            timer.as_mut().poll(cx).map(|()| Err(Elapsed))
        })
        .await
    }
}

/// A future took longer than its limit: [`Clock::timeout`](trait.Clock.html#method.timeout).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer in time")]
#[non_exhaustive]
pub struct Elapsed;

/// The machine's own clocks. Cannot sleep: that takes a runtime, which wraps this.
#[derive(Clone, Copy, Debug)]
pub struct SystemTime {
    origin: std::time::Instant,
}

impl Default for SystemTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "this module is the one blessed source of time"
    )]
    fn default() -> Self {
        Self {
            origin: std::time::Instant::now(),
        }
    }
}

impl SystemTime {
    /// Now, on the monotonic clock.
    #[must_use]
    pub fn now(&self) -> Tick {
        Tick(self.origin.elapsed())
    }

    /// Now, on the wall clock. A clock set before 1970 reads as 1970.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this module is the one blessed source of time"
    )]
    pub fn wall(&self) -> Timestamp {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Timestamp(micros(since_epoch.unwrap_or_default()))
    }
}
