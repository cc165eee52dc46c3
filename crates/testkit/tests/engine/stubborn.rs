//! Stores that give one and the same answer, whatever they are asked: for answers that a sound
//! store gives too seldom to test with.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use semel_core::Code;
use semel_core::engine::{EngineConfig, Problem, Response};
use semel_core::event::Step;
use semel_core::policy::{Policy, StoreDown};
use semel_core::store::{Capabilities, Wake};
use semel_core::wake::Wakeup;
use semel_core::{
    BoxFuture, Certainty, Claim, Claimed, Fence, Grant, Identity, InDoubt, Record, RecordError,
    Renewed, Resolution, Resolved, Settled, Settlement, StoreError, StoreErrorKind, StoreResult,
};

use super::*;

/// Answers every claim in the same way; resolves nothing.
struct Stubborn(fn() -> StoreResult<Claimed>);

fn ready<T: Send + 'static>(value: T) -> BoxFuture<'static, T> {
    Box::pin(std::future::ready(value))
}

impl Store for Stubborn {
    fn claim<'a>(&'a self, _: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        ready((self.0)())
    }

    fn renew<'a>(
        &'a self,
        _: &'a Grant,
        _: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>> {
        ready(Ok(Renewed::Lost))
    }

    fn settle<'a>(
        &'a self,
        _: &'a Grant,
        _: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        ready(Ok(Settled::Lost))
    }

    fn resolve<'a>(
        &'a self,
        _: &'a Identity,
        _: Fence,
        _: &'a Resolution,
    ) -> BoxFuture<'a, StoreResult<Resolved>> {
        ready(Ok(Resolved::NotInDoubt))
    }

    fn read<'a>(&'a self, _: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        ready(Ok(None))
    }

    fn watch(&self, _: &Identity) -> Wakeup {
        Wakeup::never()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("stubborn")
            .with_durable(false)
            .with_shared(false)
            .with_wake(Wake::Never)
            .with_lists_once(true)
            .with_max_answer_bytes(0)
    }
}

fn rig(answer: fn() -> StoreResult<Claimed>) -> Rig {
    Rig::on(
        FakeClock::new(),
        Arc::new(Stubborn(answer)),
        EngineConfig::default(),
    )
}

/// What a caller is told where the scope fails open, and nothing runs all the same.
async fn refused_where_it_fails_open(rig: &Rig) -> Problem {
    let effects = Effects::default();
    let policy = Policy::default().with_store_down(StoreDown::Open);
    let response = rig.run("k", &policy, effects.answer("x")).await;
    assert_eq!(effects.count(), 0);
    assert_eq!(rig.log.count(|step| *step == Step::FailedOpen), 0);
    match response {
        Response::Problem(problem) => problem,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn p25_unreadable_record_is_refused_even_if_fail_open() {
    for error in [RecordError::UnknownVersion(2), RecordError::Foreign] {
        let rig = match error {
            RecordError::Foreign => rig(|| Err(RecordError::Foreign.into())),
            _ => rig(|| Err(RecordError::UnknownVersion(2).into())),
        };
        let problem = refused_where_it_fails_open(&rig).await;
        // A caller who heard that nothing was done might do it in another way.
        assert_eq!(problem.code(), Code::RecordUnreadable);
        assert!(!problem.is_retryable() && problem.to_string().contains("not known"));
    }
}

#[tokio::test]
async fn p44_missing_body_is_reported_as_answered() {
    let rig = rig(|| {
        let (kind, certainty) = (StoreErrorKind::Body, Certainty::Definite);
        Err(StoreError::new(kind, certainty, "the bucket is away"))
    });
    let problem = refused_where_it_fails_open(&rig).await;
    assert_eq!(problem.code(), Code::BodyUnavailable);
    assert!(problem.is_retryable() && problem.retry_after().is_some());
    assert!(problem.to_string().contains("answered before"), "{problem}");
}

#[tokio::test]
async fn p40_a_hook_is_asked_once_even_if_the_doubt_comes_back() {
    let rig = rig(|| {
        let checkpoint = Bytes::new();
        Ok(Claimed::InDoubt(InDoubt {
            fence: Fence(7),
            attempt: 1,
            checkpoint,
        }))
    });
    let (effects, asked) = (Effects::default(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    let request = rig
        .request("k", "payload", &hold())
        .recover_with(Arc::new(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            ready(Some(Resolution::Release))
        }));
    let response = rig.engine.execute(request, effects.answer("x")).await;
    assert!(
        matches!(response, Response::Problem(Problem::InDoubt(_))),
        "{response:?}"
    );
    assert_eq!((asked.load(Ordering::SeqCst), effects.count()), (1, 0));
}
