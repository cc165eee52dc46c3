//! Waiting for another's run (P34).

use std::time::Duration;

use semel_core::engine::{EngineConfig, Problem, Response};
use semel_core::event::{BusyReason, Step};
use semel_core::policy::{OnBusy, Policy};

use super::*;

fn busy_reason(response: &Response<String>) -> BusyReason {
    match response {
        Response::Problem(Problem::Busy { why, .. }) => *why,
        other => panic!("expected busy, got {other:?}"),
    }
}

#[tokio::test]
async fn waiters_are_woken_by_the_answer_without_polling() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    let policy = Policy::default();
    let owner = rig.start("k", &policy, effects.answer_after("one", &gate));
    settle_down().await;
    let waiters: Vec<_> = (0..10)
        .map(|_| rig.start("k", &policy, effects.answer("two")))
        .collect();
    settle_down().await;
    assert_eq!(rig.engine.waiting(), 10);
    gate.open();
    settle_down().await;
    // No time has passed at all: only a wake-up can have brought the answer.
    assert_eq!(ran(&owner.await.unwrap()), "one");
    for waiter in waiters {
        assert_eq!(replayed(&waiter.await.unwrap()), "one");
    }
    assert_eq!((effects.count(), rig.engine.waiting()), (1, 0));
    assert_eq!(
        rig.log.count(|step| matches!(step, Step::WaitEnded { .. })),
        10
    );
}

#[tokio::test]
async fn the_eleventh_waiter_of_a_key_is_refused_at_once() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    let policy = Policy::default();
    let _owner = rig.start("k", &policy, effects.answer_after("one", &gate));
    settle_down().await;
    let _waiters: Vec<_> = (0..10)
        .map(|_| rig.start("k", &policy, effects.answer("two")))
        .collect();
    settle_down().await;
    let eleventh = rig.run("k", &policy, effects.answer("two")).await;
    assert_eq!(busy_reason(&eleventh), BusyReason::KeyWaiters);
    gate.open();
    settle_down().await;
    assert_eq!(rig.engine.waiting(), 0);
}

#[tokio::test]
async fn waiters_of_a_process_are_bounded_over_all_keys() {
    let base = Rig::new();
    let config = EngineConfig::default().with_max_waiters(2);
    let rig = Rig::on(base.clock.clone(), Arc::clone(&base.store), config);
    let (effects, gate) = (Effects::default(), Gate::default());
    let policy = Policy::default();
    for key in ["a", "b", "c"] {
        drop(rig.start(key, &policy, effects.answer_after("one", &gate)));
    }
    settle_down().await;
    let _first = rig.start("a", &policy, effects.answer("two"));
    let _second = rig.start("b", &policy, effects.answer("two"));
    settle_down().await;
    let third = rig.run("c", &policy, effects.answer("two")).await;
    assert_eq!(busy_reason(&third), BusyReason::ProcessWaiters);
}

#[tokio::test]
async fn a_waiter_gives_up_at_its_limit() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    let policy = Policy::default();
    let _owner = rig.start("k", &policy, effects.answer_after("one", &gate));
    settle_down().await;
    let waiter = rig.start("k", &policy, effects.answer("two"));
    rig.pass(Duration::from_secs(29)).await;
    assert!(!waiter.is_finished());
    rig.pass(Duration::from_secs(2)).await;
    assert!(waiter.is_finished(), "no waiter waits past its limit");
    assert_eq!(
        busy_reason(&waiter.await.unwrap()),
        BusyReason::WaitedTooLong
    );
    assert_eq!((rig.engine.waiting(), effects.count()), (0, 1));
}

#[tokio::test]
async fn by_policy_a_caller_is_told_at_once() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    let policy = Policy::default().with_on_busy(OnBusy::Refuse);
    let _owner = rig.start("k", &policy, effects.answer_after("one", &gate));
    settle_down().await;
    let response = rig.run("k", &policy, effects.answer("two")).await;
    assert_eq!(busy_reason(&response), BusyReason::Policy);
    let Response::Problem(problem) = response else {
        unreachable!()
    };
    assert!(problem.is_retryable());
    assert_eq!(problem.retry_after(), Some(Duration::from_secs(30)));
}

#[tokio::test]
async fn a_waiter_runs_itself_when_the_owner_lets_go() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    let policy = Policy::default();
    let opened = gate.clone();
    let owner = rig.start("k", &policy, |_| async move {
        opened.opened().await;
        said(Verdict::Retry)
    });
    settle_down().await;
    let waiter = rig.start("k", &policy, effects.answer("two"));
    settle_down().await;
    gate.open();
    settle_down().await;
    assert_eq!(ran(&owner.await.unwrap()), "said");
    assert_eq!((ran(&waiter.await.unwrap()), effects.count()), ("two", 1));
}

#[tokio::test]
async fn a_waiter_that_was_woken_for_nothing_waits_again() {
    let (rig, effects) = (Rig::new(), Effects::default());
    let (first, second) = (Gate::default(), Gate::default());
    let policy = Policy::default();
    let opened = first.clone();
    let owner = rig.start("k", &policy, |_| async move {
        opened.opened().await;
        said(Verdict::Retry)
    });
    settle_down().await;
    let waiters: Vec<_> = (0..2)
        .map(|_| rig.start("k", &policy, effects.answer_after("two", &second)))
        .collect();
    settle_down().await;
    // Both are woken; one wins and runs, the other has to wait for that one.
    first.open();
    settle_down().await;
    assert_eq!((effects.count(), rig.engine.waiting()), (1, 1));
    second.open();
    settle_down().await;
    assert_eq!(ran(&owner.await.unwrap()), "said");
    let mut fresh = 0;
    for waiter in waiters {
        match waiter.await.unwrap() {
            Response::Ran(_) => fresh += 1,
            response => assert_eq!(replayed(&response), "two"),
        }
    }
    assert_eq!((fresh, effects.count()), (1, 1));
}

#[tokio::test]
async fn i10_a_waiter_takes_over_within_the_lease_after_a_crash() {
    let (rig, effects) = (Rig::new(), Effects::default());
    let policy = Policy::default();
    crash_while_running(&rig, "k", &policy).await;
    let waiter = rig.start(
        "k",
        &policy.with_on_busy(OnBusy::Wait(Duration::from_secs(60))),
        effects.answer("two"),
    );
    rig.pass(Duration::from_secs(29)).await;
    assert!(!waiter.is_finished());
    rig.pass(Duration::from_secs(3)).await;
    let response = waiter.await.unwrap();
    assert_eq!((ran(&response), effects.count()), ("two", 1));
    let Response::Ran(ran) = response else {
        unreachable!()
    };
    assert_eq!(ran.attempt, 2);
}

/// Claims, as a process would that dies right afterwards.
async fn crash_while_running(rig: &Rig, key: &str, policy: &Policy) {
    super::leases::claim_and_vanish(rig, key, policy).await;
}
