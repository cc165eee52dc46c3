//! The requirements document on replicas, tried in its own order: what it promises beside what
//! happened.

use std::error::Error;
use std::slice::from_ref;
use std::time::{Duration, Instant};

use replica::{SegmentReceiver, SessionEvent};
use semel_stream::{GateLimits, IdempotencyStore, SeqNo, SessionId, StreamKey};

/// What happened so far.
#[derive(Default)]
struct Walk {
    kept: u32,
    other: u32,
    wrong: u32,
}

impl Walk {
    /// Semel does what the document says.
    fn promise(&mut self, id: &str, what: &str, happened: &str, expected: &str) {
        self.kept += 1;
        self.compare("happened", id, what, happened, expected);
    }

    /// Semel does something else, for a reason that the page links to.
    fn differs(&mut self, id: &str, what: &str, happened: &str, expected: &str) {
        self.other += 1;
        self.compare("instead ", id, what, happened, expected);
    }

    fn compare(&mut self, word: &str, id: &str, what: &str, happened: &str, expected: &str) {
        println!("{id:<8} promised  {what}");
        if happened == expected {
            println!("         {word}  {happened}");
        } else {
            self.wrong += 1;
            println!("         MISMATCH  {happened}, expected {expected}");
        }
    }
}

/// Tries all of it.
pub(crate) fn walk() -> Result<(), Box<dyn Error>> {
    let mut walk = Walk::default();
    println!("\n1. The key");
    keys(&mut walk);
    println!("\n2. The window");
    window(&mut walk);
    println!("\n3. Sequence marks, then the window");
    receiver(&mut walk)?;
    let Walk { kept, other, wrong } = walk;
    println!("\n{kept} promises kept, {other} done in another way, {wrong} broken");
    if wrong > 0 {
        return Err("a promise was broken".into());
    }
    Ok(())
}

fn keys(walk: &mut Walk) {
    let (session, operation) = (SessionId::named("session-1"), b"orders 5".as_slice());
    let key = StreamKey::derive(session, SeqNo(7), operation);
    let again = StreamKey::derive(session, SeqNo(7), operation);
    let same = if key == again { "the same" } else { "another" };
    walk.promise(
        "R1.4",
        "derive gives one u128 for the same inputs",
        same,
        "the same",
    );
    let others = [
        StreamKey::derive(SessionId::named("session-2"), SeqNo(7), operation),
        StreamKey::derive(session, SeqNo(8), operation),
        StreamKey::derive(session, SeqNo(7), b"orders 6"),
    ];
    let distinct = others.iter().filter(|other| **other != key).count();
    let happened = format!("{distinct} of 3 changed inputs change it");
    walk.promise(
        "R1.5",
        "every input counts",
        &happened,
        "3 of 3 changed inputs change it",
    );
}

fn window(walk: &mut Walk) {
    let store = IdempotencyStore::default_capacity();
    let at_first = format!("{} of {}", store.len(), store.capacity());
    walk.promise(
        "R2.2",
        "room for 100,000 keys, 0 at first",
        &at_first,
        "0 of 100000",
    );
    let answers = [(); 3].map(|()| store.check_and_record(StreamKey(0)));
    let happened = format!("{answers:?}");
    let what = "check_and_record: true once, then false";
    walk.promise("R2.3", what, &happened, "[true, false, false]");
    let new = (1..=100_000).filter(|key| store.check_and_record(StreamKey(*key)));
    let happened = format!("{} new, {} kept", new.count(), store.len());
    let what = "100,000 more keys: len grows up to the capacity";
    walk.promise("R2.6", what, &happened, "100000 new, 100000 kept");
    let gone = store.check_and_record(StreamKey(0));
    let kept = !store.check_and_record(StreamKey(100_000));
    let happened = format!("the oldest looks new: {gone}, the newest is known: {kept}");
    let what = "past the capacity the oldest key is evicted, and looks new again";
    let expected = "the oldest looks new: true, the newest is known: true";
    walk.promise("R2.5", what, &happened, expected);
    let (small, large) = (a_duplicate_takes(1_000), a_duplicate_takes(1_000_000));
    let ratio = large.as_secs_f64() / small.as_secs_f64();
    // Caches of the processor make a large one slower; a search would make it 1,000 times slower.
    let is_constant = ratio < 50.0;
    let figures = format!(
        "{} and {} ns",
        small.as_nanos() / 1_000,
        large.as_nanos() / 1_000
    );
    let happened = match is_constant {
        true => format!("{figures}: constant"),
        false => format!("{ratio:.0} times as long"),
    };
    let expected = format!("{figures}: constant");
    let what = "a duplicate is found in O(1): among 1,000 and among 1,000,000 keys";
    walk.promise("R2.4", what, &happened, &expected);
    let limits = GateLimits::default();
    let gate = IdempotencyStore::sharded(limits.window, limits.shards);
    let happened = format!("the last {} in a gate of 16 parts", gate.surely());
    let what = "the last 100,000 operations are surely known";
    walk.differs(
        "R2.9",
        what,
        &happened,
        "the last 92416 in a gate of 16 parts",
    );
}

