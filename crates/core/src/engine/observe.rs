//! A win under `observe`: the effect runs and its caller gets its value, whatever becomes of lease and record (P39).

use std::future::Future;
use std::sync::Arc;

use super::answer::{Problem, Ran, Report, Response};
use super::lease::{Held, Lease};
use super::run::{
    is_sent_again, may_start, outcome, run_effect, run_unprotected, settle, settle_once,
};
use super::running::UnderWay;
use crate::claim::{Grant, Settled, Settlement};
use crate::clock::Tick;
use crate::error::StoreError;
use crate::event::{Step, Would};

/// Runs the effect: under its lease, or without one where that came too late. A value that is not recorded by now is
/// given as what it is, unprotected.
pub(super) async fn run_observed<V, F, Fut>(
    held: &Arc<Held>,
    grant: &Grant,
    now: Tick,
    max_answer_bytes: usize,
    effect: F,
) -> Response<V>
where
    F: FnOnce(Lease) -> Fut,
    Fut: Future<Output = Report<V>>,
{
    let Some(now) = may_start(held, grant, now).await else {
        too_late(held, grant, true).await;
        let engine = Arc::clone(&held.engine);
        let now = engine.env.clock.now();
        let (subject, fingerprint) = (held.subject.clone(), held.fingerprint);
        let without = Held::new(engine, subject, fingerprint, None, now);
        return run_unprotected(&without, now, effect).await;
    };
    let renewing = held.engine.renewals.keep(held, grant.lease, now);
    let report = run_effect(held, now, effect).await;
    drop(renewing);
    let (value, settlement) = outcome(held, grant, report, max_answer_bytes);
    let state = settlement.state();
    let is_recorded = settle_without_waiting(held, grant, settlement).await;
    match (value, is_recorded) {
        (None, _) => Response::Problem(Problem::Panicked),
        (Some(value), false) => Response::Unprotected(value),
        (Some(value), true) => Response::Ran(Ran {
            value,
            fence: grant.fence,
            attempt: grant.attempt,
            state,
        }),
    }
}

/// Enforcing would have started nothing, as the lease came too late (P30): tells so, and lets go of the lease where
/// nobody else can have started under it (P36).
pub(super) async fn too_late(held: &Arc<Held>, grant: &Grant, may_let_go: bool) {
    let would = Would::Unavailable;
    held.engine.emit(&held.subject, Step::Observed { would });
    if may_let_go {
        settle_without_waiting(held, grant, Settlement::Release).await;
    }
}

/// Sends the settlement once; where the store gives no answer, it is sent again beside the caller, who doesn't wait
/// for a store that is away. → whether it is recorded by now.
async fn settle_without_waiting(held: &Arc<Held>, grant: &Grant, settlement: Settlement) -> bool {
    let settled = settle_once(held, grant, &settlement).await;
    if !settled
        .as_ref()
        .is_err_and(|error| is_sent_again(held, error))
    {
        return tell(held, grant, &settlement, &settled);
    }
    let (beside, under_way) = (Arc::clone(held), UnderWay::begin(&held.engine.running));
    held.engine.env.spawn.spawn(Box::pin(async move {
        if let Some(grant) = &beside.grant {
            let settled = settle(&beside, grant, &settlement).await;
            tell(&beside, grant, &settlement, &settled);
        }
        drop(under_way);
    }));
    false
}

/// Tells what became of the settlement. → whether it is recorded.
fn tell(
    held: &Held,
    grant: &Grant,
    settlement: &Settlement,
    settled: &Result<Settled, StoreError>,
) -> bool {
    let (fence, state) = (grant.fence, settlement.state());
    match (settled, settlement) {
        (Ok(Settled::Done), _) => {
            held.engine
                .emit(&held.subject, Step::Settled { state, fence });
            return true;
        }
        (Ok(Settled::Lost), _) => held.lose(fence),
        // Nothing to remember, so nothing is lost but time: the lease lapses by itself.
        (Err(_), Settlement::Release) => {}
        (Err(_), _) => held.engine.emit(&held.subject, Step::Unrecorded { fence }),
    }
    false
}
