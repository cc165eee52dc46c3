//! Observe mode (shadow mode): the effect runs and its caller gets its value, independent of lease
//! and record (P39).

use std::future::Future;
use std::sync::Arc;

use super::drain::WorkGuard;
use super::effect::{run_effect, run_unprotected, split_report, start_time};
use super::lease::{HeldLease, Lease};
use super::renew;
use super::response::{Problem, Ran, Report, Response};
use super::settle::{is_retryable_settle, settle, settle_once};
use crate::claim::{Grant, Settled, Settlement};
use crate::clock::Tick;
use crate::error::StoreError;
use crate::event::{ShadowDecision, Step};

/// Runs the effect under its lease, or without one if that came too late. A value that isn't
/// recorded at the end is reported as unprotected.
pub(super) async fn run_observed<V, F, Fut>(
    held: &Arc<HeldLease>,
    grant: &Grant,
    now: Tick,
    max_answer_bytes: usize,
    effect: F,
) -> Response<V>
where
    F: FnOnce(Lease) -> Fut,
    Fut: Future<Output = Report<V>>,
{
    let Some(now) = start_time(held, grant, now).await else {
        report_late_win(held, grant, true).await;
        let engine = Arc::clone(&held.engine);
        let now = engine.env.clock.now();
        let (subject, fingerprint) = (held.subject.clone(), held.fingerprint);
        let without = HeldLease::new(engine, subject, fingerprint, None, None, now);
        return run_unprotected(&without, now, effect).await;
    };
    let renewing = renew::keep(held, grant.lease, now);
    let report = run_effect(held, now, effect).await;
    drop(renewing);
    let (value, settlement) = split_report(held, grant, report, max_answer_bytes);
    let (state, answer_bytes) = (settlement.state(), settlement.answer_bytes());
    let is_recorded = settle_without_waiting(held, grant, settlement).await;
    match (value, is_recorded) {
        (None, _) => Response::Problem(Problem::Panicked),
        (Some(value), false) => Response::Unprotected(value),
        (Some(value), true) => Response::Ran(Ran {
            value,
            fence: grant.fence,
            attempt: grant.attempt,
            state,
            answer_bytes,
        }),
    }
}

/// Reports that enforce mode would have started nothing because the lease came too late (P30).
/// Releases the lease if no other caller can have started under it (P36).
pub(super) async fn report_late_win(held: &Arc<HeldLease>, grant: &Grant, may_release: bool) {
    let decision = ShadowDecision::Unavailable;
    held.engine.emit(&held.subject, Step::Observed { decision });
    if may_release {
        settle_without_waiting(held, grant, Settlement::Release).await;
    }
}

/// Sends the settlement once. If the store gives no answer, a background task sends it again, so
/// that the caller doesn't wait for a store that is down. Returns whether it is recorded by now.
async fn settle_without_waiting(
    held: &Arc<HeldLease>,
    grant: &Grant,
    settlement: Settlement,
) -> bool {
    let settled = settle_once(held, grant, &settlement).await;
    if !settled
        .as_ref()
        .is_err_and(|error| is_retryable_settle(held, error))
    {
        return report_settlement(held, grant, &settlement, &settled);
    }
    let (lease, guard) = (Arc::clone(held), WorkGuard::begin(&held.engine.running));
    held.engine.env.spawn.spawn(Box::pin(async move {
        if let Some(grant) = &lease.grant {
            let settled = settle(&lease, grant, &settlement).await;
            report_settlement(&lease, grant, &settlement, &settled);
        }
        drop(guard);
    }));
    false
}

/// Reports the result of the settlement. Returns whether it is recorded.
fn report_settlement(
    held: &HeldLease,
    grant: &Grant,
    settlement: &Settlement,
    settled: &Result<Settled, StoreError>,
) -> bool {
    let fence = grant.fence;
    match (settled, settlement) {
        (Ok(Settled::Done), _) => {
            let step = Step::Settled {
                state: settlement.state(),
                fence,
                bytes: settlement.answer_bytes(),
            };
            held.engine.emit(&held.subject, step);
            return true;
        }
        (Ok(Settled::Lost), _) => held.lose(fence),
        // A release keeps nothing, so only time is lost: the lease lapses on its own.
        (Err(_), Settlement::Release) => {}
        (Err(_), _) => held.engine.emit(&held.subject, Step::Unrecorded { fence }),
    }
    false
}
