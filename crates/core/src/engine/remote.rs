//! Leases for effects that run elsewhere: in a worker, in another language, behind an API.
//!
//! The same steps as [`Engine::execute`], cut at the effect: [`Engine::admit`] goes as far as the
//! lease, [`Engine::renew`] keeps it (the owner follows P31 itself), and [`Engine::settle`] goes on
//! from the verdict. Each may be called on another process than the one before, because all state
//! is in the record.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{self, Either};

use super::admission::Admission;
use super::apart::{self, AnswerLife};
use super::backoff::Pace;
use super::handout::{Handout, RemoteLease};
use super::lease::HeldLease;
use super::pending::PendingHandout;
use super::request::{Request, Subject};
use super::response::{Problem, Response, Verdict};
use super::run::respond;
use super::settle::{settle, settlement};
use super::waiters::Tenant;
use super::{Engine, Shared};
use crate::claim::{Grant, Renewed, Settled};
use crate::error::StoreError;
use crate::event::{BusyReason, Step};
use crate::identity::Identity;
use crate::namespace::Namespace;
use crate::policy::Policy;
use crate::record::{Record, State};
use crate::store::Wake;

impl Engine {
    /// Claims, waits and recovers as [`Engine::execute`] does, and hands out the lease instead of
    /// running an effect.
    ///
    /// If the returned future is dropped, a lease won under a token that only this engine knows is
    /// released: no effect can have been started under it.
    pub async fn admit(&self, request: Request) -> Admission {
        let engine = Arc::clone(&self.shared);
        let work = async move { PendingHandout::new(engine, request).await };
        match self.run_detached(Box::pin(work)).await {
            Some(pending) => pending.deliver(),
            None => Admission::Problem(Problem::ShutDown),
        }
    }

    /// Renews a lease that was handed out and, if given, keeps a checkpoint with it (P14, P15).
    /// Returns how long the owner may still start steps, counted from the moment it receives this.
    ///
    /// `may_access` decides by the key's namespace whether the caller may know of the lease at all.
    ///
    /// # Errors
    /// [`Problem::LeaseLost`] if the lease belongs to another owner by now;
    /// [`Problem::Unavailable`] if the store gave no answer: the lease may or may not be renewed
    /// then, and calling again is safe.
    pub async fn renew(
        &self,
        lease: &RemoteLease,
        checkpoint: Option<&Bytes>,
        may_access: impl FnOnce(&Namespace) -> bool,
    ) -> Result<Duration, Problem> {
        let access = |namespace: &Namespace| may_access(namespace).then_some(None);
        let (held, grant, _) = self.shared.load_lease(lease, access).await?;
        let lost = Problem::LeaseLost { fence: lease.fence };
        match held.renew(&grant, checkpoint).await {
            Ok(Renewed::Held) => Ok(held.remaining()),
            Ok(Renewed::Lost) => Err(lost),
            Err(error) => Err(problem_from(error)),
        }
    }

    /// Settles as [`Engine::execute`] would, by verdict and stored policy (P36), and answers once
    /// that is acknowledged (P33). Goes on if the returned future is dropped (P37).
    ///
    /// `access` decides by the key's namespace whether the caller may know of the lease at all:
    /// `None` if it may not. Otherwise it gives the policy, whose bounds hold if another process
    /// handed the lease out: how long the answer lives (P50), and how large its body may be (P27).
    /// An answer that lives shorter than its record then belongs to its tenant (P48).
    pub async fn settle(
        &self,
        lease: RemoteLease,
        verdict: Verdict,
        access: impl FnOnce(&Namespace) -> Option<Arc<Policy>> + Send + 'static,
    ) -> Response<()> {
        let engine = Arc::clone(&self.shared);
        let work = async move {
            let mut most_bytes = 0;
            let access = |namespace: &Namespace| {
                let policy = access(namespace)?;
                most_bytes = policy.max_answer_bytes;
                Some(AnswerLife::from_policy(&policy))
            };
            let (held, grant, handout) = match engine.load_lease(&lease, access).await {
                Ok(loaded) => loaded,
                Err(problem) => return Response::Problem(problem),
            };
            let most_bytes = handout.as_ref().map_or(most_bytes, |out| out.most_bytes);
            if let Some(handout) = handout {
                let (verdict, now) = (verdict.kind(), engine.env.clock.now());
                let took = now.since(handout.since);
                engine.emit(&held.subject, Step::EffectEnded { verdict, took });
            }
            let most = engine.most_answer_bytes(most_bytes);
            held.report_if_oversized(&verdict, most);
            let settlement = settlement(verdict, grant.crash, most);
            let settled = settle(&held, &grant, &settlement).await;
            // A lost lease stays remembered: its payload decides which answer its owner may see on
            // a retry (P7).
            if matches!(settled, Ok(Settled::Done)) {
                engine.handouts.forget(&lease);
            }
            respond(&held, &grant, &settlement, settled, Some(())).await
        };
        let answered = self.run_detached(Box::pin(work)).await;
        answered.unwrap_or(Response::Problem(Problem::ShutDown))
    }

