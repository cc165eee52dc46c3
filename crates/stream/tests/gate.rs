//! The gate: what is recorded when, and who may apply what.

use std::sync::Mutex;

use semel_stream::{
    Epoch, FenceError, Gate, GateLimits, GateVerdict, Mark, Order, SeqNo, SessionId, StreamKey,
    StreamOperation, Tenant,
};

fn at(session: SessionId, seqno: u64) -> StreamOperation {
    StreamOperation::sequenced(session, Mark::new(0, seqno))
}

/// Offers in a batch of its own, and applies what it may. → what that passed over, or why it wasn't
/// applied.
#[expect(
    clippy::result_large_err,
    reason = "a ticket is as large as an operation"
)]
fn apply(gate: &Gate, operation: &StreamOperation) -> Result<Option<(SeqNo, u64)>, GateVerdict> {
    let mut batch = gate.batch();
    let verdict = batch.offer(operation);
    let outcome = match verdict {
        GateVerdict::Apply(ticket) => {
            let skips = ticket.skips;
            batch.applied(ticket);
            Ok(skips)
        }
        other => Err(other),
    };
    batch.commit().expect("it is in memory");
    outcome
}

fn applies(gate: &Gate, operation: &StreamOperation) -> bool {
    apply(gate, operation).is_ok()
}

#[test]
fn what_failed_is_not_recorded_and_runs_again() {
    let gate = Gate::new(GateLimits::default());
    let session = SessionId::named("a");
    let operation = at(session, 1).with_key(StreamKey(1));
    let mut batch = gate.batch();
    let GateVerdict::Apply(ticket) = batch.offer(&operation) else {
        panic!("it is new")
    };
    drop(ticket);
    batch.commit().expect("it is in memory");
    assert_eq!(gate.usage(Tenant::default()), (0, 0));
    assert!(applies(&gate, &operation));
}

#[test]
fn a_batch_that_is_dropped_records_nothing() {
    let gate = Gate::new(GateLimits::default());
    let session = SessionId::named("a");
    let mut batch = gate.batch();
    let GateVerdict::Apply(ticket) = batch.offer(&at(session, 1)) else {
        panic!("it is new")
    };
    batch.applied(ticket);
    drop(batch);
    assert!(applies(&gate, &at(session, 1)));
}

#[test]
fn duplicate_of_an_operation_in_progress_is_busy() {
    let gate = Gate::new(GateLimits::default());
    let session = SessionId::named("a");
    let (numbered, keyed) = (at(session, 1), StreamOperation::keyed(StreamKey(1)));
    let mut first = gate.batch();
    let tickets = [first.offer(&numbered), first.offer(&keyed)];
    assert!(
        tickets
            .iter()
            .all(|verdict| matches!(verdict, GateVerdict::Apply(_)))
    );
    let mut second = gate.batch();
    assert!(matches!(second.offer(&numbered), GateVerdict::Busy));
    assert!(matches!(second.offer(&keyed), GateVerdict::Busy));
    // Were it called a duplicate and acknowledged, a failure of the first would lose it.
    drop((tickets, first));
    assert!(matches!(second.offer(&numbered), GateVerdict::Apply(_)));
    assert!(matches!(second.offer(&keyed), GateVerdict::Apply(_)));
}

#[test]
fn a_batch_sees_what_it_applied_itself() {
    let gate = Gate::new(GateLimits::default());
    let session = SessionId::named("a");
    let mut batch = gate.batch();
    for seqno in 1..=3 {
        let GateVerdict::Apply(ticket) = batch.offer(&at(session, seqno)) else {
            panic!("it is next")
        };
        batch.applied(ticket);
        assert!(matches!(
            batch.offer(&at(session, seqno)),
            GateVerdict::Duplicate
        ));
    }
    // The fourth fails: those behind it must wait.
    assert!(matches!(
        batch.offer(&at(session, 4)),
        GateVerdict::Apply(_)
    ));
    assert!(matches!(
        batch.offer(&at(session, 5)),
        GateVerdict::Gap { expected: SeqNo(4) }
    ));
    batch.commit().expect("it is in memory");
    assert_eq!(
        gate.progress(Tenant::default(), session).mark,
        Mark::new(0, 3)
    );
}

