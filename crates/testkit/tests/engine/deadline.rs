//! The owner's deadline: told when it passes, renewed before it does (P31, P32).

use std::time::Duration;

use semel_core::event::Step;
use semel_core::policy::Policy;
use semel_testkit::faulty::{CallKind, Fault};

use super::store_down::faulty;
use super::*;

fn losses(rig: &Rig) -> usize {
    rig.log.count(|step| matches!(step, Step::LeaseLost { .. }))
}

fn renewals(rig: &Rig) -> usize {
    rig.log.count(|step| matches!(step, Step::Renewed { .. }))
}

#[tokio::test]
async fn p32_owner_with_hanging_renewals_is_alerted_at_the_deadline() {
    let (rig, store) = faulty();
    for _ in 0..100 {
        store.next(CallKind::Renew, Fault::Hang);
    }
    let owner = rig.start("k", &Policy::default(), |lease| async move {
        lease.lost().await;
        completed("stopped in time")
    });
    settle_down().await;
    rig.pass(Duration::from_millis(26_500)).await;
    assert!(!owner.is_finished());
    // The third renewal was sent at 26 s, and is given up at 31 s. The lease ends at 30 s.
    rig.pass(Duration::from_millis(500)).await;
    assert!(owner.is_finished(), "told at 27 s");
    assert_eq!(ran(&owner.await.unwrap()), "stopped in time");
    rig.pass(Duration::from_secs(10)).await;
    assert_eq!(losses(&rig), 1, "told once");
}

#[tokio::test]
async fn p32_hanging_renewal_is_ignored_after_the_effect() {
    let (rig, store) = faulty();
    let (effects, gate) = (Effects::default(), Gate::default());
    for _ in 0..100 {
        store.next(CallKind::Renew, Fault::Hang);
    }
    let owner = rig.start("k", &Policy::default(), effects.answer_after("one", &gate));
    settle_down().await;
    rig.pass(Duration::from_millis(26_500)).await;
    gate.open();
    settle_down().await;
    assert_eq!(ran(&owner.await.unwrap()), "one");
    rig.pass(Duration::from_secs(10)).await;
    assert_eq!(losses(&rig), 0);
}

#[tokio::test]
async fn p32_a_renewal_that_is_held_too_late_takes_nothing_back() {
    let (rig, store) = faulty();
    let (effects, gate) = (Effects::default(), Gate::default());
    // Two are refused; the third is sent at 16 s, lands, and says so at 28 s.
    let config = EngineConfig::default().with_call_limit(Duration::from_secs(20));
    let rig = Rig::on(rig.clock.clone(), Arc::clone(&rig.store), config);
    store.next(CallKind::Renew, Fault::Refuse);
    store.next(CallKind::Renew, Fault::Refuse);
    store.next(CallKind::Renew, Fault::DelayReply(Duration::from_secs(12)));
    let (count, opened) = (effects.clone(), gate.clone());
    let owner = rig.start("k", &Policy::default(), |lease| async move {
        lease.lost().await;
        count.0.fetch_add(1, Ordering::SeqCst);
        opened.opened().await;
        assert!(lease.is_lost(), "what was told stays told");
        completed("one")
    });
    settle_down().await;
    rig.pass(Duration::from_secs(27)).await;
    assert_eq!((effects.count(), renewals(&rig)), (1, 0));
    // It runs on all the same, and nobody may take it over.
    rig.pass(Duration::from_secs(63)).await;
    assert!(renewals(&rig) >= 5, "{}", renewals(&rig));
    gate.open();
    settle_down().await;
    let response = owner.await.unwrap();
    let Response::Ran(ran) = response else {
        panic!("{response:?}")
    };
    assert_eq!((ran.attempt, losses(&rig)), (1, 1));
}

#[tokio::test]
async fn p31_a_lease_won_late_is_renewed_before_its_deadline() {
    let (rig, store) = faulty();
    let (effects, gate) = (Effects::default(), Gate::default());
    let policy = Policy::default().with_lease(Duration::from_secs(6));
    // It lands at once, and is answered the second time it is sent, at 5.1 s: 0.3 s before the
    // deadline.
    store.next(CallKind::Claim, Fault::DelayReply(Duration::from_secs(60)));
    let owner = rig.start("k", &policy, effects.answer_after("one", &gate));
    settle_down().await;
    for _ in 0..58 {
        rig.clock.advance(Duration::from_millis(100));
        settle_down().await;
    }
    assert_eq!((effects.count(), renewals(&rig)), (1, 1));
    gate.open();
    settle_down().await;
    assert_eq!(ran(&owner.await.unwrap()), "one");
    assert_eq!(losses(&rig), 0);
}
