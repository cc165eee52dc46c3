//! Answers that live shorter than their records (P50).

use semel_core::engine::{ANSWER_SCOPE, Admission, EngineConfig, OperatorOutcome, Problem};
use semel_core::engine::{CacheConfig, RemoteLease};
use semel_core::policy::Policy;
use semel_core::record::SealedHeader;
use semel_core::store::Query;
use semel_core::{Code, Record, Resolution, Restored, State, StoreAdmin};
use semel_testkit::faulty::{CallKind, Fault, FaultyStore};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn minute() -> Policy {
    Policy::default()
        .with_retention(HOUR)
        .with_answer_retention(MINUTE)
}

/// No local copies: every replay is the store's.
fn uncached() -> EngineConfig {
    EngineConfig::default().with_cache(CacheConfig::default().with_max_bytes(0))
}

fn rig() -> (Rig, Arc<MemoryStore>) {
    let clock = FakeClock::new();
    let store = MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone()));
    let store = Arc::new(store);
    (Rig::on(clock, store.clone(), uncached()), store)
}

fn code(response: &Response<String>) -> Option<Code> {
    match response {
        Response::Problem(problem) => Some(problem.code()),
        _ => None,
    }
}

async fn records(store: &dyn StoreAdmin, scope: &str) -> Vec<Record> {
    let query = Query::default().with_scope(scope.to_owned());
    let page = store.list(&query).await.expect("a page");
    page.records.into_iter().map(|(_, record)| record).collect()
}

#[tokio::test]
async fn p50_an_answer_is_replayed_until_its_own_retention_ends() {
    let (rig, store) = rig();
    let effects = Effects::default();
    assert_eq!(
        ran(&rig.run("k", &minute(), effects.answer("paid")).await),
        "paid"
    );
    rig.clock.advance(MINUTE - Duration::from_millis(1));
    assert_eq!(
        replayed(&rig.run("k", &minute(), effects.answer("no")).await),
        "paid"
    );
    rig.clock.advance(Duration::from_millis(1));
    let late = rig.run("k", &minute(), effects.answer("no")).await;
    assert_eq!(code(&late), Some(Code::AnswerExpired));
    assert!(matches!(&late, Response::Problem(problem) if !problem.is_retryable()));
    let other = rig.request("k", "another payload", &minute());
    let other = rig.engine.execute(other, effects.answer("no")).await;
    assert_eq!(code(&other), Some(Code::Conflict), "P7 still holds");
    // What is left says what happened and when, and has none of the answer.
    assert_eq!(store.sweep(100).await.expect("a sweep"), 1);
    assert!(records(&*store, ANSWER_SCOPE).await.is_empty());
    let [left] = &records(&*store, "charge").await[..] else {
        panic!("one record");
    };
    assert_eq!(left.state, State::Completed);
    let packed = left.encode();
    assert!(!packed.windows(4).any(|bytes| bytes == b"paid"));
    assert_eq!(effects.count(), 1);
    rig.clock.advance(HOUR);
    let anew = rig.run("k", &minute(), effects.answer("again")).await;
    assert_eq!(ran(&anew), "again", "the record has expired");
}

#[tokio::test]
async fn p50_failures_too_and_by_another_process() {
    let (rig, _) = rig();
    let failed = |_| async { said(Verdict::Fail(Answer::from_body("declined"))) };
    ran(&rig.run("k", &minute(), failed).await);
    let effects = Effects::default();
    let other = rig.another();
    // The policy of the run counts, not that of the replay.
    let replay = other
        .run("k", &Policy::default(), effects.answer("no"))
        .await;
    assert_eq!(replayed(&replay), "declined");
    assert!(matches!(&replay, Response::Replayed(found) if found.replay.state == State::Failed));
    rig.clock.advance(MINUTE);
    let late = other
        .run("k", &Policy::default(), effects.answer("no"))
        .await;
    assert_eq!(code(&late), Some(Code::AnswerExpired));
    assert_eq!(effects.count(), 0);
}