#[test]
fn i15_a_gap_is_reported_and_never_skipped_silently() {
    let session = SessionId::named("a");
    let gate = Gate::new(GateLimits::default());
    assert!(matches!(
        apply(&gate, &at(session, 2)),
        Err(GateVerdict::Gap { expected: SeqNo(1) })
    ));
    assert!(applies(&gate, &at(session, 1)) && applies(&gate, &at(session, 2)));

    let gate = Gate::new(GateLimits::default().with_order(Order::Monotonic));
    let skips = apply(&gate, &at(session, 4)).expect("numbers only grow");
    assert_eq!(skips, Some((SeqNo(1), 3)));
    assert!(matches!(
        apply(&gate, &at(session, 2)),
        Err(GateVerdict::Duplicate)
    ));
}

#[test]
fn i15_a_lower_epoch_is_refused() {
    let gate = Gate::new(GateLimits::default());
    let session = SessionId::named("a");
    let of = |epoch, seqno| {
        StreamOperation::sequenced(session, Mark::new(epoch, seqno)).with_key(StreamKey(1))
    };
    assert!(applies(&gate, &of(0, 1)));
    // The restarted producer says the same thing under the same number, and means another
    // operation.
    assert!(applies(&gate, &of(1, 1)));
    assert!(matches!(
        apply(&gate, &of(0, 2)),
        Err(GateVerdict::Stale { current: Epoch(1) })
    ));
    let tenant = Tenant::default();
    assert_eq!(
        gate.fence(tenant, session, Epoch(2)).ok(),
        Some(Mark::new(1, 1))
    );
    assert!(matches!(
        apply(&gate, &of(1, 2)),
        Err(GateVerdict::Stale { current: Epoch(2) })
    ));
    assert!(matches!(
        gate.fence(tenant, session, Epoch(1)),
        Err(FenceError::Stale { current: Epoch(2) })
    ));
}

#[test]
fn no_epoch_is_ended_while_an_operation_of_it_is_applied() {
    let gate = Gate::new(GateLimits::default());
    let session = SessionId::named("a");
    let mut batch = gate.batch();
    let GateVerdict::Apply(ticket) = batch.offer(&at(session, 1)) else {
        panic!("it is new")
    };
    assert!(matches!(
        gate.fence(Tenant::default(), session, Epoch(1)),
        Err(FenceError::Busy)
    ));
    batch.applied(ticket);
    batch.commit().expect("it is in memory");
    assert_eq!(
        gate.fence(Tenant::default(), session, Epoch(1)).ok(),
        Some(Mark::new(0, 1))
    );
}

#[test]
fn a_duplicate_by_its_key_uses_up_its_number() {
    let gate = Gate::new(GateLimits::default());
    let session = SessionId::named("a");
    let key = StreamKey(7);
    assert!(applies(&gate, &at(session, 1).with_key(key)));
    // The producer numbered the same operation twice.
    assert!(matches!(
        apply(&gate, &at(session, 2).with_key(key)),
        Err(GateVerdict::Duplicate)
    ));
    assert!(applies(&gate, &at(session, 3)), "its session goes on");
}

#[test]
fn i15_a_duplicate_by_its_key_passes_over_nothing() {
    let gate = Gate::new(GateLimits::default().with_order(Order::Monotonic));
    let session = SessionId::named("a");
    let known = StreamKey(7);
    assert!(applies(&gate, &at(session, 1).with_key(known)));
    // 2 and 3 are still on their way.
    let again = at(session, 4).with_key(known);
    assert!(matches!(apply(&gate, &again), Err(GateVerdict::Duplicate)));
    let mut batch = gate.batch();
    assert!(matches!(batch.offer(&again), GateVerdict::Duplicate));
    for seqno in [2, 3] {
        let GateVerdict::Apply(ticket) = batch.offer(&at(session, seqno)) else {
            panic!("{seqno} was passed over, and nobody was told")
        };
        assert_eq!(ticket.skips, None);
        batch.applied(ticket);
    }
    // Now it is next, and its number is used up.
    assert!(matches!(batch.offer(&again), GateVerdict::Duplicate));
    batch.commit().expect("it is in memory");
    assert_eq!(apply(&gate, &at(session, 5)).expect("it is next"), None);
}

