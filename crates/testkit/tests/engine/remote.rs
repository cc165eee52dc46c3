//! An effect that runs elsewhere: the same rules, one call each.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_conformance::clock::FakeClock;
use semel_core::engine::{
    Admission, Engine, EngineConfig, LeaseHandout, Problem, RemoteLease, Request, Response, Verdict,
};
use semel_core::event::{BusyReason, Ending, Step, VerdictKind};
use semel_core::policy::{OnBusy, Policy};
use semel_core::{Answer, CrashPolicy, MemoryConfig, MemoryStore, State, StoreAdmin, Token};
use semel_testkit::faulty::{CallKind, Fault, FaultyStore};

use super::{Effects, Gate, Rig, ran, replayed, settle_down};

fn won(admitted: Admission) -> LeaseHandout {
    match admitted {
        Admission::Won(out) => out,
        other => panic!("expected a lease, got {other:?}"),
    }
}

fn named(out: &LeaseHandout) -> RemoteLease {
    RemoteLease::new(out.grant.identity, out.grant.fence, out.grant.token)
}

fn complete(text: &str) -> Verdict {
    Verdict::Complete(Answer::from_body(text.to_owned()))
}

async fn settle(rig: &Rig, lease: RemoteLease, verdict: Verdict) -> Response<()> {
    settle_keeping(&rig.engine, lease, verdict, 1 << 20).await
}

async fn settle_keeping(
    engine: &Engine,
    lease: RemoteLease,
    verdict: Verdict,
    most: usize,
) -> Response<()> {
    let policy = Arc::new(Policy::default().with_max_answer_bytes(most));
    engine.settle(lease, verdict, |_| Some(policy)).await
}

fn refusing() -> Policy {
    Policy::default().with_on_busy(OnBusy::Refuse)
}

impl Rig {
    async fn admit(&self, key: &str, policy: &Policy) -> Admission {
        self.engine
            .admit(self.request(key, "payload", policy))
            .await
    }
}

#[tokio::test]
async fn remote_effect_behaves_like_a_local_one() {
    let rig = Rig::new();
    let lease = named(&won(rig.admit("k", &Policy::default()).await));
    let gate = Gate::default();
    let effects = Effects::default();
    let waits = rig.start(
        "k",
        &Policy::default(),
        effects.answer_after("not run", &gate),
    );
    settle_down().await;
    assert_eq!(rig.engine.waiting(), 1);
    rig.pass(Duration::from_secs(1)).await;
    let settled = settle(&rig, lease, complete("theirs")).await;
    assert!(matches!(settled, Response::Ran(ran) if ran.state == State::Completed));
    assert_eq!(replayed(&waits.await.expect("no panic")), "theirs");
    assert_eq!(effects.count(), 0);
    let steps = rig.log.0.lock().clone();
    let shape: Vec<_> = steps
        .iter()
        .filter(|step| {
            let between = matches!(step, Step::WaitBegan { .. });
            !between && !matches!(step, Step::WaitEnded { .. } | Step::StoreCalled { .. })
        })
        .collect();
    let [
        Step::Claimed { .. },
        Step::Answered {
            how: Ending::HandedOut,
            ..
        },
        Step::EffectBegan { .. },
        Step::EffectEnded { verdict, took },
        Step::Settled { state, .. },
        Step::Replayed { .. },
        Step::Answered {
            how: Ending::Replayed { .. },
            ..
        },
    ] = shape.as_slice()
    else {
        panic!("as a run here would tell: {steps:?}");
    };
    assert_eq!(
        (*verdict, *state),
        (VerdictKind::Complete, State::Completed)
    );
    assert_eq!(*took, Duration::from_secs(1));
}

#[tokio::test]
async fn the_other_way_round_an_admission_replays_and_refuses() {
    let rig = Rig::new();
    let effects = Effects::default();
    ran(&rig
        .run("k", &Policy::default(), effects.answer("ours"))
        .await);
    assert!(matches!(
        rig.admit("k", &Policy::default()).await,
        Admission::Replayed(_)
    ));
    let other = rig.request("k", "another payload", &Policy::default());
    assert!(matches!(
        rig.engine.admit(other).await,
        Admission::Problem(Problem::Mismatch)
    ));
    named(&won(rig.admit("k2", &refusing()).await));
    let busy = rig.admit("k2", &refusing()).await;
    assert!(matches!(
        busy,
        Admission::Problem(Problem::Busy {
            why: BusyReason::Policy,
            ..
        })
    ));
}

