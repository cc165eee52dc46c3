//! A store that doesn't answer, or answers late (P28, P30, P33, P35).

use std::time::Duration;

use semel_core::engine::{EngineConfig, Problem, Response};
use semel_core::event::{ShadowDecision, Step};
use semel_core::policy::{Mode, Policy, StoreDown};
use semel_core::{Fence, StoreAdmin};
use semel_testkit::faulty::{CallKind, Fault, FaultyStore};

use super::*;

/// A rig on a store that the test makes fail.
pub(super) fn faulty() -> (Rig, FaultyStore) {
    let clock = FakeClock::new();
    let memory = MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone()));
    let inner: Arc<dyn StoreAdmin> = Arc::new(memory);
    let store = FaultyStore::sound(inner, Arc::new(clock.clone()));
    (
        Rig::on(clock, Arc::new(store.clone()), EngineConfig::default()),
        store,
    )
}

/// Runs to the end, letting time pass as long as that takes.
pub(super) async fn patiently(rig: &Rig, policy: &Policy, effects: &Effects) -> Response<String> {
    let caller = rig.start("k", policy, effects.answer("ran"));
    for _ in 0..240 {
        if caller.is_finished() {
            break;
        }
        rig.pass(Duration::from_millis(500)).await;
    }
    assert!(caller.is_finished(), "nobody waits for ever");
    caller.await.expect("it ran to its end")
}

#[tokio::test]
async fn p28_a_claim_whose_reply_is_lost_is_sent_again_and_runs_once() {
    let (rig, store) = faulty();
    let effects = Effects::default();
    store.next(CallKind::Claim, Fault::LoseReply);
    let response = patiently(&rig, &Policy::default(), &effects).await;
    assert_eq!((ran(&response), effects.count()), ("ran", 1));
    let Response::Ran(ran) = response else {
        unreachable!()
    };
    assert_eq!(ran.attempt, 1, "the same lease, not a takeover of itself");
}

#[tokio::test]
async fn p33_a_settlement_that_finds_no_room_is_sent_again() {
    let (rig, store) = faulty();
    let effects = Effects::default();
    for _ in 0..3 {
        store.next(CallKind::Settle, Fault::Full);
    }
    let response = patiently(&rig, &Policy::default(), &effects).await;
    assert_eq!((ran(&response), effects.count()), ("ran", 1));
    // A claim is not: nothing has happened yet, and its caller need not wait.
    store.next(CallKind::Claim, Fault::Full);
    let refused = rig
        .run("new", &Policy::default(), effects.answer("x"))
        .await;
    assert!(matches!(refused, Response::Problem(_)), "{refused:?}");
}

#[tokio::test]
async fn p33_a_settlement_whose_reply_is_lost_is_sent_again() {
    let (rig, store) = faulty();
    let effects = Effects::default();
    store.lose_response();
    let response = patiently(&rig, &Policy::default(), &effects).await;
    assert_eq!((ran(&response), effects.count()), ("ran", 1));
    assert_eq!(
        replayed(&rig.run("k", &Policy::default(), effects.answer("x")).await),
        "ran"
    );
}

