//! Runs a request from its lease to its answer: starts the effect, settles by its verdict, answers.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;

use super::Shared;
use super::admit::{Admission, Won, admit};
use super::backoff::Backoff;
use super::drain::EffectGuard;
use super::lease::{HeldLease, Lease};
use super::observe::run_observed;
use super::request::Request;
use super::response::{Problem, Ran, Replayed, Report, Response, Verdict};
use crate::claim::{Grant, Renewed, Settled, Settlement};
use crate::clock::{Tick, Timestamp};
use crate::error::{StoreError, StoreErrorKind};
use crate::event::{Ending, Step, StoreCall, VerdictKind};
use crate::policy::Mode;
use crate::protocol;
use crate::record::{CrashPolicy, Record};

/// Takes a request through all steps: claim → run → settle → answer.
///
/// An `async` block, because an `async fn` would hold its arguments twice.
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
        let (held, now, _effect, _running) = match admit(&engine, &request, began).await {
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
                let run = EffectGuard::begin(&engine);
                let now = engine.env.clock.now();
                let held = HeldLease::new(engine, request.subject, Some(fingerprint), None, now);
                (held, now, run, None)
            }
            Admission::Won(Won {
                grant,
                sent,
                now,
                leader,
            }) => {
                let run = EffectGuard::begin(&engine);
                let (subject, fingerprint) = (request.subject, Some(fingerprint));
                let held = HeldLease::new(engine, subject, fingerprint, Some(grant), sent);
                let running = leader.map(|leader| leader.start_running(&held, now));
                (held, now, run, running)
            }
        };
        let most = request.policy.max_answer_bytes;
        let response = match (&held.grant, request.policy.mode) {
            (None, _) => run_unprotected(&held, now, effect).await,
            // Boxed because it is rare: this keeps the future of most requests small.
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
    held: &Arc<HeldLease>,
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
    held: &Arc<HeldLease>,
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
        let Some(now) = start_time(held, grant, now).await else {
            // No effect was started, so the lease may always be released (P36).
            let _ = Box::pin(settle(held, grant, &Settlement::Release)).await;
            return Response::Problem(Problem::Late);
        };
        // Not before this point: while an earlier renewal is unanswered, the effect would see its lease as lost.
        let renewing = held.engine.renewals.keep(held, grant.lease, now);
        let report = run_effect(held, now, effect).await;
        drop(renewing);
        let (value, settlement) = split_report(held, grant, report, max_answer_bytes);
        let settled = settle(held, grant, &settlement).await;
        respond(held, grant, &settlement, settled, value).await
    }
}

/// The time at which the effect may start, given that the claim was answered `now`. `None` if it is too late (P30).
pub(super) async fn start_time(held: &HeldLease, grant: &Grant, now: Tick) -> Option<Tick> {
    match now < held.deadline() {
        true => Some(now),
        // Boxed because it is rare: this keeps the future of most requests small.
        false => Box::pin(renew_in_time(held, grant)).await,
    }
}

/// The claim was answered too late to start under it. The lease may still be ours, so it is renewed once. Returns the
/// new start time if that is answered in time.
async fn renew_in_time(held: &HeldLease, grant: &Grant) -> Option<Tick> {
    let renewed = held.renew(grant, None).await;
    let now = held.engine.env.clock.now();
    (matches!(renewed, Ok(Renewed::Held)) && now < held.deadline()).then_some(now)
}

/// Runs the effect. `None` if it panicked.
pub(super) async fn run_effect<V, F, Fut>(
    held: &Arc<HeldLease>,
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
    // The closure is called inside the guarded future, because it may panic as well.
    let guarded = AssertUnwindSafe(async move { effect(lease).await }).catch_unwind();
    let report = guarded.await.ok();
    let verdict = report
        .as_ref()
        .map_or(VerdictKind::Panic, |report| report.verdict.kind());
    let took = engine.env.clock.now().since(began);
    engine.emit(&held.subject, Step::EffectEnded { verdict, took });
    report
}

