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
    [Caller::new(By::Tenant, name)]
}

fn met<T>(entered: Result<T, Met>) -> Option<(Limit, By)> {
    entered.err().map(|met| (met.limit, met.by))
}

#[test]
fn a_tenant_leaves_room_for_others_and_is_forgotten_when_it_has_left() {
    let limiter = limiter(|_| {});
    let flood = [
        limiter.enter(&tenant("flood")),
        limiter.enter(&tenant("flood")),
    ];
    assert_eq!(
        met(limiter.enter(&tenant("flood"))),
        Some((Limit::Requests, By::Tenant))
    );
    let others = [limiter.enter(&tenant("b")), limiter.enter(&tenant("c"))];
    assert!(flood.iter().chain(&others).all(Result::is_ok));
    assert_eq!(
        met(limiter.enter(&tenant("d"))),
        Some((Limit::Requests, By::Process))
    );
    drop((flood, others));
    assert_eq!(limiter.shared.process.requests(), 0);
    assert_eq!(limiter.shared.callers.count(), 0);
    assert!(limiter.enter(&tenant("flood")).is_ok());
}

#[test]
fn bytes_are_given_back_with_the_ticket() {
    let limiter = limiter(|_| {});
    let ticket = limiter.enter(&tenant("flood")).expect("a place");
    assert!(ticket.0.take(400) && ticket.0.take(100) && !ticket.0.take(1));
    let other = limiter.enter(&tenant("other")).expect("a place");
    assert!(other.0.take(500) && !other.0.take(1));
    drop((ticket, other));
    assert_eq!(limiter.shared.process.bytes(), 0);
    let count = limiter
        .refusals()
        .find(|(limit, by, _)| (*limit, *by) == (Limit::Buffered, By::Tenant));
    assert_eq!(count.map(|(.., count)| count), Some(2));
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_a_place_are_no_more_than_their_share() {
    let limiter = limiter(|limits| limits.requests = 100);
    let patience = Duration::from_secs(1);
    let mut held = Vec::new();
    for name in ["flood", "flood", "b", "b"] {
        let ticket = limiter.enter(&tenant(name)).expect("a place");
        held.push(ticket.run(patience).await.expect("a place"));
    }
    let ticket = limiter.enter(&tenant("flood")).expect("a place");
    assert_eq!(
        met(ticket.run(patience).await),
        Some((Limit::Running, By::Tenant))
    );
    let ticket = limiter.enter(&tenant("c")).expect("a place");
    assert_eq!(
        met(ticket.run(patience).await),
        Some((Limit::Running, By::Process))
    );
    held.pop();
    assert!(ticket.run(patience).await.is_ok());
}

#[test]
fn a_rate_holds_for_each_caller_and_says_when_to_come_back() {
    let limiter = limiter(|limits| {
        limits.tenant_rate = Some(2);
        limits.tenant_share = 100;
    });
    for _ in 0..2 {
        assert!(limiter.enter(&tenant("fast")).is_ok());
    }
    let refused = limiter.enter(&tenant("fast")).expect_err("a refusal");
    assert_eq!((refused.limit, refused.by), (Limit::Rate, By::Tenant));
    assert!(refused.retry_after <= Duration::from_secs(1));
    assert!(limiter.enter(&tenant("other")).is_ok());
}
