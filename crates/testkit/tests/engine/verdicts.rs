//! What an effect reports decides the settlement (P36), cell by cell.

use semel_core::engine::{Problem, Response};
use semel_core::policy::Policy;
use semel_core::{Answer, State};

use super::*;

/// What the record says after an effect said `verdict`.
async fn state_after(policy: &Policy, verdict: Verdict) -> State {
    let rig = Rig::new();
    let response = rig.run("k", policy, |_| async { said(verdict) }).await;
    let Response::Ran(ran) = response else {
        panic!("expected a fresh answer: {response:?}")
    };
    let identity = *rig.request("k", "payload", policy).identity();
    let record = rig
        .store
        .read(&identity)
        .await
        .expect("a store that answers")
        .expect("a record");
    assert_eq!(
        record.state, ran.state,
        "what the caller is told is what the record says"
    );
    record.state
}

#[tokio::test]
async fn p36_the_table_of_verdicts() {
    let answer = || Answer::from_body("x");
    let table = [
        (
            Verdict::Complete(answer()),
            State::Completed,
            State::Completed,
        ),
        (Verdict::Fail(answer()), State::Failed, State::Failed),
        (Verdict::Retry, State::Released, State::InDoubt),
        (Verdict::NoEffect, State::Released, State::Released),
        (Verdict::Unknown, State::InDoubt, State::InDoubt),
    ];
    for (verdict, takeover, held) in table {
        assert_eq!(
            state_after(&Policy::default(), verdict.clone()).await,
            takeover,
            "{verdict:?}"
        );
        assert_eq!(
            state_after(&hold(), verdict.clone()).await,
            held,
            "{verdict:?} under hold"
        );
    }
}

#[tokio::test]
async fn p36_a_panic_frees_the_key_under_takeover_and_doubts_under_hold() {
    for (policy, state) in [
        (Policy::default(), State::Released),
        (hold(), State::InDoubt),
    ] {
        let (rig, effects) = (Rig::new(), Effects::default());
        let response = rig
            .run("k", &policy, |_| async { panic!("a bug in the effect") })
            .await;
        assert!(matches!(response, Response::Problem(Problem::Panicked)));
        let identity = *rig.request("k", "payload", &policy).identity();
        assert_eq!(
            rig.store.read(&identity).await.unwrap().unwrap().state,
            state
        );
        let second = rig.run("k", &policy, effects.answer("two")).await;
        assert_eq!(
            effects.count(),
            usize::from(state == State::Released),
            "{second:?}"
        );
    }
}

#[tokio::test]
async fn p36_the_stored_policy_decides_not_the_askers() {
    let rig = Rig::new();
    // Claimed under takeover by a process that vanished; the next owner is configured for hold.
    super::leases::claim_and_vanish(&rig, "k", &Policy::default()).await;
    rig.clock.advance(Duration::from_secs(31));
    let response = rig
        .run("k", &hold(), |_| async { said(Verdict::Retry) })
        .await;
    let Response::Ran(ran) = response else {
        panic!("expected a takeover: {response:?}")
    };
    assert_eq!((ran.attempt, ran.state), (2, State::Released));
}

#[tokio::test]
async fn a_final_failure_is_replayed() {
    let (rig, effects) = (Rig::new(), Effects::default());
    let declined = Verdict::Fail(Answer::from_body("declined"));
    rig.run("k", &Policy::default(), |_| async { said(declined) })
        .await;
    let second = rig
        .run("k", &Policy::default(), effects.answer("two"))
        .await;
    assert_eq!((replayed(&second), effects.count()), ("declined", 0));
    let Response::Replayed(replay) = second else {
        unreachable!()
    };
    assert_eq!(replay.replay.state, State::Failed);
}
