//! `observe` and `off` (P39).

use std::time::Duration;

use semel_core::engine::{Admission, Response};
use semel_core::event::{ShadowDecision, Step};
use semel_core::policy::{Mode, Policy};
use semel_core::{State, Token};
use semel_testkit::faulty::{CallKind, Fault, FaultyStore};

use super::store_down::{faulty, patiently};
use super::*;

fn unprotected(response: &Response<String>) -> &str {
    match response {
        Response::Unprotected(value) => value,
        other => panic!("expected an unprotected run, got {other:?}"),
    }
}

fn observe() -> Policy {
    Policy::default().with_mode(Mode::Observe)
}

fn would(rig: &Rig, would: ShadowDecision) -> usize {
    rig.log
        .count(|step| *step == Step::Observed { decision: would })
}

#[tokio::test]
async fn off_asks_no_store_and_runs_every_time() {
    let (rig, effects) = (Rig::new(), Effects::default());
    let policy = Policy::default().with_mode(Mode::Off);
    for _ in 0..2 {
        let response = rig.run("k", &policy, effects.answer("ran")).await;
        assert_eq!(unprotected(&response), "ran");
    }
    assert_eq!(effects.count(), 2);
    let identity = *rig.request("k", "payload", &policy).identity();
    assert_eq!(rig.store.read(&identity).await.unwrap(), None);
}

#[tokio::test]
async fn observe_mode_runs_everything_and_reports_decisions() {
    let (rig, effects, gate) = (Rig::new(), Effects::default(), Gate::default());
    let policy = observe();
    let first = rig.start("k", &policy, effects.answer_after("ran", &gate));
    settle_down().await;
    let busy = rig.run("k", &policy, effects.answer("ran")).await;
    gate.open();
    settle_down().await;
    let replay = rig.run("k", &policy, effects.answer("ran")).await;
    let other = rig.request("k", "another payload", &policy);
    let mismatch = rig.engine.execute(other, effects.answer("ran")).await;
    assert_eq!(ran(&first.await.unwrap()), "ran");
    for response in [&busy, &replay, &mismatch] {
        assert_eq!(unprotected(response), "ran");
    }
    assert_eq!(effects.count(), 4, "every call ran");
    for what in [
        ShadowDecision::Busy,
        ShadowDecision::Replay,
        ShadowDecision::Mismatch,
    ] {
        assert_eq!(would(&rig, what), 1, "{what:?}");
    }
}

#[tokio::test]
async fn an_unprotected_effect_knows_it_is() {
    let rig = Rig::new();
    let policy = Policy::default().with_mode(Mode::Off);
    let response = rig
        .run("k", &policy, |lease| async move {
            assert_eq!(
                (lease.fence(), lease.attempt(), lease.is_lost()),
                (None, 1, false)
            );
            lease.checkpoint("nowhere to keep it").await.unwrap();
            completed(&lease.derive_key("psp"))
        })
        .await;
    assert!(unprotected(&response).starts_with("semel-"));
}

#[tokio::test]
async fn p39_observe_gives_the_value_while_no_settlement_is_taken() {
    let (rig, store) = faulty();
    let effects = Effects::default();
    for _ in 0..100 {
        store.next(CallKind::Settle, Fault::Refuse);
    }
    let caller = rig.start("k", &observe(), effects.answer("ran"));
    settle_down().await;
    assert!(caller.is_finished(), "no time has passed");
    let response = caller.await.unwrap();
    assert_eq!((unprotected(&response), effects.count()), ("ran", 1));
    // Beside the caller it is sent for a lease, and a process that ends waits for that.
    let engine = rig.engine.clone();
    let ended = tokio::spawn(async move { engine.idle().await });
    rig.pass(Duration::from_secs(20)).await;
    assert!(!ended.is_finished());
    rig.pass(Duration::from_secs(20)).await;
    assert!(ended.is_finished());
    let told = |fits: fn(&Step) -> bool| rig.log.count(fits);
    assert_eq!(told(|step| matches!(step, Step::Unrecorded { .. })), 1);
    assert_eq!(told(|step| matches!(step, Step::Settled { .. })), 0);
}