#[tokio::test]
async fn p36_verdicts_from_elsewhere_are_settled_by_the_stored_policy() {
    for (crash, verdict, state) in [
        (CrashPolicy::Takeover, Verdict::Retry, State::Released),
        (CrashPolicy::Hold, Verdict::Retry, State::InDoubt),
        (CrashPolicy::Hold, Verdict::NoEffect, State::Released),
        (CrashPolicy::Takeover, Verdict::Unknown, State::InDoubt),
        (
            CrashPolicy::Hold,
            Verdict::Fail(Answer::from_body("no")),
            State::Failed,
        ),
    ] {
        let rig = Rig::new();
        let policy = Policy::default().with_crash(crash);
        let lease = named(&won(rig.admit("k", &policy).await));
        // A process that did not hand it out reads the policy from the record.
        let other = rig.another();
        let settled = settle(&other, lease, verdict).await;
        assert!(
            matches!(&settled, Response::Ran(ran) if ran.state == state),
            "{crash:?} {settled:?}"
        );
    }
}

#[tokio::test]
async fn stalled_owner_gets_the_new_owners_answer() {
    let rig = Rig::new();
    let first = won(rig.admit("k", &Policy::default()).await);
    assert_eq!(
        first.remaining,
        Duration::from_secs(27),
        "the lease less its margin"
    );
    rig.pass(Duration::from_secs(20)).await;
    let progress = Bytes::from_static(b"half");
    let kept = rig
        .engine
        .renew(&named(&first), Some(&progress), |_| true)
        .await;
    assert_eq!(kept.expect("still ours"), Duration::from_secs(27));
    rig.pass(Duration::from_secs(30)).await;
    let second = won(rig.admit("k", &Policy::default()).await);
    assert_eq!(
        (second.grant.attempt, &second.grant.checkpoint),
        (2, &progress)
    );
    let lost = rig.engine.renew(&named(&first), None, |_| true).await;
    assert!(matches!(lost, Err(Problem::LeaseLost { .. })));
    let stale = settle(&rig, named(&first), complete("mine")).await;
    assert!(matches!(
        stale,
        Response::Problem(Problem::LeaseLost { .. })
    ));
    settle(&rig, named(&second), complete("theirs")).await;
    match settle(&rig, named(&first), complete("mine")).await {
        Response::Replayed(found) => assert_eq!(*found.replay.answer, Answer::from_body("theirs")),
        other => panic!("its answer is everybody's: {other:?}"),
    }
    assert!(rig.log.count(|step| matches!(step, Step::LeaseLost { .. })) >= 2);
}

#[tokio::test]
async fn whoever_may_not_know_of_a_lease_can_do_nothing_with_it() {
    let rig = Rig::new();
    let lease = named(&won(rig.admit("k", &Policy::default()).await));
    for engine in [&rig.engine, &rig.another().engine] {
        let renewed = engine
            .renew(&lease, None, |place| place.tenant() == "other")
            .await;
        assert!(matches!(renewed, Err(Problem::LeaseLost { .. })));
        let settled = engine
            .settle(lease, complete("x"), |place| {
                (place.tenant() == "other").then(Arc::default)
            })
            .await;
        assert!(matches!(
            settled,
            Response::Problem(Problem::LeaseLost { .. })
        ));
    }
    let wrong = RemoteLease::new(lease.identity, lease.fence, Token(lease.token.0 ^ 1));
    assert!(matches!(
        settle(&rig, wrong, complete("x")).await,
        Response::Problem(Problem::LeaseLost { .. })
    ));
    assert_eq!(
        rig.log.count(|step| matches!(step, Step::Settled { .. })),
        0
    );
    assert!(matches!(
        settle(&rig, lease, complete("y")).await,
        Response::Ran(_)
    ));
}

