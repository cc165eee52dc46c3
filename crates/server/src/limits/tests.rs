use parking_lot::Mutex;
use semel::core::clock::Sleep;
use semel::core::{Clock, Tick, Timestamp};
use semel::http::TakeBytes as _;

use super::*;
use crate::config::Size;

fn limiter(settings: impl FnOnce(&mut Limits)) -> Limiter {
    let mut limits = Limits {
        requests: 4,
        running: 4,
        buffered: Size(1000),
        ..Limits::default()
    };
    settings(&mut limits);
    Limiter::new(&limits)
}

fn tenant(name: &str) -> [Caller; 1] {
    [Caller::new(LimitScope::Tenant, name)]
}

fn exceeded<T>(result: Result<T, ExceededLimit>) -> Option<(Limit, LimitScope)> {
    result.err().map(|exceeded| (exceeded.limit, exceeded.by))
}

#[test]
fn tenant_share_leaves_room_and_usage_is_removed_at_the_end() {
    let limiter = limiter(|_| {});
    let flood = [
        limiter.enter(&tenant("flood")),
        limiter.enter(&tenant("flood")),
    ];
    assert_eq!(
        exceeded(limiter.enter(&tenant("flood"))),
        Some((Limit::Requests, LimitScope::Tenant))
    );
    let others = [limiter.enter(&tenant("b")), limiter.enter(&tenant("c"))];
    assert!(flood.iter().chain(&others).all(Result::is_ok));
    assert_eq!(
        exceeded(limiter.enter(&tenant("d"))),
        Some((Limit::Requests, LimitScope::Process))
    );
    drop((flood, others));
    assert_eq!(limiter.shared.process.requests(), 0);
    assert_eq!(limiter.shared.callers.count(), 0);
    assert!(limiter.enter(&tenant("flood")).is_ok());
}

#[test]
fn dropped_ticket_releases_its_bytes() {
    let limiter = limiter(|_| {});
    let ticket = limiter.enter(&tenant("flood")).expect("admission");
    assert!(ticket.0.take(400) && ticket.0.take(100) && !ticket.0.take(1));
    let other = limiter.enter(&tenant("other")).expect("admission");
    assert!(other.0.take(500) && !other.0.take(1));
    drop((ticket, other));
    assert_eq!(limiter.shared.process.bytes(), 0);
    let count = limiter
        .refusals()
        .find(|(limit, by, _)| (*limit, *by) == (Limit::Buffered, LimitScope::Tenant));
    assert_eq!(count.map(|(.., count)| count), Some(2));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_run_is_limited_to_the_callers_share() {
    let limiter = limiter(|limits| limits.requests = 100);
    let timeout = Duration::from_secs(1);
    let mut held = Vec::new();
    for name in ["flood", "flood", "b", "b"] {
        let ticket = limiter.enter(&tenant(name)).expect("admission");
        held.push(ticket.acquire_run(timeout).await.expect("admission"));
    }
    let ticket = limiter.enter(&tenant("flood")).expect("admission");
    assert_eq!(
        exceeded(ticket.acquire_run(timeout).await),
        Some((Limit::Running, LimitScope::Tenant))
    );
    let ticket = limiter.enter(&tenant("c")).expect("admission");
    assert_eq!(
        exceeded(ticket.acquire_run(timeout).await),
        Some((Limit::Running, LimitScope::Process))
    );
    held.pop();
    assert!(ticket.acquire_run(timeout).await.is_ok());
}

/// A clock that a test moves.
struct HandClock(Mutex<Duration>);

impl Clock for HandClock {
    fn now(&self) -> Tick {
        Tick::new(*self.0.lock())
    }

    fn wall(&self) -> Timestamp {
        Timestamp::default()
    }

    fn sleep(&self, _: Duration) -> Sleep {
        unreachable!("quotas do not sleep")
    }
}

#[test]
fn quotas_drain_evenly_over_their_window() {
    let clock = Arc::new(HandClock(Mutex::default()));
    let limits = Limits {
        tenant_keys: Some(4),
        tenant_stored: Some(Size(1000)),
        quota_window: crate::config::Span(Duration::from_secs(40)),
        ..Limits::default()
    };
    let quotas = Quotas::new(&limits, Arc::clone(&clock) as Arc<dyn Clock>);
    let [full, other] = [tenant("full"), tenant("other")].map(|[caller]| caller);
    quotas.add(&full, 4, 100);
    assert_eq!((quotas.room(&full), quotas.room(&other)), (0, 4));
    for (seconds, room) in [(9, 0), (10, 1), (25, 2), (40, 4), (400, 4)] {
        *clock.0.lock() = Duration::from_secs(seconds);
        assert_eq!(quotas.room(&full), room, "after {seconds} s");
    }
    quotas.add(&full, 1, 1500);
    assert_eq!(quotas.room(&full), 0, "the bytes are used up");
    quotas.remove(&full, 1, 1500);
    assert_eq!(quotas.room(&full), 4, "what is not kept does not count");
    quotas.add(&full, 1, 1500);
    *clock.0.lock() += Duration::from_secs(21);
    assert_eq!(quotas.room(&full), 4);
}

/// A lease that is settled at another node is never closed at this one.
#[test]
fn leases_leave_with_the_window() {
    let lease = |number: u8| {
        let fence = semel::core::Fence(u64::from(number));
        (semel::core::Identity::from_bytes([number; 32]), fence)
    };
    let at = |seconds| Tick::new(Duration::from_secs(seconds));
    let mut leases = leases::Leases::new(Duration::from_secs(40));
    for number in 1..=3 {
        leases.open(lease(number), at(u64::from(number)));
    }
    assert_eq!(leases.count(), 3);
    leases.open(lease(4), at(42));
    assert_eq!(leases.count(), 2, "those of 3 s and 42 s");
    assert!(leases.begin_settlement(lease(4), at(43)));
    assert!(!leases.begin_settlement(lease(4), at(44)), "sent again");
}

#[test]
fn rate_limit_is_per_caller_and_has_a_retry_time() {
    let limiter = limiter(|limits| {
        limits.tenant_rate = Some(2);
        limits.tenant_share = 100;
    });
    for _ in 0..2 {
        assert!(limiter.enter(&tenant("fast")).is_ok());
    }
    let refused = limiter.enter(&tenant("fast")).expect_err("a refusal");
    assert_eq!(
        (refused.limit, refused.by),
        (Limit::Rate, LimitScope::Tenant)
    );
    assert!(refused.retry_after <= Duration::from_secs(1));
    assert!(limiter.enter(&tenant("other")).is_ok());
}
