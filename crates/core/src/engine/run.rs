//! From lease to answer: start the effect, settle by its verdict, answer.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;

use super::Shared;
use super::admit::{Admission, Won, admit};
use super::answer::{Problem, Ran, Replayed, Report, Response, Verdict};
use super::lease::{Held, Lease};
use super::limit::Backoff;
use super::observe::run_observed;
use super::request::Request;
use super::running::Run;
use crate::claim::{Grant, Renewed, Settled, Settlement};
use crate::clock::{Tick, Timestamp};
use crate::error::{StoreError, StoreErrorKind};
use crate::event::{Ending, Step, StoreCall, VerdictKind};
use crate::policy::Mode;
use crate::protocol;
use crate::record::CrashPolicy;
use crate::store::within;

/// The whole way of a request: claim → run → settle → answer.
///
/// An `async` block, as an `async fn` would hold its arguments twice.
#[expect(
    clippy::manual_async_fn,
    reason = "see above: the future is a third smaller"
)]
pub(super) fn drive<V, F, Fut>(
    engine: Arc<Shared>,
    request: Request,
    effect: F,
) -> impl Future<Output = Response<V>>
where
    F: FnOnce(Lease) -> Fut,
    Fut: Future<Output = Report<V>>,
{
    async move {
        let began = engine.env.clock.now();
        let fingerprint = request.fingerprint;
        let (held, now, _run, _kept) = match admit(&engine, &request, began).await {
            Admission::Replayed(replayed) => {
                let how = Ending::Replayed(replayed.number);
                engine.answered(&request.subject, fingerprint, began, how);
                return Response::Replayed(replayed);
            }
            Admission::Problem(problem) => {
                let how = Ending::Problem(problem.code());
                engine.answered(&request.subject, fingerprint, began, how);
                return Response::Problem(problem);
            }
            Admission::Unprotected => {
                let run = Run::begin(&engine);
                let now = engine.env.clock.now();
                let held = Held::new(engine, request.subject, Some(fingerprint), None, now);
                (held, now, run, None)
            }
            Admission::Won(Won {
                grant,
                sent,
                now,
                turn,
            }) => {
                let run = Run::begin(&engine);
                let (subject, fingerprint) = (request.subject, Some(fingerprint));
                let held = Held::new(engine, subject, fingerprint, Some(grant), sent);
                let kept = turn.map(|turn| turn.hold(&held, now));
                (held, now, run, kept)
            }
        };
        let most = request.policy.max_answer_bytes;
        let response = match (&held.grant, request.policy.mode) {
            (None, _) => run_unprotected(&held, now, effect).await,
            // Boxed, as it is rare: the way of most requests stays small.
            (Some(grant), Mode::Observe) if !held.engine.commits => {
                Box::pin(run_observed(&held, grant, now, most, effect)).await
            }
            (Some(_), _) => run_leased(&held, now, most, effect).await,
        };
        let how = response.ending();
        held.engine.answered(&held.subject, fingerprint, began, how);
        response
    }
}

pub(super) async fn run_unprotected<V, F, Fut>(
    held: &Arc<Held>,
    now: Tick,
    effect: F,
) -> Response<V>
where
    F: FnOnce(Lease) -> Fut,
    Fut: Future<Output = Report<V>>,
{
    match run_effect(held, now, effect).await {
        Some(report) => Response::Unprotected(report.value),
        None => Response::Problem(Problem::Panicked),
    }
}

