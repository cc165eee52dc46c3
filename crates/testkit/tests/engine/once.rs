//! The contract: done once, answered the same every time.

use semel_core::engine::{EngineConfig, Problem, Response};
use semel_core::event::Step;
use semel_core::policy::Policy;
use semel_core::{Answer, AnswerBody, Clock as _, StoreAdmin as _};
use std::sync::Arc;
use std::time::Duration;

use super::*;

#[tokio::test]
async fn the_second_call_replays_and_does_not_run() {
    let (rig, effects) = (Rig::new(), Effects::default());
    let first = rig
        .run("k", &Policy::default(), effects.answer("one"))
        .await;
    let second = rig
        .run("k", &Policy::default(), effects.answer("two"))
        .await;
    assert_eq!(
        (ran(&first), replayed(&second), effects.count()),
        ("one", "one", 1)
    );
}

#[tokio::test]
async fn another_process_replays_too() {
    let (rig, effects) = (Rig::new(), Effects::default());
    rig.run("k", &Policy::default(), effects.answer("one"))
        .await;
    let elsewhere = rig.another();
    let second = elsewhere
        .run("k", &Policy::default(), effects.answer("two"))
        .await;
    assert_eq!((replayed(&second), effects.count()), ("one", 1));
}

#[tokio::test]
async fn another_payload_is_refused_while_running_and_afterwards() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    let policy = Policy::default();
    let first = rig.start("k", &policy, effects.answer_after("one", &gate));
    settle_down().await;
    for _ in 0..3 {
        let other = rig.request("k", "another payload", &policy);
        let response = rig.engine.execute(other, effects.answer("two")).await;
        assert!(matches!(response, Response::Problem(Problem::Mismatch)));
        gate.open();
        settle_down().await;
    }
    assert_eq!((ran(&first.await.unwrap()), effects.count()), ("one", 1));
    assert_eq!(
        rig.log
            .count(|step| matches!(step, Step::Mismatched { .. })),
        3
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_hundred_concurrent_callers_share_one_run() {
    let effects = Effects::default();
    let rig = Rig::new();
    let policy = Policy::default().with_max_waiters_per_key(1000);
    let callers: Vec<_> = (0..500)
        .map(|_| rig.start("k", &policy, effects.answer("one")))
        .collect();
    let mut fresh = 0;
    for caller in callers {
        match caller.await.unwrap() {
            Response::Ran(ran) => {
                fresh += 1;
                assert_eq!(ran.value, "one");
            }
            response => assert_eq!(replayed(&response), "one"),
        }
    }
    assert_eq!((fresh, effects.count(), rig.engine.waiting()), (1, 1, 0));
}

#[tokio::test]
async fn replays_are_numbered_and_cached() {
    let (rig, effects) = (Rig::new(), Effects::default());
    for _ in 0..4 {
        rig.run("k", &Policy::default(), effects.answer("one"))
            .await;
    }
    let numbers: Vec<_> = rig.log.0.lock().iter().filter_map(replay_number).collect();
    assert_eq!(
        numbers,
        [(Some(1), false), (Some(2), true), (Some(3), true)]
    );
}

#[tokio::test]
async fn numbers_of_replays_go_on_when_the_local_copy_is_too_old() {
    let (rig, effects) = (Rig::new(), Effects::default());
    let policy = Policy::default();
    for age in [0, 0, 0, 31, 0] {
        rig.pass(Duration::from_secs(age)).await;
        rig.run("k", &policy, effects.answer("one")).await;
    }
    let numbers: Vec<_> = rig.log.0.lock().iter().filter_map(replay_number).collect();
    let expected = [
        (Some(1), false),
        (Some(2), true),
        (Some(3), false),
        (Some(4), true),
    ];
    assert_eq!(numbers, expected);
}

#[tokio::test]
async fn events_of_conflicts_and_replays_name_the_first_request() {
    let (rig, effects) = (Rig::new(), Effects::default());
    let policy = Policy::default();
    let first = rig.request("k", "payload", &policy);
    let began = rig.clock.wall();
    rig.engine.execute(first, effects.answer("one")).await;
    rig.pass(Duration::from_secs(60)).await;
    // From the store's record, then from the local copy.
    rig.run("k", &policy, effects.answer("two")).await;
    let elsewhere = rig.another();
    for engine in [&elsewhere.engine, &rig.engine] {
        let other = rig.request("k", "another payload", &policy);
        let response = engine.execute(other, effects.answer("two")).await;
        assert!(matches!(response, Response::Problem(Problem::Mismatch)));
    }
    let (mut replays, mut conflicts) = (0, 0);
    let steps = rig.log.0.lock().clone();
    for step in steps.iter().chain(elsewhere.log.0.lock().iter()) {
        match step {
            Step::Replayed { requested_at, .. } => {
                assert_eq!(*requested_at, began);
                replays += 1;
            }
            Step::Mismatched { asked, original } => {
                assert_ne!(*asked, original.fingerprint);
                assert_eq!(original.requested_at, Some(began));
                conflicts += 1;
            }
            _ => {}
        }
    }
    assert_eq!((replays, conflicts), (1, 2));
}

fn replay_number(step: &Step) -> Option<(Option<u32>, bool)> {
    match step {
        Step::Replayed { number, local, .. } => Some((*number, *local)),
        _ => None,
    }
}

#[tokio::test]
async fn p38_a_local_copy_never_outlives_the_record_or_its_age() {
    let clock = FakeClock::new();
    let store = MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone()));
    let rig = Rig::on(clock, Arc::new(store.clone()), EngineConfig::default());
    let effects = Effects::default();
    let brief = Policy::default().with_retention(Duration::from_secs(40));
    for _ in 0..2 {
        rig.run("brief", &brief, effects.answer("one")).await;
        rig.run("long", &Policy::default(), effects.answer("one"))
            .await;
    }
    assert_eq!(effects.count(), 2);
    // Deleted behind the engine's back: noticed once the copy is too old.
    let long = *rig
        .request("long", "payload", &Policy::default())
        .identity();
    assert!(store.delete(&long).await.unwrap());
    rig.pass(Duration::from_secs(29)).await;
    assert_eq!(
        replayed(&rig.run("long", &brief, effects.answer("two")).await),
        "one"
    );
    rig.pass(Duration::from_secs(1)).await;
    assert_eq!(
        ran(&rig.run("long", &brief, effects.answer("two")).await),
        "two"
    );
    rig.pass(Duration::from_secs(10)).await;
    assert_eq!(
        ran(&rig.run("brief", &brief, effects.answer("two")).await),
        "two"
    );
}