/// A request that waits, and is dropped while it does; the key then gets free. → who wins next.
async fn abandoned(rig: &Rig, make: impl Fn(Request) -> Request) -> Admission {
    let lease = named(&won(rig.admit("k", &Policy::default()).await));
    let waits = make(rig.request("k", "payload", &Policy::default()));
    let engine = rig.engine.clone();
    let waits = tokio::spawn(async move { engine.admit(waits).await });
    settle_down().await;
    assert_eq!(rig.engine.waiting(), 1);
    waits.abort();
    settle_down().await;
    settle(rig, lease, Verdict::NoEffect).await;
    settle_down().await;
    rig.admit("k", &refusing()).await
}

#[tokio::test]
async fn a_lease_won_for_nobody_is_let_go() {
    let rig = Rig::new();
    let next = won(abandoned(&rig, |request| request).await);
    assert_eq!(next.grant.attempt, 1);
}

#[tokio::test]
async fn a_lease_under_the_callers_own_token_is_kept_for_its_resend() {
    let rig = Rig::new();
    let busy = abandoned(&rig, |request| request.with_token(Token(7))).await;
    assert!(matches!(busy, Admission::Problem(Problem::Busy { .. })));
    let again = rig
        .request("k", "payload", &refusing())
        .with_token(Token(7));
    let again = won(rig.engine.admit(again).await);
    assert_eq!((again.grant.token, again.grant.attempt), (Token(7), 1));
}

#[tokio::test]
async fn attaching_waits_by_wake_up_claims_nothing_and_is_bounded() {
    let rig = Rig::new();
    let out = won(rig.admit("k", &Policy::default()).await);
    let identity = out.grant.identity;
    let attach = |wait: u64| {
        let engine = rig.engine.clone();
        tokio::spawn(async move { engine.attach(&identity, Duration::from_secs(wait), 1).await })
    };
    let (long, refused) = (attach(60), attach(60));
    settle_down().await;
    let refused = refused.await.expect("no panic");
    assert!(matches!(
        refused,
        Err(Problem::Busy {
            why: BusyReason::KeyWaiters,
            ..
        })
    ));
    rig.pass(Duration::from_secs(40)).await;
    assert!(!long.is_finished(), "a lapsed lease is nobody's answer");
    settle(&rig, named(&out), complete("late")).await;
    let found = long
        .await
        .expect("no panic")
        .expect("an answer")
        .expect("a record");
    assert_eq!(found.state, State::Completed);
    assert_eq!(rig.engine.waiting(), 0);

    let out = won(rig.admit("k2", &Policy::default()).await);
    let engine = rig.engine.clone();
    let short = tokio::spawn(async move {
        engine
            .attach(&out.grant.identity, Duration::from_secs(5), 1)
            .await
    });
    settle_down().await;
    rig.pass(Duration::from_secs(6)).await;
    let found = short
        .await
        .expect("no panic")
        .expect("an answer")
        .expect("a record");
    assert_eq!(found.state, State::Running);
}

#[tokio::test]
async fn p37_a_settlement_goes_on_when_its_caller_leaves() {
    let clock = FakeClock::new();
    let store: Arc<dyn StoreAdmin> = Arc::new(MemoryStore::new(
        MemoryConfig::default(),
        Arc::new(clock.clone()),
    ));
    let faulty = FaultyStore::sound(Arc::clone(&store), Arc::new(clock.clone()));
    let rig = Rig::on(clock, Arc::new(faulty.clone()), EngineConfig::default());
    let out = won(rig.admit("k", &Policy::default()).await);
    let (engine, lease) = (rig.engine.clone(), named(&out));
    faulty.next(CallKind::Settle, Fault::LoseRequest);
    let settles =
        tokio::spawn(async move { settle_keeping(&engine, lease, complete("x"), 100).await });
    settle_down().await;
    assert!(!settles.is_finished(), "it has to be sent again");
    settles.abort();
    rig.pass(Duration::from_secs(10)).await;
    let found = store.read(&lease.identity).await.expect("an answer");
    assert_eq!(found.expect("a record").state, State::Completed);
}
