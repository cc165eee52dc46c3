//! What an operator changes: fenced by what was looked at, and told like any other step.

use std::time::Duration;

use semel_core::engine::{Admission, EngineConfig, OperatorOutcome, Unlock};
use semel_core::{Fence, Identity, Resolution, State, StoreAdmin};
use semel_testkit::faulty::{CallKind, Fault};

use super::leases::claim_and_vanish;
use super::store_down::faulty;
use super::*;

fn rig() -> (Rig, Arc<dyn StoreAdmin>) {
    let clock = FakeClock::new();
    let store = MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone()));
    let store = Arc::new(store);
    let admin: Arc<dyn StoreAdmin> = store.clone();
    (Rig::on(clock, store, EngineConfig::default()), admin)
}

/// What an operator sees who looks at the key.
async fn looked_at(rig: &Rig) -> (Identity, Fence) {
    let identity = *rig.request("k", "payload", &hold()).identity();
    let record = rig.store.read(&identity).await.expect("an answer");
    (identity, record.expect("a record").fence)
}

async fn held(rig: &Rig) -> semel_core::Grant {
    match rig.engine.admit(rig.request("k", "payload", &hold())).await {
        Admission::Won(out) => out.grant,
        other => panic!("expected a lease, got {other:?}"),
    }
}

#[tokio::test]
async fn an_operator_unlocks_and_resolves_what_was_looked_at() {
    let (rig, _) = rig();
    let grant = held(&rig).await;
    let (identity, fence) = (grant.identity, grant.fence);
    let early = rig
        .engine
        .resolve(&identity, fence, &Resolution::Release)
        .await;
    assert!(matches!(early, Ok(OperatorOutcome::MovedOn(_))), "it runs");
    let unlock = |fence| rig.engine.unlock(&identity, fence, Unlock::ByPolicy);
    let other = unlock(semel_core::Fence(fence.0 - 1)).await;
    assert!(
        matches!(other, Ok(OperatorOutcome::MovedOn(_))),
        "another lease"
    );
    let unlocked = unlock(fence).await;
    assert!(matches!(
        unlocked,
        Ok(OperatorOutcome::Done {
            state: State::InDoubt,
            ..
        })
    ));
    assert!(matches!(
        unlock(fence).await,
        Ok(OperatorOutcome::MovedOn(_))
    ));
    let answer = Resolution::Complete(Arc::new(Answer::from_body("found out")));
    let resolved = rig.engine.resolve(&identity, fence, &answer).await;
    assert!(matches!(
        resolved,
        Ok(OperatorOutcome::Done {
            state: State::Completed,
            ..
        })
    ));
    let effects = Effects::default();
    let response = rig.run("k", &hold(), effects.answer("not run")).await;
    assert_eq!((replayed(&response), effects.count()), ("found out", 0));
    let told = |fits: fn(&Step) -> bool| rig.log.count(fits);
    assert_eq!(
        told(|step| matches!(
            step,
            Step::Unlocked {
                state: State::InDoubt,
                ..
            }
        )),
        1
    );
    assert_eq!(
        told(|step| matches!(
            step,
            Step::Resolved {
                state: State::Completed,
                ..
            }
        )),
        1
    );
}

#[tokio::test]
async fn a_reset_takes_the_local_copy_away_too() {
    let (rig, admin) = rig();
    let effects = Effects::default();
    ran(&rig.run("k", &hold(), effects.answer("first")).await);
    // Twice: the second from the local copy.
    for _ in 0..2 {
        assert_eq!(
            replayed(&rig.run("k", &hold(), effects.answer("no")).await),
            "first"
        );
    }
    let (identity, fence) = looked_at(&rig).await;
    assert!(matches!(
        rig.engine.reset(&admin, &identity, fence).await,
        Ok(OperatorOutcome::Done { .. })
    ));
    assert!(matches!(
        rig.engine.reset(&admin, &identity, fence).await,
        Ok(OperatorOutcome::Absent)
    ));
    assert_eq!(
        ran(&rig.run("k", &hold(), effects.answer("again")).await),
        "again"
    );
    assert_eq!(rig.log.count(|step| matches!(step, Step::Deleted)), 1);
}

