//! A wake-up that is followed by Busy is followed by a pause: waiters don't ask as fast as they are
//! told (P34).

use std::sync::atomic::Ordering;
use std::time::Duration;

use semel_core::StoreAdmin;
use semel_core::engine::{EngineConfig, Response};
use semel_core::policy::{OnBusy, Policy};
use semel_stores::compose::Mirror;

use super::leases::claim_and_vanish;
use super::scripted::Scripted;
use super::*;

/// The pauses of two seconds: 50 ms and half as much again each time, with a few claims before the
/// first.
const MOST_CLAIMS: usize = 15;

fn waits(limit: Duration) -> Policy {
    Policy::default().with_on_busy(OnBusy::Wait(limit))
}

/// As [`Rig::pass`], in steps that are shorter than the shortest pause.
async fn pass_slowly(rig: &Rig, time: Duration) {
    let step = Duration::from_millis(10);
    for _ in 0..time.as_millis() / step.as_millis() {
        rig.clock.advance(step);
        settle_down().await;
    }
}

#[tokio::test]
async fn p34_waiter_pauses_after_spurious_wake_ups() {
    let (rig, store, other) = Scripted::rig(EngineConfig::default());
    let (effects, gate) = (Effects::default(), Gate::default());
    let policy = waits(Duration::from_secs(30));
    let owner = other.start("k", &policy, effects.answer_after("one", &gate));
    settle_down().await;
    store.wakes_at_once.store(true, Ordering::SeqCst);
    let waiter = rig.start("k", &policy, effects.answer("two"));
    pass_slowly(&rig, Duration::from_secs(2)).await;
    assert!(store.claims() <= MOST_CLAIMS, "{} claims", store.claims());
    gate.open();
    assert_eq!(ran(&owner.await.unwrap()), "one");
    rig.pass(Duration::from_secs(1)).await;
    assert_eq!(replayed(&waiter.await.unwrap()), "one");
}

#[tokio::test]
async fn p34_waiter_ends_at_its_limit_despite_wake_ups() {
    let (rig, store, other) = Scripted::rig(EngineConfig::default());
    let (effects, gate) = (Effects::default(), Gate::default());
    let policy = waits(Duration::from_secs(2));
    let _owner = other.start("k", &policy, effects.answer_after("one", &gate));
    settle_down().await;
    store.wakes_at_once.store(true, Ordering::SeqCst);
    let waiter = rig.start("k", &policy, effects.answer("two"));
    pass_slowly(&rig, Duration::from_millis(2_050)).await;
    assert!(waiter.is_finished(), "no waiter waits past its limit");
    assert!(matches!(waiter.await.unwrap(), Response::Problem(_)));
}

#[tokio::test]
async fn p34_remote_observer_pauses_after_spurious_wake_ups() {
    let (rig, store, other) = Scripted::rig(EngineConfig::default());
    let grant = claim_and_vanish(&other, "k", &Policy::default()).await;
    store.wakes_at_once.store(true, Ordering::SeqCst);
    let engine = rig.engine.clone();
    let attached = tokio::spawn(async move {
        let wait = Duration::from_secs(30);
        engine.attach(&grant.identity, wait, 10).await
    });
    pass_slowly(&rig, Duration::from_secs(2)).await;
    assert!(store.reads() <= MOST_CLAIMS, "{} looks", store.reads());
    assert!(!attached.is_finished());
    attached.abort();
}

#[tokio::test]
async fn p34_a_waiter_pauses_where_only_the_second_of_two_stores_is_busy() {
    let plain = Rig::new();
    let memory = || MemoryStore::new(MemoryConfig::default(), Arc::new(plain.clock.clone()));
    let (old, new) = (memory(), memory());
    let both = |store: &MemoryStore| Arc::new(store.clone()) as Arc<dyn StoreAdmin>;
    // A node of the neighbouring rollout runs the key, and knows the second store only.
    let config = EngineConfig::default();
    let neighbour = Rig::on(plain.clock.clone(), Arc::new(new.clone()), config);
    let (effects, gate) = (Effects::default(), Gate::default());
    let policy = waits(Duration::from_secs(30));
    let owner = neighbour.start("k", &policy, effects.answer_after("one", &gate));
    settle_down().await;
    let store = Scripted::on(Arc::new(Mirror::new(both(&old), both(&new))));
    let rig = Rig::on(plain.clock.clone(), Arc::clone(&store) as _, config);
    let waiter = rig.start("k", &policy, effects.answer("two"));
    pass_slowly(&rig, Duration::from_secs(2)).await;
    assert!(store.claims() <= MOST_CLAIMS, "{} claims", store.claims());
    gate.open();
    assert_eq!(ran(&owner.await.unwrap()), "one");
    rig.pass(Duration::from_secs(2)).await;
    assert_eq!(replayed(&waiter.await.unwrap()), "one");
    assert_eq!(effects.count(), 1);
}
