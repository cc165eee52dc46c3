//! Runs a request from its lease to its answer: starts the effect, settles by its verdict, answers.

use std::future::Future;
use std::sync::Arc;

use super::Shared;
use super::admission::{Admission, Won};
use super::admit::admit;
use super::apart::{self, AnswerLife, FoundAnswer};
use super::drain::EffectGuard;
use super::effect::{run_effect, run_unprotected, split_report, start_time};
use super::lease::{HeldLease, Lease};
use super::observe::run_observed;
use super::renew;
use super::request::Request;
use super::response::{Problem, Ran, Replayed, Report, Response};
use super::settle::settle;
use super::store_call::decrypted;
use crate::claim::{Grant, Settled, Settlement};
use crate::clock::{Tick, Timestamp};
use crate::error::StoreError;
use crate::event::{Ending, Step, StoreCall};
use crate::policy::Mode;
use crate::protocol;
use crate::record::Record;

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
                let how = replayed.ending();
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
                let subject = request.subject;
                let held = HeldLease::new(engine, subject, Some(fingerprint), None, None, now);
                (held, now, run, None)
            }
            Admission::Won(Won {
                grant,
                sent,
                now,
                leader,
            }) => {
                let run = EffectGuard::begin(&engine);
                let life = AnswerLife::from_request(&request);
                let (subject, fingerprint) = (request.subject, Some(fingerprint));
                let held = HeldLease::new(engine, subject, fingerprint, Some(grant), life, sent);
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
        // Not before this point: while an earlier renewal is unanswered, the effect would see its
        // lease as lost.
        let renewing = renew::keep(held, grant.lease, now);
        let report = run_effect(held, now, effect).await;
        drop(renewing);
        let (value, settlement) = split_report(held, grant, report, max_answer_bytes);
        let settled = settle(held, grant, &settlement).await;
        respond(held, grant, &settlement, settled, value).await
    }
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
            let (state, bytes) = (settlement.state(), settlement.answer_bytes());
            let step = Step::Settled {
                state,
                fence,
                bytes,
            };
            engine.emit(&held.subject, step);
            let ran = |value| {
                Response::Ran(Ran {
                    value,
                    fence,
                    attempt: grant.attempt,
                    state,
                    answer_bytes: bytes,
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
                answer_bytes: 0,
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

/// Another owner took over. If it is done, its answer is replayed to the same payload. The key may
/// have been used anew with another payload since (P7).
async fn replay_of_new_owner<V>(held: &HeldLease, fence: crate::record::Fence) -> Response<V> {
    let engine = &held.engine;
    let call = engine.store.read(&held.subject.identity);
    let found = engine.call(&held.subject, StoreCall::Read, call).await;
    let same_payload = |record: &Record| held.fingerprint == Some(record.fingerprint);
    let found = found.and_then(decrypted);
    let record = found.ok().flatten().filter(same_payload);
    // `read` returns live records only, so the time of reading doesn't matter here.
    let replay = record.and_then(|record| protocol::replay(&record, Timestamp::default()));
    let lost = Problem::LeaseLost { fence };
    let Some(mut replay) = replay else {
        return Response::Problem(lost);
    };
    match apart::find(engine, &held.subject, &replay.answer).await {
        Ok(FoundAnswer::Kept(answer)) => replay.answer = answer,
        Ok(FoundAnswer::Gone) => return Response::Problem(Problem::AnswerExpired),
        Err(_) => return Response::Problem(lost),
    }
    let (state, number) = (replay.state, None);
    engine.emit(
        &held.subject,
        Step::Replayed {
            state,
            local: false,
            number,
            requested_at: replay.requested_at,
        },
    );
    Response::Replayed(Replayed { replay, number })
}
