//! A lease on its way to an owner elsewhere; it is released if its caller leaves before it got it.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::admission::{Admission, Won};
use super::admit::admit;
use super::apart::AnswerLife;
use super::drain::WorkGuard;
use super::effect::start_time;
use super::handout::{Handout, LeaseHandout};
use super::lease::HeldLease;
use super::observe::report_late_win;
use super::request::Request;
use super::response::Problem;
use super::settle::settle;
use crate::claim::{Grant, Renewed, Settlement};
use crate::event::Step;
use crate::policy::Mode;

/// An admission that its caller hasn't received yet. If it is dropped, the lease that it won is
/// released.
pub(super) struct PendingHandout {
    engine: Arc<Shared>,
    admission: Option<Admission>,
    held: Option<Arc<HeldLease>>,
    most_bytes: usize,
    /// False if the caller brought its own token: it may already have sent the same claim again,
    /// and run under this lease.
    may_release: bool,
}

impl PendingHandout {
    pub(super) async fn new(engine: Arc<Shared>, request: Request) -> Self {
        let (began, fingerprint) = (engine.env.clock.now(), request.fingerprint);
        let admission = admit(&engine, &request, began).await;
        engine.answered(&request.subject, fingerprint, began, admission.ending());
        let mut pending = Self {
            engine,
            admission: None,
            held: None,
            most_bytes: request.policy.max_answer_bytes,
            may_release: request.token.is_none(),
        };
        pending.admission = Some(match admission.into_won() {
            Ok(won) => pending.prepare(won, request).await,
            Err(other) => other,
        });
        pending
    }

    /// Checks that there is still time to start under the lease. Otherwise releases it.
    async fn prepare(&mut self, won: Won, request: Request) -> Admission {
        let Won {
            grant,
            sent,
            now,
            leader,
        } = won;
        // The effect runs elsewhere and may settle through another process, so other callers have
        // to ask the store.
        drop(leader);
        let has_subject = request.data_subject.is_some();
        let life = AnswerLife::from_request(&request);
        let held = HeldLease::new(
            Arc::clone(&self.engine),
            request.subject,
            Some(request.fingerprint),
            Some(grant.clone()),
            life,
            sent,
        );
        if start_time(&held, &grant, now).await.is_some() {
            // Another process may settle: the record then says whose data the run leaves (P48).
            if has_subject && let Err(problem) = self.mark(&held, &grant).await {
                return Admission::Problem(problem);
            }
            self.held = Some(held);
            let remaining = Duration::ZERO;
            return Admission::Won(LeaseHandout { grant, remaining });
        }
        if request.policy.mode == Mode::Observe {
            report_late_win(&held, &grant, self.may_release).await;
            return Admission::Unprotected;
        }
        // No effect was started here, so the lease may be released (P36).
        if self.may_release {
            let _ = settle(&held, &grant, &Settlement::Release).await;
        }
        Admission::Problem(Problem::Late)
    }

    /// Keeps the checkpoint once more, encrypted for the subject of the request.
    async fn mark(&self, held: &Arc<HeldLease>, grant: &Grant) -> Result<(), Problem> {
        let problem = match held.renew(grant, Some(&grant.checkpoint)).await {
            Ok(Renewed::Held) => return Ok(()),
            Ok(Renewed::Lost) => Problem::Late,
            Err(error) => Problem::from_store_error(Some(error), Duration::from_secs(1)),
        };
        // No effect was started here, so the lease may be released (P36).
        if self.may_release {
            let _ = settle(held, grant, &Settlement::Release).await;
        }
        Err(problem)
    }

    /// Gives the admission to the caller, and remembers the lease that it hands out.
    pub(super) fn deliver(mut self) -> Admission {
        let mut admission = self
            .admission
            .take()
            .unwrap_or(Admission::Problem(Problem::ShutDown));
        if let (Admission::Won(out), Some(held)) = (&mut admission, self.held.take()) {
            out.remaining = held.remaining();
            let fence = out.grant.fence;
            self.engine
                .emit(&held.subject, Step::EffectBegan { fence: Some(fence) });
            let handout = Handout {
                subject: held.subject.clone(),
                fingerprint: held.fingerprint,
                grant: out.grant.clone(),
                most_bytes: self.most_bytes,
                life: held.life,
                since: self.engine.env.clock.now(),
            };
            self.engine.handouts.remember(handout);
        }
        admission
    }
}

impl Drop for PendingHandout {
    fn drop(&mut self) {
        let held = self.held.take().filter(|_| self.may_release);
        let Some(held) = held else { return };
        let guard = WorkGuard::begin(&self.engine.running);
        self.engine.env.spawn.spawn(Box::pin(async move {
            if let Some(grant) = &held.grant {
                let _ = settle(&held, grant, &Settlement::Release).await;
            }
            drop(guard);
        }));
    }
}
