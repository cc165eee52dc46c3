//! Leases: deadline, renewal, cancellation, takeover, checkpoints (P30–P33).

use std::time::Duration;

use bytes::Bytes;
use semel_core::engine::{Problem, Response};
use semel_core::event::Step;
use semel_core::policy::Policy;
use semel_core::{Claim, Claimed, Grant, Renewed, State, Token};

use super::*;

/// Claims straight at the store, as a process would that dies right afterwards.
pub(super) async fn claim_and_vanish(rig: &Rig, key: &str, policy: &Policy) -> Grant {
    let request = rig.request(key, "payload", policy);
    let claim = Claim {
        retry: false,
        identity: *request.identity(),
        fingerprint: Fingerprint::builder(rig.engine.secret())
            .part(b"payload")
            .finish(),
        token: Token(99),
        terms: policy.terms().expect("well-formed"),
        secret_id: 0,
        namespace: Namespace::new("test", "acme", "charge").expect("well-formed"),
        hint: Key::parse(key).expect("well-formed").hint(),
    };
    match rig.store.claim(&claim).await.expect("well-formed") {
        Claimed::Won(grant) => grant,
        other => panic!("the key should be free: {other:?}"),
    }
}

#[tokio::test]
async fn p31_a_long_effect_is_renewed_and_never_taken_over() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    let policy = Policy::default();
    let owner = rig.start("k", &policy, effects.answer_after("one", &gate));
    // Ten leases long.
    rig.pass(Duration::from_secs(300)).await;
    let impatient = policy
        .clone()
        .with_on_busy(semel_core::policy::OnBusy::Refuse);
    let other = rig.run("k", &impatient, effects.answer("two")).await;
    assert!(matches!(other, Response::Problem(Problem::Busy { .. })));
    gate.open();
    settle_down().await;
    assert_eq!((ran(&owner.await.unwrap()), effects.count()), ("one", 1));
    let renewals = rig.log.count(|step| matches!(step, Step::Renewed { .. }));
    assert!(
        (29..=31).contains(&renewals),
        "every third of 30 s for 300 s, not {renewals}"
    );
}

#[tokio::test]
async fn age_of_the_oldest_run_is_known_while_it_runs() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    let policy = Policy::default();
    assert_eq!(rig.engine.oldest_run(), None);
    let first = rig.start("first", &policy, effects.answer_after("one", &gate));
    settle_down().await;
    rig.pass(Duration::from_secs(40)).await;
    let other = Gate::default();
    let second = rig.start("second", &policy, effects.answer_after("two", &other));
    settle_down().await;
    rig.pass(Duration::from_secs(20)).await;
    assert_eq!(rig.engine.oldest_run(), Some(Duration::from_secs(60)));
    gate.open();
    first.await.unwrap();
    assert_eq!(rig.engine.oldest_run(), Some(Duration::from_secs(20)));
    other.open();
    second.await.unwrap();
    assert_eq!(rig.engine.oldest_run(), None);
}

#[tokio::test]
async fn p31_short_and_long_leases_are_renewed_side_by_side() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    let long = Policy::default().with_lease(Duration::from_secs(3000));
    let short = Policy::default().with_lease(Duration::from_secs(6));
    let first = rig.start("long", &long, effects.answer_after("one", &gate));
    settle_down().await;
    // Comes in while the watcher sleeps for the long one.
    let second = rig.start("short", &short, effects.answer_after("two", &gate));
    rig.pass(Duration::from_secs(60)).await;
    let other = rig.another();
    let refuse = semel_core::policy::OnBusy::Refuse;
    let response = other
        .run("short", &short.with_on_busy(refuse), effects.answer("x"))
        .await;
    assert!(
        matches!(response, Response::Problem(Problem::Busy { .. })),
        "{response:?}"
    );
    for _ in 0..2 {
        gate.open();
        settle_down().await;
    }
    assert_eq!(
        (ran(&first.await.unwrap()), ran(&second.await.unwrap())),
        ("one", "two")
    );
}

/// Runs something under a key of its own, on this runtime.
async fn runs_quickly(rig: &Rig, key: &str, effects: &Effects) {
    let policy = Policy::default();
    let quick = rig.run(key, &policy, effects.answer("quick")).await;
    assert_eq!(ran(&quick), "quick");
}