#[expect(clippy::manual_async_fn, reason = "as `drive`")]
fn run_leased<V, F, Fut>(
    held: &Arc<Held>,
    now: Tick,
    max_answer_bytes: usize,
    effect: F,
) -> impl Future<Output = Response<V>>
where
    F: FnOnce(Lease) -> Fut,
    Fut: Future<Output = Report<V>>,
{
    async move {
        let Some(grant) = &held.grant else {
            return Response::Problem(Problem::Late);
        };
        let Some(now) = may_start(held, grant, now).await else {
            // Nothing was started, so letting go is always legal (P36).
            let _ = Box::pin(settle(held, grant, &Settlement::Release)).await;
            return Response::Problem(Problem::Late);
        };
        // Only now: beside a renewal that isn't answered yet, the effect would be told that its lease is lost.
        let renewing = held.engine.renewals.keep(held, grant.lease, now);
        let report = run_effect(held, now, effect).await;
        drop(renewing);
        let (value, settlement) = outcome(held, grant, report, max_answer_bytes);
        let settled = settle(held, grant, &settlement).await;
        respond(held, grant, &settlement, settled, value).await
    }
}

/// When the effect may start under a lease whose claim was answered `now`; `None` where it may not (P30).
pub(super) async fn may_start(held: &Held, grant: &Grant, now: Tick) -> Option<Tick> {
    match now < held.deadline() {
        true => Some(now),
        // Boxed, as it is rare: the way of most requests stays small.
        false => Box::pin(renewed_in_time(held, grant)).await,
    }
}

/// The claim was answered too late to start under it. The lease may well still be ours: renew it, and see whether
/// that is answered in time.
async fn renewed_in_time(held: &Held, grant: &Grant) -> Option<Tick> {
    let renewed = held.renew(grant, None).await;
    let now = held.engine.env.clock.now();
    (matches!(renewed, Ok(Renewed::Held)) && now < held.deadline()).then_some(now)
}

/// Runs the effect; `None` where it panicked.
pub(super) async fn run_effect<V, F, Fut>(
    held: &Arc<Held>,
    began: Tick,
    effect: F,
) -> Option<Report<V>>
where
    F: FnOnce(Lease) -> Fut,
    Fut: Future<Output = Report<V>>,
{
    let engine = &held.engine;
    let fence = held.grant.as_ref().map(|grant| grant.fence);
    engine.emit(&held.subject, Step::EffectBegan { fence });
    let lease = Lease {
        held: Arc::clone(held),
    };
    // The effect is made inside the guarded future: making it may panic as well.
    let guarded = AssertUnwindSafe(async move { effect(lease).await }).catch_unwind();
    let report = guarded.await.ok();
    let verdict = report
        .as_ref()
        .map_or(VerdictKind::Panic, |report| report.verdict.kind());
    let took = engine.env.clock.now().since(began);
    engine.emit(&held.subject, Step::EffectEnded { verdict, took });
    report
}

/// What an effect came to: its value, `None` where it panicked, and what to write.
pub(super) fn outcome<V>(
    held: &Held,
    grant: &Grant,
    report: Option<Report<V>>,
    max_answer_bytes: usize,
) -> (Option<V>, Settlement) {
    let (value, verdict) = match report {
        Some(Report { value, verdict }) => (Some(value), verdict),
        None => (None, Verdict::Retry),
    };
    let most = held.engine.most_answer_bytes(max_answer_bytes);
    held.tell_if_oversized(&verdict, most);
    (value, settlement(verdict, grant.crash, most))
}

/// What to write, by verdict and stored policy (P36).
pub(super) fn settlement(verdict: Verdict, crash: CrashPolicy, most: usize) -> Settlement {
    match (verdict, crash) {
        (Verdict::Complete(answer), _) => Settlement::Complete(answer.capped(most).into()),
        (Verdict::Fail(answer), _) => Settlement::Fail(answer.capped(most).into()),
        (Verdict::NoEffect, _) | (Verdict::Retry, CrashPolicy::Takeover) => Settlement::Release,
        (Verdict::Unknown, _) | (Verdict::Retry, CrashPolicy::Hold) => Settlement::Doubt,
    }
}