/// Splits a report into the effect's value, `None` if it panicked, and the settlement to write.
pub(super) fn split_report<V>(
    held: &HeldLease,
    grant: &Grant,
    report: Option<Report<V>>,
    max_answer_bytes: usize,
) -> (Option<V>, Settlement) {
    let (value, verdict) = match report {
        Some(Report { value, verdict }) => (Some(value), verdict),
        None => (None, Verdict::Retry),
    };
    let most = held.engine.most_answer_bytes(max_answer_bytes);
    held.report_if_oversized(&verdict, most);
    (value, settlement(verdict, grant.crash, most))
}

/// The settlement to write, by verdict and stored policy (P36).
pub(super) fn settlement(verdict: Verdict, crash: CrashPolicy, most: usize) -> Settlement {
    match (verdict, crash) {
        (Verdict::Complete(answer), _) => Settlement::Complete(answer.capped(most).into()),
        (Verdict::Fail(answer), _) => Settlement::Fail(answer.capped(most).into()),
        (Verdict::NoEffect, _) | (Verdict::Retry, CrashPolicy::Takeover) => Settlement::Release,
        (Verdict::Unknown, _) | (Verdict::Retry, CrashPolicy::Hold) => Settlement::Doubt,
    }
}

/// Sends the settlement until it is answered, for at most the span of one lease. Sending it again is safe (P18), and
/// giving up would leave an effect without a record.
pub(super) async fn settle(
    held: &HeldLease,
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
        if !is_retryable_settle(held, &error) || now >= give_up {
            return Err(error);
        }
        clock.sleep(backoff.next_pause()).await;
    }
}

/// Whether a settlement that failed with `error` is sent again. Unlike a claim, it is also retried if the store is full,
/// because the effect already ran. A settlement that commits the effect itself leaves no effect behind when it is
/// rejected, so only transient errors and a full store are retried.
pub(super) fn is_retryable_settle(held: &HeldLease, error: &StoreError) -> bool {
    match held.engine.commits {
        true => error.is_transient() || error.kind == StoreErrorKind::Full,
        false => error.kind.is_retried_for_settle(),
    }
}

/// Sends the settlement once.
pub(super) async fn settle_once(
    held: &HeldLease,
    grant: &Grant,
    settlement: &Settlement,
) -> Result<Settled, StoreError> {
    let engine = &held.engine;
    held.end();
    let call = engine.store.settle(grant, settlement);
    engine.call(&held.subject, StoreCall::Settle, call).await
}

/// Answers the caller, after the settlement is acknowledged (P33).
pub(super) async fn respond<V>(
    held: &HeldLease,
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
            Box::pin(replay_of_new_owner(held, fence)).await
        }
        // A release keeps nothing, so only time is lost: the lease lapses on its own.
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

/// Another owner took over. If it is done, its answer is replayed to the same payload. The key may have been used anew
/// with another payload since (P7).
async fn replay_of_new_owner<V>(held: &HeldLease, fence: crate::record::Fence) -> Response<V> {
    let engine = &held.engine;
    let call = engine.store.read(&held.subject.identity);
    let found = engine.call(&held.subject, StoreCall::Read, call).await;
    let same_payload = |record: &Record| held.fingerprint == Some(record.fingerprint);
    let record = found.ok().flatten().filter(same_payload);
    // `read` returns live records only, so the time of reading doesn't matter here.
    let replay = record.and_then(|record| protocol::replay(&record, Timestamp::default()));
    let Some(replay) = replay else {
        return Response::Problem(Problem::LeaseLost { fence });
    };
    let (state, number) = (replay.state, None);
    engine.emit(
        &held.subject,
        Step::Replayed {
            state,
            local: false,
            number,
        },
    );
    Response::Replayed(Replayed { replay, number })
}
