//! The window and the key, by their acceptance list.

use std::sync::atomic::{AtomicUsize, Ordering};

use semel_stream::{IdempotencyStore, Mark, SeqNo, SeqNoTracker, SessionId, StreamKey};

fn keys(range: std::ops::Range<u128>) -> impl Iterator<Item = StreamKey> {
    range.map(StreamKey)
}

#[test]
fn derive_is_deterministic() {
    let session = SessionId::from_bytes([3; 16]);
    let key = || StreamKey::derive(session, SeqNo(9), b"operation");
    assert_eq!(key(), key());
}

/// Keys of more than 64 bits keep all of them.
#[test]
fn key_is_written_and_read_with_serde() {
    let derived = StreamKey::derive(SessionId::named("sensor-7"), SeqNo(9), b"operation");
    for key in [StreamKey(0), StreamKey(u128::MAX), derived] {
        let text = serde_json::to_string(&key).expect("JSON");
        assert_eq!(
            serde_json::from_str::<StreamKey>(&text).expect("a key"),
            key
        );
    }
}

#[test]
fn each_input_counts() {
    let derive = |session: u8, seqno, operation: &[u8]| {
        StreamKey::derive(
            SessionId::from_bytes([session; 16]),
            SeqNo(seqno),
            operation,
        )
    };
    let all = [
        derive(1, 1, b"a"),
        derive(2, 1, b"a"),
        derive(1, 2, b"a"),
        derive(1, 1, b"b"),
        derive(1, 1, b""),
    ];
    for (i, one) in all.iter().enumerate() {
        assert!(all[i + 1..].iter().all(|other| other != one));
    }
}

#[test]
fn check_and_record_is_true_once() {
    let store = IdempotencyStore::new(10);
    assert!(store.check_and_record(StreamKey(1)));
    for _ in 0..3 {
        assert!(!store.check_and_record(StreamKey(1)));
    }
}

#[test]
fn past_its_capacity_the_oldest_are_evicted_and_look_new() {
    let store = IdempotencyStore::new(100);
    assert!(keys(0..150).all(|key| store.check_and_record(key)));
    assert!(keys(50..150).all(|key| store.contains(key)));
    assert!(!keys(0..50).any(|key| store.contains(key)));
    assert!(store.check_and_record(StreamKey(0)));
    assert!(!store.contains(StreamKey(50)), "the oldest gave way");
}

#[test]
fn a_key_seen_again_is_not_the_oldest_any_more() {
    let store = IdempotencyStore::new(3);
    assert!(keys(0..3).all(|key| store.check_and_record(key)));
    assert!(!store.check_and_record(StreamKey(0)));
    assert!(store.check_and_record(StreamKey(3)));
    assert!(store.contains(StreamKey(0)) && !store.contains(StreamKey(1)));
}

#[test]
fn an_evicted_operation_is_still_stopped_by_its_mark() {
    let (store, tracker) = (IdempotencyStore::new(2), SeqNoTracker::default());
    let session = SessionId::named("a");
    for seqno in 1..=10 {
        let key = StreamKey::derive(session, SeqNo(seqno), b"add 5");
        assert!(tracker.should_apply(session, SeqNo(seqno)));
        assert!(store.check_and_record(key));
        tracker.advance(session, Mark::new(0, seqno)).unwrap();
    }
    let first = StreamKey::derive(session, SeqNo(1), b"add 5");
    assert!(!store.contains(first), "long evicted");
    assert!(!tracker.should_apply(session, SeqNo(1)));
}

#[test]
fn len_is_0_at_first_and_grows_up_to_capacity() {
    let store = IdempotencyStore::new(100);
    assert!(store.is_empty());
    for (n, key) in keys(0..200).enumerate() {
        assert_eq!(store.len(), n.min(100));
        assert!(store.check_and_record(key));
    }
    assert_eq!((store.len(), store.capacity()), (100, 100));
}

#[test]
#[should_panic(expected = "at least one key")]
fn a_window_of_nothing_is_refused() {
    let _ = IdempotencyStore::new(0);
}

#[test]
fn shards_keep_the_guaranteed_number_of_keys() {
    let store = IdempotencyStore::sharded(100_000, 16);
    assert_eq!(store.surely(), 92_416);
    assert!(keys(0..300_000).all(|key| store.check_and_record(key)));
    assert!(store.len() <= store.capacity());
    let last = 300_000 - store.surely() as u128;
    assert!(keys(last..300_000).all(|key| store.contains(key)));
}

#[test]
fn keys_recorded_again_in_their_order_make_the_same_window() {
    let store = IdempotencyStore::new(50);
    assert!(keys(0..80).all(|key| store.check_and_record(key)));
    assert!(keys(30..80).eq(store.keys()));
    // In parts, a key's age is off by little: all are there again, and the newest survive a flood
    // of half the window.
    let parts = IdempotencyStore::sharded(10_000, 8);
    assert!(keys(0..9_000).all(|key| parts.check_and_record(key)));
    let again = IdempotencyStore::sharded(10_000, 8);
    assert!(
        parts
            .keys()
            .into_iter()
            .all(|key| again.check_and_record(key))
    );
    assert!(keys(100_000..105_000).all(|key| again.check_and_record(key)));
    assert!(keys(6_000..9_000).all(|key| again.contains(key)));
}

#[test]
fn of_many_threads_with_one_key_one_is_first() {
    let store = IdempotencyStore::sharded(100_000, 16);
    let first = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let new = keys(0..20_000)
                    .filter(|key| store.check_and_record(*key))
                    .count();
                first.fetch_add(new, Ordering::Relaxed);
            });
        }
    });
    assert_eq!((first.into_inner(), store.len()), (20_000, 20_000));
}

#[test]
fn a_batch_says_what_its_keys_say_one_by_one() {
    let (batched, single) = (IdempotencyStore::new(100), IdempotencyStore::new(100));
    // Keys come again within a batch, in the next one, and after they gave way.
    let stream: Vec<_> = (0..5_000_u128).map(|n| StreamKey(n * n % 257)).collect();
    for batch in stream.chunks(33) {
        let each: Vec<_> = batch
            .iter()
            .map(|key| single.check_and_record(*key))
            .collect();
        assert_eq!(batched.check_and_record_all(batch), each);
    }
    assert_eq!(batched.keys(), single.keys());
    assert!(batched.check_and_record_all(&[]).is_empty());
}

#[test]
fn batches_of_two_threads_have_each_key_new_once() {
    let store = IdempotencyStore::sharded(100_000, 16);
    let all: Vec<_> = keys(0..50_000).collect();
    let new = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for batch in all.chunks(1_000) {
                    let news = store.check_and_record_all(batch).into_iter();
                    new.fetch_add(news.filter(|new| *new).count(), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(new.into_inner(), all.len());
}
