//! The server's clock, estimated from the `Date` of its responses.
//!
//! Every response has the server's time to the second. With the times of request and response on
//! our monotonic clock, it bounds the difference of the two clocks from below and above, and many
//! responses bound it closely. The estimate is the lower bound: a lease that has lapsed by it has
//! lapsed on the server. Our wall clock isn't used.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use semel_core::{Clock, Record, State, Tick, Timestamp};

/// The resolution of `Date`.
const GRAIN: i64 = 1_000_000;

/// The assumed drift between our clock and the server's, as one in this many. Bounds widen by it.
const DRIFT: i64 = 10_000;

pub(super) struct ServerTime {
    clock: Arc<dyn Clock>,
    bounds: Mutex<Option<Bounds>>,
}

/// The server's clock is ahead of our ticks by at least `low` and at most `high` microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    low: i64,
    high: i64,
    at: i64,
}

impl Bounds {
    /// The bounds from one response.
    fn from_reply(date: Timestamp, sent: Tick, received: Tick) -> Self {
        let date = signed(date.as_micros());
        Self {
            low: date - micros(received),
            high: date + GRAIN - micros(sent),
            at: micros(received),
        }
    }

    /// The intersection of both bounds, or the newer ones if they are disjoint: a clock was set, or
    /// a process slept.
    fn intersect(self, newer: Self) -> Self {
        let drift = (newer.at - self.at).max(0) / DRIFT;
        let low = newer.low.max(self.low - drift);
        let high = newer.high.min(self.high + drift);
        if low > high {
            return newer;
        }
        Self {
            low,
            high,
            at: newer.at,
        }
    }
}

impl ServerTime {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            bounds: Mutex::new(None),
        }
    }

    /// Our own clock.
    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Takes in the `Date` of a response.
    pub(super) fn observe(&self, date: Timestamp, sent: Tick, received: Tick) {
        let newer = Bounds::from_reply(date, sent, received);
        let mut bounds = self.bounds.lock();
        *bounds = Some(bounds.map_or(newer, |bounds| bounds.intersect(newer)));
    }

    /// Whether any response has had a `Date`.
    pub(super) fn is_known(&self) -> bool {
        self.bounds.lock().is_some()
    }

    /// The earliest possible time on the server's clock.
    pub(super) fn now(&self) -> Timestamp {
        let tick = micros(self.clock.now());
        let low = self.bounds.lock().map_or(0, |bounds| bounds.low);
        Timestamp::from_micros(u64::try_from(tick + low).unwrap_or(0))
    }
}

fn micros(tick: Tick) -> i64 {
    i64::try_from(tick.since_origin().as_micros()).unwrap_or(i64::MAX / 4)
}

fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX / 4)
}

/// When a record was written: the writer's estimate, limited to the second that the server noted.
/// So a writer with a wrong estimate is wrong by less than a second.
pub(super) fn written(believed: Timestamp, noted: Timestamp) -> Timestamp {
    let last = noted.plus(Duration::from_micros(GRAIN.unsigned_abs() - 1));
    believed.clamp(noted, last)
}

/// The record with this time of writing. A first run begins when it is written.
pub(super) fn dated(record: Record, at: Timestamp) -> Record {
    let is_first = record.created_at == record.written_at;
    Record {
        created_at: if is_first { at } else { record.created_at },
        written_at: at,
        ..record
    }
}

/// The time to decide by: `estimate`, held back while an end is past by less than the margin, and
/// converted to the writer's estimate of the clock if that differs from the time that the server
/// `noted`. So the record stays as it was written.
pub(super) fn decide_at(
    record: &Record,
    noted: Option<Timestamp>,
    estimate: Timestamp,
    margin: Duration,
) -> Timestamp {
    let written = noted.map_or(record.written_at, |noted| written(record.written_at, noted));
    let now = estimate.max(written);
    let is_close = |end: Timestamp| now >= end && now < end.plus(margin);
    // The lease first: it ends before the record does, or with it.
    let lease = Some(written.plus(record.lease)).filter(|_| record.state == State::Running);
    let ends = [lease, Some(written.plus(record.retention))];
    let close = ends.into_iter().flatten().find(|end| is_close(*end));
    let now = close.map_or(now, just_before);
    record.written_at.plus(now.since(written))
}

/// How long until a running record can be taken over: until its lease ends, and then until the
/// margin does.
pub(super) fn time_left(
    record: &Record,
    noted: Option<Timestamp>,
    estimate: Timestamp,
    margin: Duration,
) -> Duration {
    let written = noted.map_or(record.written_at, |noted| written(record.written_at, noted));
    let (now, end) = (estimate.max(written), written.plus(record.lease));
    if now < end {
        return end.since(now);
    }
    end.plus(margin).since(now)
}