#[tokio::test]
async fn p33_an_answer_that_cannot_be_recorded_is_not_given() {
    let (rig, store) = faulty();
    let effects = Effects::default();
    for _ in 0..100 {
        store.next(CallKind::Settle, Fault::Refuse);
    }
    let response = patiently(&rig, &Policy::default(), &effects).await;
    let Response::Problem(problem) = &response else {
        panic!("{response:?}")
    };
    assert!(matches!(problem, Problem::Unrecorded { .. }) && problem.is_retryable());
    assert_eq!(
        rig.log
            .count(|step| matches!(step, Step::Unrecorded { .. })),
        1
    );
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn p35_fail_closed_starts_nothing() {
    let (rig, store) = faulty();
    let effects = Effects::default();
    for _ in 0..3 {
        store.next(CallKind::Claim, Fault::Refuse);
    }
    let response = patiently(&rig, &Policy::default(), &effects).await;
    let Response::Problem(problem) = &response else {
        panic!("{response:?}")
    };
    assert!(matches!(problem, Problem::Unavailable { .. }) && problem.is_retryable());
    assert_eq!(effects.count(), 0);
    assert_eq!(
        ran(&rig
            .run("k", &Policy::default(), effects.answer("later"))
            .await),
        "later"
    );
}

#[tokio::test]
async fn p35_fail_open_runs_unprotected_and_says_so() {
    let (rig, store) = faulty();
    let effects = Effects::default();
    for _ in 0..3 {
        store.next(CallKind::Claim, Fault::Refuse);
    }
    let policy = Policy::default().with_store_down(StoreDown::Open);
    let response = patiently(&rig, &policy, &effects).await;
    assert!(matches!(response, Response::Unprotected(_)), "{response:?}");
    assert_eq!(effects.count(), 1);
    assert_eq!(rig.log.count(|step| *step == Step::FailedOpen), 1);
}

#[tokio::test]
async fn observe_never_stands_in_the_way_of_an_outage() {
    let (rig, store) = faulty();
    let effects = Effects::default();
    for _ in 0..3 {
        store.next(CallKind::Claim, Fault::Refuse);
    }
    let policy = Policy::default().with_mode(Mode::Observe);
    let response = patiently(&rig, &policy, &effects).await;
    assert!(matches!(response, Response::Unprotected(_)), "{response:?}");
    let observed = Step::Observed {
        decision: ShadowDecision::Unavailable,
    };
    assert_eq!(rig.log.count(|step| *step == observed), 1);
}

#[tokio::test]
async fn p30_late_claim_is_renewed_before_the_effect() {
    let (rig, store) = faulty();
    let (policy, effects) = (short(), Effects::default());
    store.next(
        CallKind::Claim,
        Fault::DelayReply(Duration::from_millis(2_900)),
    );
    let response = patiently(&rig, &policy, &effects).await;
    assert_eq!((ran(&response), effects.count()), ("ran", 1));
    assert_eq!(
        rig.log.count(|step| matches!(step, Step::Renewed { .. })),
        1
    );
}

#[tokio::test]
async fn p30_late_claim_without_renewal_frees_the_key() {
    let (rig, store) = faulty();
    let (policy, effects) = (short(), Effects::default());
    store.next(
        CallKind::Claim,
        Fault::DelayReply(Duration::from_millis(2_900)),
    );
    store.next(CallKind::Renew, Fault::Refuse);
    let response = patiently(&rig, &policy, &effects).await;
    assert!(
        matches!(response, Response::Problem(Problem::Late)),
        "{response:?}"
    );
    assert_eq!(effects.count(), 0);
    let second = patiently(&rig, &policy, &effects).await;
    assert_eq!((ran(&second), effects.count()), ("ran", 1));
}

#[tokio::test]
async fn p30_deadline_counts_from_the_first_sending() {
    let (rig, store) = faulty();
    let policy = Policy::default().with_lease(Duration::from_secs(6));
    // It lands at once; its reply comes after the call was given up, so the claim is sent again.
    store.next(CallKind::Claim, Fault::DelayReply(Duration::from_secs(60)));
    let caller = rig.start("k", &policy, |lease| async move {
        assert_eq!(lease.attempt(), 1);
        completed(&lease.remaining().as_millis().to_string())
    });
    for _ in 0..60 {
        rig.clock.advance(Duration::from_millis(100));
        settle_down().await;
    }
    // A lease of 6 s less a tenth, of which the lost call has used 5 s and the pause 50 to 100 ms.
    let left: u64 = ran(&caller.await.unwrap()).parse().unwrap();
    assert!(
        (300..=350).contains(&left),
        "{left} ms were thought to be left"
    );
}

#[tokio::test]
async fn a_store_call_that_hangs_is_given_up() {
    let (rig, store) = faulty();
    let effects = Effects::default();
    for _ in 0..3 {
        store.next(CallKind::Claim, Fault::Hang);
    }
    let response = patiently(&rig, &Policy::default(), &effects).await;
    assert!(
        matches!(response, Response::Problem(Problem::Unavailable { .. })),
        "{response:?}"
    );
    assert_eq!(effects.count(), 0);
}

#[tokio::test]
async fn p31_a_failed_renewal_is_tried_again() {
    let (rig, store) = faulty();
    let (effects, gate) = (Effects::default(), Gate::default());
    store.next(CallKind::Renew, Fault::Refuse);
    store.next(CallKind::Renew, Fault::LoseReply);
    let policy = Policy::default();
    let owner = rig.start("k", &policy, effects.answer_after("one", &gate));
    rig.pass(Duration::from_secs(60)).await;
    gate.open();
    settle_down().await;
    assert_eq!(ran(&owner.await.unwrap()), "one");
    assert_eq!(
        rig.log.count(|step| matches!(step, Step::LeaseLost { .. })),
        0
    );
}

#[tokio::test]
async fn p32_an_owner_that_cannot_renew_in_time_is_told() {
    let (rig, store) = faulty();
    for _ in 0..100 {
        store.next(CallKind::Renew, Fault::Refuse);
    }
    let owner = rig.start("k", &Policy::default(), |lease| async move {
        lease.lost().await;
        completed("stopped in time")
    });
    rig.pass(Duration::from_secs(26)).await;
    assert!(!owner.is_finished());
    rig.pass(Duration::from_secs(4)).await;
    // Nobody took over, so what it says is still taken (P17).
    assert_eq!(ran(&owner.await.unwrap()), "stopped in time");
    assert_eq!(
        rig.log.count(|step| matches!(step, Step::LeaseLost { .. })),
        1
    );
}

#[tokio::test]
async fn a_crash_after_the_effect_is_taken_over_or_in_doubt() {
    for policy in [Policy::default(), hold()] {
        let (rig, store) = faulty();
        let effects = Effects::default();
        store.crash_after_effect();
        let dead = rig.start("k", &policy, effects.answer("lost"));
        settle_down().await;
        assert_eq!(effects.count(), 1);
        rig.clock.advance(Duration::from_secs(31));
        let other = rig.another();
        let response = other.run("k", &policy, effects.answer("again")).await;
        if policy == Policy::default() {
            let Response::Ran(ran) = response else {
                panic!("{response:?}")
            };
            assert_eq!((ran.attempt, effects.count()), (2, 2));
        } else {
            assert!(
                matches!(response, Response::Problem(Problem::InDoubt(_))),
                "{response:?}"
            );
            assert_eq!(effects.count(), 1);
        }
        dead.abort();
    }
}

/// A resource that remembers the largest fence and refuses a smaller one.
#[derive(Clone, Default)]
struct Resource {
    largest: Arc<Mutex<Option<Fence>>>,
    written: Effects,
}

impl Resource {
    /// Writes in the name of a lease; whether the resource took it.
    fn write(&self, lease: &Lease) -> bool {
        let mut largest = self.largest.lock();
        if lease.fence() < *largest {
            return false;
        }
        *largest = lease.fence();
        self.written.0.fetch_add(1, Ordering::SeqCst);
        true
    }
}

#[tokio::test]
async fn a_fence_orders_runs_and_does_not_keep_a_second_one_out() {
    let (rig, store) = faulty();
    let (resource, policy) = (Resource::default(), Policy::default());
    store.crash_after_effect();
    let (first, stale) = (resource.clone(), Arc::new(Mutex::new(None)));
    let kept = Arc::clone(&stale);
    let dead = rig.start("k", &policy, move |lease| {
        assert!(first.write(&lease));
        *kept.lock() = Some(lease);
        async { completed("lost") }
    });
    settle_down().await;
    assert_eq!(resource.written.count(), 1);
    rig.clock.advance(Duration::from_secs(31));
    let second = resource.clone();
    let effect = move |lease| {
        assert!(second.write(&lease), "a takeover has a larger fence");
        async { completed("again") }
    };
    let response = rig.another().run("k", &policy, effect).await;
    assert_eq!(ran(&response), "again");
    assert_eq!(resource.written.count(), 2, "so the effect happened twice");
    // What the fence is for: from now on the first owner can do nothing.
    let first = stale.lock().take().expect("the first owner's lease");
    assert!(!resource.write(&first));
    dead.abort();
}

/// A lease shorter than the limit of a call.
fn short() -> Policy {
    Policy::default().with_lease(Duration::from_secs(3))
}