    /// Reads the record as it is now, without changing it. `None` if it is absent or expired.
    ///
    /// # Errors
    /// [`Problem::Unavailable`] if the store gave no answer; [`Problem::Unreadable`] and
    /// [`Problem::BodyUnavailable`] if the record or the body of its answer can't be read.
    pub async fn read(&self, identity: &Identity) -> Result<Option<Record>, Problem> {
        let found = self.shared.read(identity).await.map_err(problem_from)?;
        self.joined(identity, found, false).await
    }

    /// As [`Engine::read`], for an operator: a record whose encryption key is gone comes without
    /// its content, and
    /// [`Record::locked`] says why.
    ///
    /// # Errors
    /// As [`Engine::read`].
    pub async fn inspect(&self, identity: &Identity) -> Result<Option<Record>, Problem> {
        let found = self.shared.inspect(identity).await.map_err(problem_from)?;
        self.joined(identity, found, true).await
    }

    /// The record with its answer in it, if that is kept apart (P50).
    async fn joined(
        &self,
        identity: &Identity,
        found: Option<Record>,
        is_for_operator: bool,
    ) -> Result<Option<Record>, Problem> {
        let Some(record) = found else { return Ok(None) };
        let subject = Subject::from_record(&record, *identity);
        let joined = apart::join(&self.shared, &subject, record, is_for_operator).await;
        joined.map(Some).map_err(problem_from)
    }

    /// Waits until no effect runs under the key, or for at most `wait`, and returns the record.
    /// Uses wake-ups, and counts as a waiter (P34). Claims nothing: a lapsed lease stays as it is.
    ///
    /// # Errors
    /// [`Problem::Busy`] if a bound on waiters is reached; [`Problem::Unavailable`] if the store
    /// gave no answer.
    pub async fn attach(
        &self,
        identity: &Identity,
        wait: Duration,
        most_per_key: usize,
    ) -> Result<Option<Record>, Problem> {
        let engine = &self.shared;
        let began = engine.env.clock.now();
        let mut pace = Pace::new();
        let mut permit = None;
        loop {
            // Watch before reading, so that a settlement in between isn't missed.
            let wakeup = engine.store.watch(identity);
            let found = self.read(identity).await?;
            let left = wait.saturating_sub(engine.env.clock.now().since(began));
            let record = match found {
                Some(record) if record.state == State::Running && !left.is_zero() => record,
                other => return Ok(other),
            };
            if permit.is_none() {
                let tenant = Tenant::from_namespace(&record.namespace);
                let entered = engine
                    .waiters
                    .enter(identity.address(), tenant, most_per_key);
                permit = Some(
                    entered.map_err(|why| refuse_busy(engine, &record, *identity, why, wait))?,
                );
            }
            let pause = pace.pause_after_waking().unwrap_or_default().min(left);
            if !pause.is_zero() {
                engine.env.clock.sleep(pause).await;
            }
            let left = left - pause;
            let pause = match engine.store.capabilities().wake {
                Wake::Exact => left,
                Wake::Hint | Wake::Never => left.min(pace.pause_between_looks()),
            };
            let timer = engine.env.clock.sleep(pause);
            if let Either::Left(_) = future::select(wakeup, timer).await {
                pace.woken();
            }
        }
    }
}

fn refuse_busy(
    engine: &Shared,
    record: &Record,
    identity: Identity,
    why: BusyReason,
    wait: Duration,
) -> Problem {
    let subject = Subject::from_record(record, identity);
    let (waited, limit) = (Duration::ZERO, wait);
    engine.emit(&subject, Step::Busy { why, waited, limit });
    let retry_after = Duration::from_secs(1);
    Problem::Busy { why, retry_after }
}

fn problem_from(source: StoreError) -> Problem {
    Problem::from_store_error(Some(source), Duration::from_secs(1))
}

impl Shared {
    /// Loads a lease from the cache of handouts, or from its record. Only the store decides whether
    /// it still belongs to the owner.
    async fn load_lease(
        self: &Arc<Self>,
        lease: &RemoteLease,
        access: impl FnOnce(&Namespace) -> Option<Option<AnswerLife>>,
    ) -> Result<(Arc<HeldLease>, Grant, Option<Arc<Handout>>), Problem> {
        let handout = self.handouts.get(lease);
        let (subject, payload, grant) = match &handout {
            Some(handout) => {
                let (subject, grant) = (handout.subject.clone(), handout.grant.clone());
                (subject, handout.fingerprint, grant)
            }
            None => {
                let found = self.read(&lease.identity).await.map_err(problem_from)?;
                let found = found.ok_or(Problem::LeaseLost { fence: lease.fence })?;
                // A record of another owner doesn't tell the payload of this lease.
                let is_owner = found.is_owned_by(lease.fence, lease.token);
                let payload = is_owner.then_some(found.fingerprint);
                let subject = Subject::from_record(&found, lease.identity);
                let grant = Grant {
                    fence: lease.fence,
                    token: lease.token,
                    ..Grant::from_record(lease.identity, &found)
                };
                (subject, payload, grant)
            }
        };
        let Some(life) = access(&subject.namespace) else {
            // The same answer as for a missing lease, so that the caller can't tell that it exists.
            return Err(Problem::LeaseLost { fence: lease.fence });
        };
        let life = handout.as_ref().map_or(life, |handout| handout.life);
        let (now, lease) = (self.env.clock.now(), Some(grant.clone()));
        let held = HeldLease::new(Arc::clone(self), subject, payload, lease, life, now);
        Ok((held, grant, handout))
    }
}
