//! What an operator changes: fenced by what was looked at, and told like any other step.

use semel_core::engine::{Admitted, EngineConfig, Operated, Unlock};
use semel_core::{Resolution, State, StoreAdmin};

use super::*;

fn rig() -> (Rig, Arc<dyn StoreAdmin>) {
    let clock = FakeClock::new();
    let store = MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone()));
    let store = Arc::new(store);
    let admin: Arc<dyn StoreAdmin> = store.clone();
    (Rig::on(clock, store, EngineConfig::default()), admin)
}

async fn held(rig: &Rig) -> semel_core::Grant {
    match rig.engine.admit(rig.request("k", "payload", &hold())).await {
        Admitted::Won(out) => out.grant,
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
    assert!(matches!(early, Ok(Operated::MovedOn(_))), "it runs");
    let unlock = |fence| rig.engine.unlock(&identity, fence, Unlock::ByPolicy);
    let other = unlock(semel_core::Fence(fence.0 - 1)).await;
    assert!(matches!(other, Ok(Operated::MovedOn(_))), "another lease");
    let unlocked = unlock(fence).await;
    assert!(matches!(
        unlocked,
        Ok(Operated::Done {
            state: State::InDoubt,
            ..
        })
    ));
    assert!(matches!(unlock(fence).await, Ok(Operated::MovedOn(_))));
    let answer = Resolution::Complete(Arc::new(Answer::of("found out")));
    let resolved = rig.engine.resolve(&identity, fence, &answer).await;
    assert!(matches!(
        resolved,
        Ok(Operated::Done {
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
    let identity = *rig.request("k", "payload", &hold()).identity();
    assert!(matches!(
        rig.engine.reset(&admin, &identity).await,
        Ok(Operated::Done { .. })
    ));
    assert!(matches!(
        rig.engine.reset(&admin, &identity).await,
        Ok(Operated::Absent)
    ));
    assert_eq!(
        ran(&rig.run("k", &hold(), effects.answer("again")).await),
        "again"
    );
    assert_eq!(rig.log.count(|step| matches!(step, Step::Deleted)), 1);
}