#[tokio::test]
async fn p50_off_unless_shorter_than_the_record() {
    let (rig, store) = rig();
    let effects = Effects::default();
    for (key, policy) in [
        ("a", Policy::default()),
        ("b", minute().with_answer_retention(HOUR)),
        ("c", minute().with_answer_retention(2 * HOUR)),
    ] {
        ran(&rig.run(key, &policy, effects.answer("yes")).await);
    }
    assert!(records(&*store, ANSWER_SCOPE).await.is_empty());
    let short = minute().with_answer_retention(Duration::from_millis(9));
    let refused = rig.run("d", &short, effects.answer("no")).await;
    assert_eq!(code(&refused), Some(Code::Policy));
}

#[tokio::test]
async fn p50_local_copies_end_with_their_age() {
    let rig = Rig::new();
    let effects = Effects::default();
    ran(&rig.run("k", &minute(), effects.answer("paid")).await);
    rig.clock.advance(MINUTE - Duration::from_millis(1));
    replayed(&rig.run("k", &minute(), effects.answer("no")).await);
    rig.clock.advance(Duration::from_secs(30));
    let late = rig.run("k", &minute(), effects.answer("no")).await;
    assert_eq!(code(&late), Some(Code::AnswerExpired));
}

#[tokio::test]
async fn p50_no_reply_and_no_room_still_record_the_effect() {
    let (rig, memory) = rig();
    let store = FaultyStore::sound(memory, Arc::new(rig.clock.clone()));
    let rig = Rig::on(rig.clock.clone(), Arc::new(store.clone()), uncached());
    let effects = Effects::default();
    // The claim and the settlement of the answer each happen without a reply.
    let gate = Gate::default();
    let run = rig.start("k", &minute(), effects.answer_after("paid", &gate));
    settle_down().await;
    store.next(CallKind::Claim, Fault::LoseReply);
    store.next(CallKind::Settle, Fault::LoseReply);
    gate.open();
    rig.pass(Duration::from_secs(5)).await;
    assert_eq!(ran(&run.await.expect("no panic")), "paid");
    let again = rig.run("k", &minute(), effects.answer("no")).await;
    assert_eq!(replayed(&again), "paid");
    // Without room for the answer, the record says that the effect happened.
    let run = rig.start("full", &minute(), effects.answer_after("paid", &gate));
    settle_down().await;
    store.next(CallKind::Claim, Fault::Full);
    gate.open();
    rig.pass(Duration::from_secs(5)).await;
    assert_eq!(ran(&run.await.expect("no panic")), "paid");
    let again = rig.run("full", &minute(), effects.answer("no")).await;
    assert_eq!(code(&again), Some(Code::AnswerExpired));
    // A store that can't say what it has of the answer starts nothing.
    store.next(CallKind::Read, Fault::Refuse);
    let down = rig.run("k", &minute(), effects.answer("no")).await;
    assert_eq!(code(&down), Some(Code::StoreUnavailable));
    assert_eq!(effects.count(), 2);
}

#[tokio::test]
async fn p50_an_owner_elsewhere_settles_once_under_the_policy_of_its_claim() {
    let (rig, store) = rig();
    let Admission::Won(out) = rig
        .engine
        .admit(rig.request("k", "payload", &minute()))
        .await
    else {
        panic!("expected a lease");
    };
    let lease = || RemoteLease::new(out.grant.identity, out.grant.fence, out.grant.token);
    let complete = |text: &str| Verdict::Complete(Answer::from_body(text.to_owned()));
    // Another process than the one that handed the lease out gets the policy from its door.
    let other = rig.another();
    for _ in 0..2 {
        let same = |_: &Namespace| Some(Arc::new(minute()));
        let settled = other.engine.settle(lease(), complete("paid"), same).await;
        assert!(matches!(settled, Response::Ran(_)), "{settled:?}");
    }
    let here = |_: &Namespace| Some(Arc::default());
    let again = rig.engine.settle(lease(), complete("paid"), here).await;
    assert!(matches!(again, Response::Ran(_)), "P18: {again:?}");
    let another = rig
        .another()
        .engine
        .settle(lease(), complete("x"), here)
        .await;
    assert!(!matches!(another, Response::Ran(_)), "P18: {another:?}");
    assert_eq!(records(&*store, ANSWER_SCOPE).await.len(), 1);
    // A look at the record shows the answer for as long as it is there, then its size.
    let body = |record: Option<Record>| record.and_then(|record| record.answer).expect("an answer");
    let identity = out.grant.identity;
    let seen = body(rig.engine.read(&identity).await.expect("a record"));
    assert_eq!(*seen, Answer::from_body("paid"));
    rig.clock.advance(MINUTE);
    let seen = body(rig.engine.inspect(&identity).await.expect("a record"));
    assert_eq!(seen.body, AnswerBody::Omitted { bytes: 4 });
    assert!(seen.head.is_empty());
}