#[tokio::test]
async fn a_reset_of_a_record_that_has_moved_on_changes_nothing() {
    let (rig, admin) = rig();
    let (effects, policy) = (Effects::default(), Policy::default());
    let before = claim_and_vanish(&rig, "k", &policy).await;
    rig.clock.advance(Duration::from_secs(31));
    ran(&rig.run("k", &policy, effects.answer("taken over")).await);
    let reset = rig.engine.reset(&admin, &before.identity, before.fence);
    let reset = reset.await;
    let Ok(OperatorOutcome::MovedOn(found)) = reset else {
        panic!("{reset:?}")
    };
    assert!(found.fence > before.fence);
    let replay = rig.run("k", &policy, effects.answer("no")).await;
    assert_eq!((replayed(&replay), effects.count()), ("taken over", 1));
    assert_eq!(rig.log.count(|step| matches!(step, Step::Deleted)), 0);
}

#[tokio::test]
async fn a_reset_whose_reply_is_lost_leaves_no_local_copy() {
    let (rig, store) = faulty();
    let admin: Arc<dyn StoreAdmin> = Arc::new(store.clone());
    let effects = Effects::default();
    ran(&rig.run("k", &hold(), effects.answer("first")).await);
    // This makes the local copy.
    replayed(&rig.run("k", &hold(), effects.answer("no")).await);
    let (identity, fence) = looked_at(&rig).await;
    store.next(CallKind::Delete, Fault::LoseReply);
    let unknown = rig.engine.reset(&admin, &identity, fence).await;
    assert!(unknown.is_err(), "{unknown:?}");
    let again = rig.engine.reset(&admin, &identity, fence).await;
    assert!(matches!(again, Ok(OperatorOutcome::Absent)), "{again:?}");
    let next = rig.run("k", &hold(), effects.answer("second")).await;
    assert_eq!((ran(&next), effects.count()), ("second", 2));
}

#[tokio::test]
async fn reset_of_an_absent_record_clears_the_cache() {
    let (rig, admin) = rig();
    let effects = Effects::default();
    ran(&rig.run("k", &hold(), effects.answer("first")).await);
    replayed(&rig.run("k", &hold(), effects.answer("no")).await);
    let (identity, fence) = looked_at(&rig).await;
    // Another process does it.
    assert!(admin.delete(&identity).await.expect("an answer"));
    let absent = rig.engine.reset(&admin, &identity, fence).await;
    assert!(matches!(absent, Ok(OperatorOutcome::Absent)), "{absent:?}");
    let next = rig.run("k", &hold(), effects.answer("second")).await;
    assert_eq!((ran(&next), effects.count()), ("second", 2));
}

#[tokio::test]
async fn p38_an_answer_on_its_way_during_a_reset_is_not_kept() {
    let (rig, store) = faulty();
    let admin: Arc<dyn StoreAdmin> = Arc::new(store.clone());
    let effects = Effects::default();
    ran(&rig.run("k", &hold(), effects.answer("first")).await);
    store.next(CallKind::Claim, Fault::DelayReply(Duration::from_secs(1)));
    let asked = rig.start("k", &hold(), effects.answer("no"));
    settle_down().await;
    let (identity, fence) = looked_at(&rig).await;
    let reset = rig.engine.reset(&admin, &identity, fence).await;
    assert!(
        matches!(reset, Ok(OperatorOutcome::Done { .. })),
        "{reset:?}"
    );
    rig.pass(Duration::from_secs(1)).await;
    // It was asked when the record was there.
    assert_eq!(replayed(&asked.await.unwrap()), "first");
    let next = rig.run("k", &hold(), effects.answer("second")).await;
    assert_eq!((ran(&next), effects.count()), ("second", 2));
}

#[tokio::test]
async fn who_asks_after_an_unlock_is_told_what_the_store_says() {
    let (rig, _) = rig();
    let (effects, gate) = (Effects::default(), Gate::default());
    let refuse = Policy::default().with_on_busy(semel_core::policy::OnBusy::Refuse);
    // Its own process knows that the effect runs, and needs no store to say so.
    let stuck = rig.start("k", &refuse, effects.answer_after("stuck", &gate));
    settle_down().await;
    let (identity, fence) = looked_at(&rig).await;
    let unlocked = rig.engine.unlock(&identity, fence, Unlock::Release).await;
    assert!(
        matches!(unlocked, Ok(OperatorOutcome::Done { .. })),
        "{unlocked:?}"
    );
    let next = rig.run("k", &refuse, effects.answer("next")).await;
    assert_eq!((ran(&next), effects.count()), ("next", 2));
    gate.open();
    assert_eq!(replayed(&stuck.await.unwrap()), "next");
}