#[tokio::test]
async fn p38_a_copy_made_late_ends_with_the_record() {
    let (rig, effects) = (Rig::new(), Effects::default());
    let brief = Policy::default().with_retention(Duration::from_secs(40));
    rig.run("k", &brief, effects.answer("one")).await;
    rig.pass(Duration::from_secs(20)).await;
    assert_eq!(
        replayed(&rig.run("k", &brief, effects.answer("two")).await),
        "one"
    );
    rig.pass(Duration::from_secs(20)).await;
    assert_eq!(
        ran(&rig.run("k", &brief, effects.answer("two")).await),
        "two"
    );
}

#[tokio::test]
async fn p38_forgetting_a_local_copy_is_at_once() {
    let clock = FakeClock::new();
    let store = MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone()));
    let rig = Rig::on(clock, Arc::new(store.clone()), EngineConfig::default());
    let effects = Effects::default();
    for _ in 0..2 {
        rig.run("k", &Policy::default(), effects.answer("one"))
            .await;
    }
    let identity = *rig.request("k", "payload", &Policy::default()).identity();
    store.delete(&identity).await.unwrap();
    rig.engine.forget(&identity);
    assert_eq!(
        ran(&rig
            .run("k", &Policy::default(), effects.answer("two"))
            .await),
        "two"
    );
}

#[tokio::test]
async fn p27_oversized_answer_is_remembered_and_does_not_run_again() {
    let (rig, effects) = (Rig::new(), Effects::default());
    let policy = Policy::default().with_max_answer_bytes(4);
    let first = rig.run("k", &policy, effects.answer("too large")).await;
    assert_eq!(ran(&first), "too large");
    let second = rig.run("k", &policy, effects.answer("again")).await;
    let Response::Replayed(replay) = second else {
        panic!("expected a replay: {second:?}")
    };
    assert_eq!(
        *replay.replay.answer,
        Answer {
            body: AnswerBody::Omitted { bytes: 9 },
            ..Answer::from_body("")
        }
    );
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn p37_a_caller_that_leaves_does_not_cut_the_effect() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    let caller = rig.start("k", &Policy::default(), effects.answer_after("one", &gate));
    settle_down().await;
    caller.abort();
    settle_down().await;
    gate.open();
    settle_down().await;
    let second = rig
        .run("k", &Policy::default(), effects.answer("two"))
        .await;
    assert_eq!((replayed(&second), effects.count()), ("one", 1));
}

#[tokio::test]
async fn after_its_retention_a_key_is_as_new() {
    let (rig, effects) = (Rig::new(), Effects::default());
    let policy = Policy::default().with_retention(Duration::from_secs(60));
    rig.run("k", &policy, effects.answer("one")).await;
    rig.clock.advance(Duration::from_secs(60));
    let second = rig.run("k", &policy, effects.answer("two")).await;
    assert_eq!((ran(&second), effects.count()), ("two", 2));
}

#[tokio::test]
async fn a_policy_out_of_bounds_starts_nothing() {
    let (rig, effects) = (Rig::new(), Effects::default());
    let policy = Policy::default().with_retention(Duration::from_secs(1));
    let response = rig.run("k", &policy, effects.answer("one")).await;
    assert!(matches!(response, Response::Problem(Problem::Policy(_))));
    assert_eq!(effects.count(), 0);
}