#[tokio::test]
async fn p39_observe_records_beside_the_caller_what_was_refused_once() {
    let (rig, store) = faulty();
    let effects = Effects::default();
    store.next(CallKind::Settle, Fault::Refuse);
    let caller = rig.start("k", &observe(), effects.answer("ran"));
    settle_down().await;
    assert!(caller.is_finished(), "no time has passed");
    assert_eq!(unprotected(&caller.await.unwrap()), "ran");
    let identity = *rig.request("k", "payload", &observe()).identity();
    let record = rig.store.read(&identity).await.unwrap().unwrap();
    assert_eq!(record.state, State::Completed);
    let recorded = |step: &Step| matches!(step, Step::Settled { .. });
    assert_eq!(rig.log.count(recorded), 1);
    let second = rig.run("k", &observe(), effects.answer("again")).await;
    assert_eq!((unprotected(&second), effects.count()), ("again", 2));
    assert_eq!(would(&rig, ShadowDecision::Replay), 1);
}

#[tokio::test]
async fn p39_observe_gives_its_own_value_after_another_took_over() {
    let rig = Rig::new();
    let (clock, other) = (rig.clock.clone(), rig.another());
    let response = rig
        .run("k", &observe(), move |_| async move {
            clock.advance(Duration::from_secs(31));
            let taken = other
                .run("k", &Policy::default(), |_| async { completed("theirs") })
                .await;
            assert_eq!(ran(&taken), "theirs");
            completed("mine")
        })
        .await;
    assert_eq!(unprotected(&response), "mine");
    let lost = |step: &Step| matches!(step, Step::LeaseLost { .. });
    assert_eq!(rig.log.count(lost), 1);
}

/// The claim is won past its deadline, and the renewal that would help is refused.
fn comes_too_late(store: &FaultyStore) -> Policy {
    store.next(
        CallKind::Claim,
        Fault::DelayReply(Duration::from_millis(2_900)),
    );
    store.next(CallKind::Renew, Fault::Refuse);
    observe().with_lease(Duration::from_secs(3))
}

#[tokio::test]
async fn p39_observe_runs_the_effect_of_a_claim_that_was_won_too_late() {
    let (rig, store) = faulty();
    let effects = Effects::default();
    let policy = comes_too_late(&store);
    let response = patiently(&rig, &policy, &effects).await;
    assert_eq!((unprotected(&response), effects.count()), ("ran", 1));
    assert_eq!(would(&rig, ShadowDecision::Unavailable), 1);
    let unleased = Step::EffectBegan { fence: None };
    assert_eq!(rig.log.count(|step| *step == unleased), 1, "by I4");
    // The lease was let go: nobody has to wait until it lapses.
    let enforce = Policy::default();
    let next = rig.run("k", &enforce, effects.answer("next")).await;
    assert_eq!((ran(&next), effects.count()), ("next", 2));
}

#[tokio::test]
async fn p37_a_late_lease_of_a_caller_with_its_own_token_is_left_to_it() {
    for mode in [Mode::Enforce, Mode::Observe] {
        let (rig, store) = faulty();
        let policy = comes_too_late(&store).with_mode(mode);
        let request = rig.request("k", "payload", &policy).with_token(Token(7));
        let engine = rig.engine.clone();
        let admitted = tokio::spawn(async move { engine.admit(request).await });
        settle_down().await;
        // It sent the same claim elsewhere meanwhile, and runs its effect under it.
        let same = rig.request("k", "payload", &policy).with_token(Token(7));
        let won = rig.another().engine.admit(same).await;
        assert!(matches!(won, Admission::Won(_)), "{won:?}");
        rig.pass(Duration::from_millis(2_950)).await;
        assert!(admitted.is_finished());
        let admitted = admitted.await.unwrap();
        assert!(!matches!(admitted, Admission::Won(_)), "{admitted:?}");
        let identity = *rig.request("k", "payload", &policy).identity();
        let record = rig.store.read(&identity).await.unwrap();
        assert_eq!(record.unwrap().state, State::Running, "let go");
    }
}

#[tokio::test]
async fn p39_observe_runs_a_remote_effect_admitted_too_late() {
    let (rig, store) = faulty();
    let policy = comes_too_late(&store);
    let (engine, request) = (rig.engine.clone(), rig.request("k", "payload", &policy));
    let admitted = tokio::spawn(async move { engine.admit(request).await });
    settle_down().await;
    rig.pass(Duration::from_secs(3)).await;
    assert!(admitted.is_finished());
    let admitted = admitted.await.unwrap();
    assert!(matches!(admitted, Admission::Unprotected), "{admitted:?}");
    assert_eq!(would(&rig, ShadowDecision::Unavailable), 1);
}