#[test]
fn one_tenant_cannot_push_out_anothers_keys_or_sessions() {
    let limits = GateLimits::default()
        .with_tenants(2)
        .with_window(100)
        .with_sessions(64);
    let gate = Gate::new(limits);
    let (quiet, loud) = (Tenant::named("quiet"), Tenant::named("loud"));
    let keyed = |n, tenant| StreamOperation::keyed(StreamKey(n)).with_tenant(tenant);
    assert!(applies(&gate, &keyed(0, quiet)));
    for n in 0..10_000 {
        assert!(applies(&gate, &keyed(n, loud)));
    }
    let mut refused = 0;
    for n in 0..1_000 {
        let operation = at(SessionId::named(&format!("{n}")), 1).with_tenant(loud);
        let mut batch = gate.batch();
        match batch.offer(&operation) {
            GateVerdict::Apply(ticket) => batch.applied(ticket),
            GateVerdict::Full => refused += 1,
            other => panic!("{other:?}"),
        }
        batch.commit().expect("it is in memory");
    }
    assert!(refused >= 1_000 - 64);
    assert_eq!(gate.usage(loud).0, 100);
    assert!(matches!(
        apply(&gate, &keyed(0, quiet)),
        Err(GateVerdict::Duplicate)
    ));
    assert!(applies(
        &gate,
        &at(SessionId::named("0"), 1).with_tenant(quiet)
    ));
    let mut batch = gate.batch();
    assert!(matches!(
        batch.offer(&keyed(0, Tenant::named("third"))),
        GateVerdict::Full
    ));
}

#[test]
fn what_was_applied_is_known_even_where_others_took_the_room() {
    let gate = Gate::new(GateLimits::default().with_sessions(16));
    let operations: Vec<StreamOperation> = (0..100)
        .map(|n| at(SessionId::named(&format!("{n}")), 1))
        .collect();
    // All are offered while there is room.
    let mut batches = Vec::new();
    for operation in &operations {
        let mut batch = gate.batch();
        let GateVerdict::Apply(ticket) = batch.offer(operation) else {
            panic!("there is room")
        };
        batch.applied(ticket);
        batches.push(batch);
    }
    for batch in batches {
        batch.commit().expect("it is in memory");
    }
    for operation in &operations {
        assert!(matches!(
            apply(&gate, operation),
            Err(GateVerdict::Duplicate)
        ));
    }
}

#[test]
fn racing_threads_apply_each_operation_once_in_order() {
    let gate = Gate::new(GateLimits::default());
    let sessions: Vec<SessionId> = (0..8).map(|n| SessionId::named(&format!("{n}"))).collect();
    let applied: Vec<Mutex<Vec<u64>>> = sessions.iter().map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for seqno in 1..=2_000 {
                    for (session, applied) in sessions.iter().zip(&applied) {
                        loop {
                            let mut batch = gate.batch();
                            match batch.offer(&at(*session, seqno)) {
                                GateVerdict::Apply(ticket) => {
                                    applied.lock().unwrap().push(seqno);
                                    batch.applied(ticket);
                                    batch.commit().expect("it is in memory");
                                    break;
                                }
                                GateVerdict::Duplicate => break,
                                GateVerdict::Busy => std::thread::yield_now(),
                                other => panic!("{other:?}"),
                            }
                        }
                    }
                }
            });
        }
    });
    for applied in applied {
        assert!(applied.into_inner().unwrap().into_iter().eq(1..=2_000));
    }
}

#[test]
fn a_snapshot_makes_the_same_gate() {
    let gate = Gate::new(GateLimits::default());
    let session = SessionId::named("a");
    for seqno in 1..=5 {
        assert!(applies(
            &gate,
            &at(session, seqno).with_key(StreamKey(seqno.into()))
        ));
    }
    gate.fence(Tenant::default(), session, Epoch(3)).unwrap();
    let again = Gate::restore(GateLimits::default(), &gate.snapshot());
    assert_eq!(
        again.progress(Tenant::default(), session),
        gate.progress(Tenant::default(), session)
    );
    assert!(matches!(
        apply(&again, &at(session, 6)),
        Err(GateVerdict::Stale { current: Epoch(3) })
    ));
    assert!(matches!(
        apply(&again, &StreamOperation::keyed(StreamKey(5))),
        Err(GateVerdict::Duplicate)
    ));
}
