//! What a window and marks take, counted by the allocator.

use std::alloc::System;

use semel_stream::{IdempotencyStore, Mark, Order, SeqNoTracker, SessionId, StreamKey};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

/// Counts what is asked for and given back.
#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn kept(region: &Region<'_, System>) -> usize {
    let stats = region.change();
    stats.bytes_allocated - stats.bytes_deallocated
}

// One test, so that nothing else allocates beside it.
#[test]
fn a_hundred_thousand_keys_take_well_under_10_megabytes() {
    let region = Region::new(COUNTED);
    let store = IdempotencyStore::default_capacity();
    let at_first = kept(&region);
    // Three times around, so that all that a removal might leave behind is counted too.
    for key in 0..300_000 {
        assert!(store.check_and_record(StreamKey(key)));
    }
    assert_eq!(store.len(), 100_000);
    let full = kept(&region);
    println!("100,000 keys: {full} bytes");
    assert!(full < 4_000_000, "{full} bytes");
    // A little for the test's own output.
    assert!(full < at_first + 5_000, "all of it is taken at the start");
    drop(store);

    let region = Region::new(COUNTED);
    let tracker = SeqNoTracker::new(200_000, Order::Contiguous);
    for n in 0..100_000_u128 {
        let session = SessionId::from_bytes(n.to_le_bytes());
        tracker.advance(session, Mark::new(0, 1)).unwrap();
    }
    let before = kept(&region);
    println!("100,000 sessions: {before} bytes");
    assert!(before < 10_000_000, "{before} bytes");
    for n in 0..100_000_u128 {
        let session = SessionId::from_bytes(n.to_le_bytes());
        tracker
            .advance(session, Mark::new(3, 1_000_000_000))
            .unwrap();
    }
    // A little for the test's own output; a byte more for each session would be twenty times that.
    let after = kept(&region);
    assert!(
        after < before + 5_000,
        "a session is as large as it was, however far it came: {after} bytes"
    );
}
