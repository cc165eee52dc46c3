//! The replica is the primary, however the segments come.

use std::collections::BTreeMap;

use replica::{Received, SegmentReceiver, SessionEvent};
use semel_stream::{GateLimits, SeqNo, SessionId};

fn event(session: &str, seqno: u64, amount: i64) -> SessionEvent {
    SessionEvent {
        session: SessionId::named(session),
        seqno: Some(SeqNo(seqno)),
        counter: session.to_owned(),
        amount,
    }
}

fn counters(replica: &SegmentReceiver) -> Vec<(&str, i64)> {
    let counters = &replica.sessions().counters;
    counters
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect()
}

#[test]
fn a_segment_sent_twice_is_applied_once() {
    let mut replica = SegmentReceiver::new(GateLimits::default());
    let segment = [
        event("a", 1, 5),
        event("b", 1, 7),
        event("a", 2, 5),
        event("a", 1, 5),
    ];
    let first = replica.receive(&segment).unwrap();
    assert_eq!((first.applied, first.duplicates), (3, 1));
    let second = replica.receive(&segment).unwrap();
    assert_eq!((second.applied, second.duplicates), (0, 4));
    assert_eq!(counters(&replica), [("a", 10), ("b", 7)]);
}

#[test]
fn an_event_long_out_of_the_window_is_stopped_by_its_mark() {
    let limits = GateLimits::default().with_window(10).with_shards(1);
    let mut replica = SegmentReceiver::new(limits);
    let log: Vec<SessionEvent> = (1..=1_000).map(|seqno| event("a", seqno, 1)).collect();
    replica.receive(&log).unwrap();
    assert_eq!(replica.receive(&log).unwrap().duplicates, 1_000);
    assert_eq!(counters(&replica), [("a", 1_000)]);
}

#[test]
fn an_event_without_a_number_is_stopped_by_its_key() {
    let mut replica = SegmentReceiver::new(GateLimits::default());
    let old = SessionEvent {
        seqno: None,
        ..event("a", 0, 5)
    };
    replica.receive(&[old.clone(), old.clone()]).unwrap();
    assert_eq!(replica.receive(&[old]).unwrap().duplicates, 1);
    assert_eq!(counters(&replica), [("a", 5)]);
}

#[test]
fn a_lost_event_is_asked_for_and_nothing_overtakes_it() {
    let mut replica = SegmentReceiver::new(GateLimits::default());
    replica.receive(&[event("a", 1, 1)]).unwrap();
    let received = replica
        .receive(&[event("a", 3, 1), event("b", 1, 1)])
        .unwrap();
    let missing = BTreeMap::from([(SessionId::named("a"), SeqNo(2))]);
    assert_eq!(
        received,
        Received {
            applied: 1,
            missing,
            ..Received::default()
        }
    );
    let again = replica
        .receive(&[event("a", 2, 1), event("a", 3, 1)])
        .unwrap();
    assert_eq!(again.applied, 2);
    assert_eq!(counters(&replica), [("a", 3), ("b", 1)]);
}

#[test]
fn an_event_that_fails_is_not_taken_for_done() {
    let mut replica = SegmentReceiver::new(GateLimits::default());
    replica.receive(&[event("a", 1, i64::MAX)]).unwrap();
    let received = replica
        .receive(&[event("a", 2, 1), event("a", 3, -1)])
        .unwrap();
    assert_eq!((received.applied, received.failed), (0, 1));
    let missing = received.missing.values().copied().collect::<Vec<_>>();
    assert_eq!(missing, [SeqNo(2)], "what comes after it waits");
    assert_eq!(replica.receive(&[event("a", 2, 1)]).unwrap().failed, 1);
}

#[test]
fn segments_in_any_order_make_the_same_replica() {
    let log: Vec<SessionEvent> = (1..=60)
        .map(|seqno| event("a", seqno, seqno.cast_signed()))
        .collect();
    let segments: Vec<&[SessionEvent]> = log.chunks(7).collect();
    for shift in 0..segments.len() {
        let mut replica = SegmentReceiver::new(GateLimits::default());
        let mut order = segments.clone();
        order.rotate_left(shift);
        // As often as it takes; each round brings the one further that is next.
        for _ in 0..segments.len() {
            for segment in &order {
                replica.receive(segment).unwrap();
            }
        }
        assert_eq!(
            counters(&replica),
            [("a", 60 * 61 / 2)],
            "begun at segment {shift}"
        );
    }
}