fn just_before(end: Timestamp) -> Timestamp {
    Timestamp::from_micros(end.as_micros().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(millis: u64) -> Tick {
        Tick::new(Duration::from_millis(millis))
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1000)
    }

    #[test]
    fn replies_narrow_the_bounds_and_never_pass_the_truth() {
        // The server is 5.3 s ahead of our ticks; each reply takes 20 ms.
        let mut bounds: Option<Bounds> = None;
        for sent in (0..3000).step_by(130) {
            let stamped = (sent + 10 + 5300) / 1000 * 1000;
            let newer = Bounds::from_reply(at(stamped), tick(sent), tick(sent + 20));
            bounds = Some(bounds.map_or(newer, |bounds| bounds.intersect(newer)));
            let found = bounds.unwrap();
            assert!(
                found.low <= 5_300_000 && 5_300_000 <= found.high,
                "{found:?}"
            );
        }
        let found = bounds.unwrap();
        assert!(found.high - found.low < 200_000, "{found:?}");
    }

    #[test]
    fn suspended_process_takes_the_next_reply() {
        let before = Bounds::from_reply(at(10_000), tick(1000), tick(1010));
        // An hour passed there, ten milliseconds on our clock.
        let after = Bounds::from_reply(at(3_610_000), tick(1020), tick(1030));
        assert_eq!(before.intersect(after), after);
    }

    /// A record that was written at 10 s.
    fn running(lease: u64, retention: u64) -> Record {
        let namespace = semel_core::Namespace::new("", "", "scope").unwrap();
        let secret = semel_core::Secret::none();
        Record {
            seal: [0; 16],
            state: State::Running,
            crash: semel_core::CrashPolicy::Takeover,
            fence: semel_core::Fence(1),
            token: semel_core::Token(1),
            attempt: 1,
            max_attempts: 5,
            fingerprint: semel_core::Fingerprint::builder(&secret).finish(),
            secret_id: 0,
            lease: Duration::from_millis(lease),
            retention: Duration::from_millis(retention),
            created_at: at(10_000),
            written_at: at(10_000),
            namespace,
            hint: semel_core::KeyHint::new(""),
            checkpoint: bytes::Bytes::new(),
            answer: None,
        }
    }

    #[test]
    fn lease_end_counts_after_the_margin() {
        const MARGIN: Duration = Duration::from_secs(2);
        // The second one's record ends soon after its lease, the third one's with it.
        for (lease, retention) in [(1_000, 60_000), (1_000, 1_500), (1_000, 1_000)] {
            let record = running(lease, retention);
            for estimate in (9_000..13_000).step_by(100) {
                let now = decide_at(&record, None, at(estimate), MARGIN);
                let is_over = record.is_lapsed(now) || record.is_expired(now);
                assert!(!is_over, "at {estimate}, {retention}");
                assert!(!time_left(&record, None, at(estimate), MARGIN).is_zero());
            }
            let now = decide_at(&record, None, at(13_000), MARGIN);
            assert!(record.is_lapsed(now), "{retention}");
            let end = 10_000 + retention + 2_000;
            assert!(!record.is_expired(decide_at(&record, None, at(end - 1), MARGIN)));
            assert!(record.is_expired(decide_at(&record, None, at(end), MARGIN)));
        }
    }

    #[test]
    fn writer_with_wrong_estimate_gets_its_full_span() {
        const MARGIN: Duration = Duration::from_secs(2);
        // Written at 10 s, as it believed; at 50 s, as the server noted.
        let record = running(1_000, 60_000);
        let noted = Some(at(50_000));
        for estimate in [50_000, 51_000, 52_999] {
            let now = decide_at(&record, noted, at(estimate), MARGIN);
            assert!(!record.is_lapsed(now), "at {estimate}");
        }
        assert!(record.is_lapsed(decide_at(&record, noted, at(53_000), MARGIN)));
        let left = time_left(&record, noted, at(50_400), MARGIN);
        assert_eq!(left, Duration::from_millis(600));
    }

    #[test]
    fn writer_estimate_is_limited_to_the_noted_second() {
        assert_eq!(written(at(10_400), at(10_000)), at(10_400));
        assert_eq!(written(at(4_000), at(10_000)), at(10_000));
        let late = written(at(99_000), at(10_000));
        assert!(late > at(10_999) && late < at(11_000), "{late:?}");
    }
}
