//! Whose time counts: the server's, whatever a client's clocks say.

use std::time::Duration;

use semel_core::store::StoreAdmin as _;
use semel_core::{Claimed, Store as _};
use semel_stores::object::MIN_CLOCK_MARGIN;

use super::support::{
    OddClock, again, busy, clock, fresh, fresh_for, open, open_with, own_url, won,
};

const DAY: i64 = 24 * 3600 * 1_000_000;

#[tokio::test]
async fn a_wall_clock_that_is_a_day_off_changes_nothing() {
    let url = own_url();
    let (early, late) = (OddClock::new(-DAY), OddClock::new(DAY));
    let stores = [
        open_with(&url, early).await,
        open(&url).await,
        open_with(&url, late).await,
    ];
    for owner in &stores {
        let claim = fresh();
        let lease = won(owner, &claim).await;
        for other in &stores {
            let left = busy(other, &again(&claim)).await.retry_after;
            assert!(left <= claim.terms.lease() && !left.is_zero(), "{left:?}");
            let record = other.read(&claim.identity).await.expect("an answer");
            let (written, now) = (record.expect("there").written_at, other.now().await);
            let apart = now.expect("a time").since(written);
            assert!(apart < Duration::from_secs(20), "{apart:?} apart");
        }
        assert_eq!(lease.attempt, 1);
    }
}

/// A process that was suspended has an idea of the server's time that is as old. What it writes
/// before it has heard from the server again is not taken for as old as it believes.
#[tokio::test]
async fn the_lease_of_a_process_that_slept_is_not_taken_for_lapsed() {
    let url = own_url();
    let odd = OddClock::new(0);
    let (sleeper, other) = (open_with(&url, odd.clone()).await, open(&url).await);
    let lease = Duration::from_secs(2);
    odd.stop();
    clock()
        .sleep(lease + MIN_CLOCK_MARGIN + Duration::from_secs(2))
        .await;
    let claim = fresh_for(lease);
    won(&sleeper, &claim).await;
    busy(&other, &again(&claim)).await;
}

/// And one that slept after it had claimed does not take others' leases for younger than they are
/// for ever: it learns the time from the first reply.
#[tokio::test]
async fn a_process_that_slept_learns_the_time_from_the_first_reply() {
    let url = own_url();
    let odd = OddClock::new(0);
    let (sleeper, other) = (open_with(&url, odd.clone()).await, open(&url).await);
    let lease = Duration::from_secs(1);
    let claim = fresh_for(lease);
    won(&other, &claim).await;
    odd.stop();
    clock()
        .sleep(lease + MIN_CLOCK_MARGIN + Duration::from_millis(1300))
        .await;
    let taken = won(&sleeper, &again(&claim)).await;
    assert_eq!(taken.attempt, 2);
}

/// `Date` and `Last-Modified` are cut to the second, so that a lease could seem over before it is:
/// the margin keeps everybody off for longer than that.
#[tokio::test]
async fn nobody_takes_over_before_the_margin_is_past() {
    let url = own_url();
    let (owner, rival) = (open(&url).await, open(&url).await);
    let lease = Duration::from_secs(1);
    for _ in 0..3 {
        let claim = fresh_for(lease);
        let clock = clock();
        won(&owner, &claim).await;
        let claimed = clock.now();
        let waited = loop {
            let asked = clock.now();
            match rival.claim(&again(&claim)).await.expect("an answer") {
                Claimed::Won(_) => break asked.since(claimed),
                Claimed::Busy(busy) => {
                    assert!(!busy.retry_after.is_zero(), "told to ask again at once");
                    clock.sleep(Duration::from_millis(50)).await;
                }
                other => panic!("{other:?}"),
            }
        };
        // The second that a time leaves out is the most that the margin can be shorter by.
        let least = lease + MIN_CLOCK_MARGIN - Duration::from_secs(1);
        assert!(waited >= least, "taken over after {waited:?}");
    }
}