async fn is_still_busy(rig: &Rig, effects: &Effects) {
    let impatient = Policy::default().with_on_busy(semel_core::policy::OnBusy::Refuse);
    let other = rig.another();
    let other = other.run("k", &impatient, effects.answer("two")).await;
    let busy = matches!(other, Response::Problem(Problem::Busy { .. }));
    assert!(busy, "{other:?}");
}

fn runtime() -> tokio::runtime::Runtime {
    let builder = tokio::runtime::Builder::new_multi_thread();
    { builder }.worker_threads(1).build().expect("a runtime")
}

#[tokio::test]
async fn p31_leases_are_renewed_after_the_first_runtime_has_ended() {
    let (rig, effects, gate) = (Arc::new(Rig::new()), Effects::default(), Gate::default());
    // As in a program that makes a runtime for every job: the watcher goes with the first.
    let (first, quick) = (Arc::clone(&rig), effects.clone());
    let ended = std::thread::spawn(move || {
        runtime().block_on(async move { runs_quickly(&first, "quick", &quick).await });
    });
    ended.join().unwrap();
    let owner = rig.start("k", &Policy::default(), effects.answer_after("one", &gate));
    rig.pass(Duration::from_secs(300)).await;
    is_still_busy(&rig, &effects).await;
    gate.open();
    assert_eq!(ran(&owner.await.unwrap()), "one");
}

#[tokio::test]
async fn p31_next_runtime_continues_the_renewals() {
    let (rig, effects, gate) = (Arc::new(Rig::new()), Effects::default(), Gate::default());
    let dying = runtime();
    let (first, quick) = (Arc::clone(&rig), effects.clone());
    let watched = dying.spawn(async move { runs_quickly(&first, "quick", &quick).await });
    watched.await.unwrap();
    let owner = rig.start("k", &Policy::default(), effects.answer_after("one", &gate));
    settle_down().await;
    rig.clock.advance(Duration::from_secs(15));
    while rig.log.count(|step| matches!(step, Step::Renewed { .. })) == 0 {
        tokio::task::yield_now().await;
    }
    // Waits for its worker, which lets go of all its tasks.
    std::thread::spawn(move || drop(dying)).join().unwrap();
    runs_quickly(&rig, "another", &effects).await;
    rig.pass(Duration::from_secs(300)).await;
    is_still_busy(&rig, &effects).await;
    gate.open();
    assert_eq!(ran(&owner.await.unwrap()), "one");
}

#[tokio::test]
async fn p32_an_effect_is_told_when_its_lease_is_lost() {
    let rig = Rig::new();
    let policy = Policy::default();
    let owner = rig.start("k", &policy, |lease| async move {
        assert!(!lease.is_lost());
        lease.lost().await;
        assert!(lease.is_lost());
        completed("the loser's")
    });
    settle_down().await;
    // Paused beyond the lease: time jumps, and another is quicker than the renewal.
    rig.clock.advance(Duration::from_secs(31));
    let other = rig.another();
    let taken = other
        .run("k", &policy, |_| async { completed("the winner's") })
        .await;
    let Response::Ran(taken) = taken else {
        panic!("expected a takeover: {taken:?}")
    };
    assert_eq!(taken.attempt, 2);
    rig.pass(Duration::from_secs(15)).await;
    // One answer for all: the loser's caller gets the winner's.
    assert_eq!(replayed(&owner.await.unwrap()), "the winner's");
    assert_eq!(
        rig.log.count(|step| matches!(step, Step::LeaseLost { .. })),
        1
    );
}

#[tokio::test]
async fn i3_a_stale_owner_changes_nothing_and_learns_that_it_lost() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    let policy = Policy::default();
    let owner = rig.start("k", &policy, effects.answer_after("stale", &gate));
    settle_down().await;
    rig.clock.advance(Duration::from_secs(31));
    let other_gate = Gate::default();
    let other = rig.another();
    let taker = other.start("k", &policy, effects.answer_after("current", &other_gate));
    settle_down().await;
    gate.open();
    settle_down().await;
    let response = owner.await.unwrap();
    assert!(
        matches!(response, Response::Problem(Problem::LeaseLost { .. })),
        "{response:?}"
    );
    other_gate.open();
    settle_down().await;
    assert_eq!(ran(&taker.await.unwrap()), "current");
    assert_eq!(
        replayed(&rig.run("k", &policy, effects.answer("x")).await),
        "current"
    );
}