/// Sends the settlement until it is answered, for as long as one lease: sending it again is safe
/// (P18), and giving up leaves an effect that happened without a record.
pub(super) async fn settle(
    held: &Held,
    grant: &Grant,
    settlement: &Settlement,
) -> Result<Settled, StoreError> {
    let clock = &held.engine.env.clock;
    let mut give_up = None;
    let mut backoff = Backoff::new();
    loop {
        let error = match settle_once(held, grant, settlement).await {
            Ok(settled) => return Ok(settled),
            Err(error) => error,
        };
        let now = clock.now();
        let give_up = *give_up.get_or_insert(now.plus(grant.lease));
        if !is_sent_again(held, &error) || now >= give_up {
            return Err(error);
        }
        clock.sleep(backoff.next_pause()).await;
    }
}

/// Whether a settlement that failed so is sent again. One that is the effect's own commit leaves no effect behind when it
/// is refused, so only what may pass is worth waiting for.
pub(super) fn is_sent_again(held: &Held, error: &StoreError) -> bool {
    match held.engine.commits {
        true => error.is_transient() || error.kind == StoreErrorKind::Full,
        false => error.kind.is_retried_for_settle(),
    }
}

/// Sends the settlement once.
pub(super) async fn settle_once(
    held: &Held,
    grant: &Grant,
    settlement: &Settlement,
) -> Result<Settled, StoreError> {
    let engine = &held.engine;
    held.end();
    let sent = engine.tick();
    let call = engine.store.settle(grant, settlement);
    let answer = within(&*engine.env.clock, engine.config.call_limit, call).await;
    engine.called(&held.subject, StoreCall::Settle, sent, answer.is_ok());
    answer.inspect_err(|error| engine.store_failed(&held.subject, StoreCall::Settle, error))
}

/// The answer, once the settlement is acknowledged and not before (P33).
pub(super) async fn respond<V>(
    held: &Held,
    grant: &Grant,
    settlement: &Settlement,
    settled: Result<Settled, StoreError>,
    value: Option<V>,
) -> Response<V> {
    let fence = grant.fence;
    let engine = &held.engine;
    match (settled, settlement, value) {
        (Ok(Settled::Done), _, value) => {
            let state = settlement.state();
            engine.emit(&held.subject, Step::Settled { state, fence });
            let ran = |value| {
                Response::Ran(Ran {
                    value,
                    fence,
                    attempt: grant.attempt,
                    state,
                })
            };
            value.map_or(Response::Problem(Problem::Panicked), ran)
        }
        (Ok(Settled::Lost), _, _) => {
            held.lose(fence);
            Box::pin(answer_of_another(held, fence)).await
        }
        // Nothing to remember, so nothing is lost but time: the lease lapses by itself.
        (Err(_), Settlement::Release, Some(value)) => {
            let state = crate::record::State::Running;
            Response::Ran(Ran {
                value,
                fence,
                attempt: grant.attempt,
                state,
            })
        }
        (Err(source), _, _) => {
            engine.emit(&held.subject, Step::Unrecorded { fence });
            Response::Problem(Problem::Unrecorded {
                fence,
                source: Some(source),
            })
        }
    }
}

/// Another took over. If it is done, its answer is everybody's answer who asked for the same: the key may have had a new
/// life since, with another payload (P7).
async fn answer_of_another<V>(held: &Held, fence: crate::record::Fence) -> Response<V> {
    let engine = &held.engine;
    let sent = engine.tick();
    let call = engine.store.read(&held.subject.identity);
    let answer = within(&*engine.env.clock, engine.config.call_limit, call).await;
    engine.called(&held.subject, StoreCall::Read, sent, answer.is_ok());
    match answer {
        Ok(Some(record)) if held.fingerprint == Some(record.fingerprint) => {
            // `read` gives live records only, so the time of reading doesn't matter here.
            if let Some(replay) = protocol::replay(&record, Timestamp::default()) {
                let state = replay.state;
                engine.emit(
                    &held.subject,
                    Step::Replayed {
                        state,
                        local: false,
                        number: None,
                    },
                );
                return Response::Replayed(Replayed {
                    replay,
                    number: None,
                });
            }
        }
        Ok(_) => {}
        Err(error) => engine.store_failed(&held.subject, StoreCall::Read, &error),
    }
    Response::Problem(Problem::LeaseLost { fence })
}