#[tokio::test]
async fn p50_an_operator_sees_the_record_of_an_unreadable_answer() {
    let (rig, store) = rig();
    let effects = Effects::default();
    ran(&rig.run("k", &minute(), effects.answer("paid")).await);
    let query = Query::default().with_scope(ANSWER_SCOPE.to_owned());
    let page = store.list(&query).await.expect("a page");
    let (place, mut apart) = page.records[0].clone();
    // Encrypted with a key that nobody has.
    let header = SealedHeader {
        total_bytes: 40,
        key_id: 9,
        fence: apart.fence,
    };
    let sealed = [&header.to_bytes()[..], &[0; 16]].concat();
    apart.answer = Some(Arc::new(Answer {
        head: sealed.into(),
        ..Answer::from_body("?")
    }));
    assert!(store.delete(&place).await.expect("an answer"));
    let restored = store.restore(&place, &apart).await.expect("an answer");
    assert_eq!(restored, Restored::Written);
    let identity = *rig.request("k", "payload", &minute()).identity();
    let replay = rig.run("k", &minute(), effects.answer("no")).await;
    assert_eq!(code(&replay), Some(Code::RecordUnreadable));
    assert!(rig.engine.read(&identity).await.is_err());
    let shown = rig.engine.inspect(&identity).await.expect("an answer");
    assert_eq!(shown.expect("a record").state, State::Completed);
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn p50_a_loser_gets_the_answer_of_the_new_owner() {
    let (rig, _) = rig();
    let (effects, gate) = (Effects::default(), Gate::default());
    let other = rig.another();
    let slow = rig.start("k", &minute(), effects.answer_after("mine", &gate));
    settle_down().await;
    // An operator frees the key, and another process runs it.
    let identity = *rig.request("k", "payload", &minute()).identity();
    let fence = rig.store.read(&identity).await.expect("an answer");
    let fence = fence.expect("a record").fence;
    let unlock = semel_core::engine::Unlock::Release;
    let unlocked = other.engine.unlock(&identity, fence, unlock).await;
    assert!(matches!(unlocked, Ok(OperatorOutcome::Done { .. })));
    ran(&other.run("k", &minute(), effects.answer("theirs")).await);
    gate.open();
    settle_down().await;
    assert_eq!(replayed(&slow.await.expect("no panic")), "theirs");
}

#[tokio::test]
async fn p50_a_reset_removes_the_answer_too() {
    let (rig, store) = rig();
    let effects = Effects::default();
    ran(&rig.run("k", &minute(), effects.answer("paid")).await);
    let identity = *rig.request("k", "payload", &minute()).identity();
    let record = rig.store.read(&identity).await.expect("an answer");
    let admin: Arc<dyn StoreAdmin> = store.clone();
    let fence = record.expect("a record").fence;
    let reset = rig.engine.reset(&admin, &identity, fence).await;
    assert!(matches!(reset, Ok(OperatorOutcome::Done { .. })));
    assert_eq!(store.len(), 0);
}

#[tokio::test]
async fn p50_an_answer_that_a_recover_hook_found_expires_too() {
    let (rig, _) = rig();
    let (effects, policy) = (Effects::default(), minute());
    let unknown = |_| async { said(Verdict::Unknown) };
    ran(&rig.run("k", &policy, unknown).await);
    let hook: semel_core::engine::Recover = Arc::new(|_| {
        let found = Resolution::Complete(Answer::from_body("found").into());
        Box::pin(async move { Some(found) })
    });
    let request = rig.request("k", "payload", &policy).recover_with(hook);
    let found = rig.engine.execute(request, effects.answer("no")).await;
    assert_eq!(replayed(&found), "found");
    rig.clock.advance(MINUTE);
    let late = rig.run("k", &policy, effects.answer("no")).await;
    assert!(matches!(late, Response::Problem(Problem::AnswerExpired)));
    assert_eq!(effects.count(), 0);
}