#[tokio::test]
async fn checkpoints_are_handed_to_the_next_owner_and_derived_keys_stay() {
    let rig = Rig::new();
    let policy = Policy::default();
    let grant = claim_and_vanish(&rig, "k", &policy).await;
    let progress = Bytes::from_static(b"step 2 of 3");
    assert_eq!(
        rig.store.renew(&grant, Some(&progress)).await.unwrap(),
        Renewed::Held
    );
    rig.clock.advance(Duration::from_secs(31));
    let response = rig
        .run("k", &policy, move |lease| async move {
            assert_eq!(
                (lease.attempt(), lease.last_checkpoint()),
                (2, Some(&progress))
            );
            assert!(lease.fence() > Some(grant.fence));
            assert_eq!(
                lease.derive_key("psp"),
                grant.identity.derive_key(&Secret::none(), "psp")
            );
            assert_ne!(lease.derive_key("psp"), lease.derive_key("mail"));
            lease.checkpoint("step 3 of 3").await.unwrap();
            completed("done")
        })
        .await;
    assert_eq!(ran(&response), "done");
}

#[tokio::test]
async fn a_checkpoint_of_a_lost_lease_says_so() {
    let rig = Rig::new();
    let policy = Policy::default();
    let (clock, other) = (rig.clock.clone(), rig.another());
    let response = rig
        .run("k", &policy, move |lease| async move {
            clock.advance(Duration::from_secs(31));
            let taken = other
                .run("k", &Policy::default(), |_| async { completed("other") })
                .await;
            assert_eq!(ran(&taken), "other");
            assert!(lease.checkpoint("late").await.is_err());
            completed("mine")
        })
        .await;
    assert_eq!(replayed(&response), "other");
}

#[tokio::test]
async fn i7_a_late_owner_is_not_given_the_answer_to_another_payload() {
    let rig = Rig::new();
    let policy = Policy::default().with_retention(Duration::from_secs(60));
    let (clock, other, theirs) = (rig.clock.clone(), rig.another(), policy.clone());
    let response = rig
        .run("k", &policy, move |_| async move {
            // Paused for so long that the record is gone, and the key has a new life.
            clock.advance(Duration::from_secs(61));
            let request = other.request("k", "another payload", &theirs);
            let taken = other
                .engine
                .execute(request, |_| async { completed("theirs") });
            assert_eq!(ran(&taken.await), "theirs");
            completed("mine")
        })
        .await;
    assert!(
        matches!(response, Response::Problem(Problem::LeaseLost { .. })),
        "{response:?}"
    );
}

#[tokio::test]
async fn a_lease_tells_how_much_of_it_is_left() {
    let (rig, policy) = (Rig::new(), Policy::default());
    let clock = rig.clock.clone();
    let response = rig
        .run("k", &policy, move |lease| async move {
            assert_eq!(
                lease.remaining(),
                Duration::from_secs(27),
                "a tenth is kept as margin"
            );
            clock.advance(Duration::from_secs(27));
            assert!(lease.is_lost(), "past its own deadline it can't be sure");
            completed("late, but nobody took over")
        })
        .await;
    assert_eq!(ran(&response), "late, but nobody took over");
}

#[tokio::test]
async fn p10_after_the_last_attempt_the_key_is_in_doubt() {
    let (rig, effects) = (Rig::new(), Effects::default());
    let policy = Policy::default().with_max_attempts(1);
    let grant = claim_and_vanish(&rig, "k", &policy).await;
    rig.clock.advance(Duration::from_secs(31));
    let response = rig.run("k", &policy, effects.answer("two")).await;
    assert!(
        matches!(response, Response::Problem(Problem::InDoubt(_))),
        "{response:?}"
    );
    let record = rig.store.read(&grant.identity).await.unwrap().unwrap();
    assert_eq!((record.state, effects.count()), (State::InDoubt, 0));
}
