//! The effect itself: when it may start, its guarded run, and what its report means for the record.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;

use super::lease::{HeldLease, Lease};
use super::response::{Problem, Report, Response, Verdict};
use super::settle::settlement;
use crate::claim::{Grant, Renewed, Settlement};
use crate::clock::Tick;
use crate::event::{Step, VerdictKind};

/// The time at which the effect may start, given that the claim was answered `now`. `None` if it is
/// too late (P30).
pub(super) async fn start_time(held: &HeldLease, grant: &Grant, now: Tick) -> Option<Tick> {
    match now < held.deadline() {
        true => Some(now),
        // Boxed because it is rare: this keeps the future of most requests small.
        false => Box::pin(renew_in_time(held, grant)).await,
    }
}

/// The claim was answered too late to start under it. The lease may still be ours, so it is renewed
/// once. Returns the new start time if that is answered in time.
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
    if engine.observed {
        let verdict = report
            .as_ref()
            .map_or(VerdictKind::Panic, |report| report.verdict.kind());
        let took = engine.env.clock.now().since(began);
        engine.emit(&held.subject, Step::EffectEnded { verdict, took });
    }
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