/// How long 1,000 duplicates take in a full window: the fastest of several turns, as other programs
/// only make it slower.
fn a_duplicate_takes(capacity: usize) -> Duration {
    let store = IdempotencyStore::new(capacity);
    // Far apart, so that neighbours in the window are not the next to be asked for.
    let all = u128::try_from(capacity).unwrap_or(u128::MAX);
    let key = |n: u128| StreamKey(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % all);
    for n in 0..all {
        let _ = store.check_and_record(StreamKey(n));
    }
    let turn = |turn: u128| {
        let began = Instant::now();
        let known = (0..1_000).filter(|n| !store.check_and_record(key(turn * 1_000 + n)));
        assert_eq!(known.count(), 1_000, "all of them are known");
        began.elapsed()
    };
    (0..100).map(turn).min().unwrap_or_default()
}

fn receiver(walk: &mut Walk) -> Result<(), Box<dyn Error>> {
    let event = |seqno: Option<u64>| SessionEvent {
        session: SessionId::named("session-1"),
        seqno: seqno.map(SeqNo),
        counter: "orders".to_owned(),
        amount: 1,
    };
    let log: Vec<SessionEvent> = (1..=1_000).map(|seqno| event(Some(seqno))).collect();
    // A window that has forgotten all but the last ten.
    let mut replica = SegmentReceiver::new(GateLimits::default().with_window(10).with_shards(1));
    replica.receive(&log)?;
    let again = replica.receive(&log)?;
    let total = |replica: &SegmentReceiver| replica.sessions().counters["orders"];
    let happened = format!("{} skipped, orders: {}", again.duplicates, total(&replica));
    let what =
        "not above the mark of its session: skipped, though the window has forgotten its key";
    walk.promise("R3.1", what, &happened, "1000 skipped, orders: 1000");
    let old = [event(None), event(None)];
    let received = replica.receive(&old)?;
    let (applied, duplicates) = (received.applied, received.duplicates);
    let happened = format!(
        "{applied} applied, {duplicates} skipped, orders: {}",
        total(&replica)
    );
    let what = "without a number: the window stops the second one";
    walk.promise(
        "R3.2",
        what,
        &happened,
        "1 applied, 1 skipped, orders: 1001",
    );
    let happened = format!("{} applied, {} skipped", again.applied, again.duplicates);
    let what = "duplicates are dropped without an error";
    walk.promise("R3.4", what, &happened, "0 applied, 1000 skipped");
    let gap = replica.receive(&[event(Some(1_002))])?;
    let missing = gap.missing.values().map(|seqno| seqno.0.to_string());
    let missing = missing.collect::<Vec<_>>().join(", ");
    let happened = format!("{} applied, {missing} is asked for", gap.applied);
    let what = "an event that leaves a gap is applied";
    walk.differs("R3.5", what, &happened, "0 applied, 1001 is asked for");
    let late = replica.receive(&[event(Some(1_001)), event(Some(1_002))])?;
    let happened = format!("{} applied, orders: {}", late.applied, total(&replica));
    let what = "sent from there on, all is applied once";
    walk.promise("R3.4", what, &happened, "2 applied, orders: 1003");
    let full = SessionEvent {
        amount: i64::MAX,
        ..event(Some(1_003))
    };
    let (first, second) = (
        replica.receive(from_ref(&full))?,
        replica.receive(from_ref(&full))?,
    );
    let happened = format!(
        "{} failed, then tried again: {} failed",
        first.failed, second.failed
    );
    let what = "a key is recorded before its operation is applied";
    walk.differs(
        "R3.6",
        what,
        &happened,
        "1 failed, then tried again: 1 failed",
    );
    Ok(())
}
