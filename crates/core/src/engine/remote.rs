//! An effect that runs elsewhere: in a worker, in another language, behind an API.
//!
//! The same road as [`Engine::execute`], cut at the effect: [`Engine::admit`] goes as far as the lease,
//! [`Engine::renew`] keeps it (the owner does P31 itself), [`Engine::settle`] goes on from the verdict. Each may be
//! called on another process than the one before: all that counts is in the record. What a process remembers
//! of the leases it handed out only saves it a look.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{self, Either};
use quick_cache::sync::Cache;

use super::admit::{Admission, Won, admit};
use super::answer::{Problem, Replayed, Response, Verdict};
use super::lease::Held;
use super::limit::Pace;
use super::observe::too_late;
use super::request::{Request, Subject};
use super::run::{may_start, respond, settle, settlement};
use super::running::UnderWay;
use super::waiters::Tenant;
use super::{Engine, Shared};
use crate::claim::{Grant, Renewed, Settled, Settlement};
use crate::clock::Tick;
use crate::error::StoreError;
use crate::event::{BusyReason, Ending, Step};
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::namespace::Namespace;
use crate::policy::Mode;
use crate::record::{Fence, Record, State, Token};
use crate::store::{Wake, within};

/// How many leases a process remembers that it handed out.
const REMEMBERED: usize = 16 * 1024;

/// What became of a request whose effect would run elsewhere.
#[derive(Debug)]
pub enum Admitted {
    /// Run it, under this lease.
    Won(HandedOut),
    /// Run it without a lease, and settle nothing: mode `off` or `observe`, or fail-open.
    Unprotected,
    /// The answer of an earlier run.
    Replayed(Replayed),
    /// There is no answer to give.
    Problem(Problem),
}

/// A lease on its way to an owner elsewhere.
#[derive(Debug)]
pub struct HandedOut {
    /// The lease itself.
    pub grant: Grant,
    /// How long the owner may still start things, counted from the moment this was given (P30).
    pub remaining: Duration,
}

/// A lease as an owner elsewhere names it.
#[derive(Clone, Copy, Debug)]
pub struct RemoteLease {
    /// Whose record.
    pub identity: Identity,
    /// Of the lease.
    pub fence: Fence,
    /// The mark of the owner.
    pub token: Token,
}

/// The leases that this process handed out: to know, without a look, what the record says of them.
pub(super) struct Memory(Cache<(Identity, Fence), Arc<Remembered>>);

struct Remembered {
    subject: Subject,
    fingerprint: Option<Fingerprint>,
    grant: Grant,
    most_bytes: usize,
    since: Tick,
}

impl Default for Memory {
    fn default() -> Self {
        Self(Cache::new(REMEMBERED))
    }
}

impl Memory {
    fn get(&self, lease: &RemoteLease) -> Option<Arc<Remembered>> {
        let found = self.0.get(&(lease.identity, lease.fence))?;
        (found.grant.token == lease.token).then_some(found)
    }

    fn forget(&self, lease: &RemoteLease) {
        self.0.remove(&(lease.identity, lease.fence));
    }
}

impl Engine {
    /// As far as the lease: claims, waits and recovers as [`Engine::execute`] does, and hands the lease out.
    ///
    /// Where the returned future is dropped before that, a lease won under a token that only this engine
    /// knows is let go again: nobody could have started anything under it.
    pub async fn admit(&self, request: Request) -> Admitted {
        let engine = Arc::clone(&self.shared);
        let work = async move { Undelivered::new(engine, request).await };
        match self.see_through(Box::pin(work)).await {
            Some(undelivered) => undelivered.deliver(),
            None => Admitted::Problem(Problem::ShutDown),
        }
    }

    /// Keeps a lease that was handed out and, if given, a checkpoint with it (P14, P15). Answers how long the
    /// owner may still start things, counted from the moment this is given.
    ///
    /// `may` looks at where the key lives, and says whether the caller may know of it at all.
    ///
    /// # Errors
    /// [`Problem::LeaseLost`] where it isn't the owner's any more; [`Problem::Unavailable`] where the store
    /// gave no answer: then the lease may or may not be renewed, and asking again is safe.
    pub async fn renew(
        &self,
        lease: &RemoteLease,
        checkpoint: Option<&Bytes>,
        may: impl FnOnce(&Namespace) -> bool,
    ) -> Result<Duration, Problem> {
        let (held, grant, _) = self.shared.take_up(lease, may).await?;
        let lost = Problem::LeaseLost { fence: lease.fence };
        match held.renew(&grant, checkpoint).await {
            Ok(Renewed::Held) => Ok(held.remaining()),
            Ok(Renewed::Lost) => Err(lost),
            Err(error) => Err(no_answer(error)),
        }
    }

    /// From the verdict on: settles as [`Engine::execute`] would, by verdict and stored policy (P36), and answers
    /// once that is acknowledged (P33). Goes on if the returned future is dropped (P37).
    ///
    /// `may` is as with [`Engine::renew`]. An answer body of more than `most_bytes` is left out (P27).
    pub async fn settle(
        &self,
        lease: RemoteLease,
        verdict: Verdict,
        most_bytes: usize,
        may: impl FnOnce(&Namespace) -> bool + Send + 'static,
    ) -> Response<()> {
        let engine = Arc::clone(&self.shared);
        let work = async move {
            let (held, grant, known) = match engine.take_up(&lease, may).await {
                Ok(taken) => taken,
                Err(problem) => return Response::Problem(problem),
            };
            let most_bytes = known.as_ref().map_or(most_bytes, |known| known.most_bytes);
            if let Some(known) = known {
                let (verdict, now) = (verdict.kind(), engine.env.clock.now());
                let took = now.since(known.since);
                engine.emit(&held.subject, Step::EffectEnded { verdict, took });
            }
            let most = engine.most_answer_bytes(most_bytes);
            held.tell_if_oversized(&verdict, most);
            let settlement = settlement(verdict, grant.crash, most);
            let settled = settle(&held, &grant, &settlement).await;
            // What a lost lease was for decides whose answer its owner may see, should it ask again (P7).
            if matches!(settled, Ok(Settled::Done)) {
                engine.handed_out.forget(&lease);
            }
            respond(&held, &grant, &settlement, settled, Some(())).await
        };
        let answered = self.see_through(Box::pin(work)).await;
        answered.unwrap_or(Response::Problem(Problem::ShutDown))
    }

    /// The record as it is now, `None` where absent or expired. Changes nothing.
    ///
    /// # Errors
    /// [`Problem::Unavailable`] where the store gave no answer; [`Problem::Unreadable`] and [`Problem::BodyAway`] where the record,
    /// or its answer's body, can't be read.
    pub async fn look(&self, identity: &Identity) -> Result<Option<Record>, Problem> {
        self.shared.look(identity).await.map_err(no_answer)
    }

    /// The record once nobody runs it any more, or as it is after `wait`: by wake-up, within the bounds of all
    /// waiting (P34). Claims nothing: a lapsed lease stays as it is.
    ///
    /// # Errors
    /// [`Problem::Busy`] where as many as may wait already do; [`Problem::Unavailable`] where the store gave no
    /// answer.
    pub async fn attach(
        &self,
        identity: &Identity,
        wait: Duration,
        most_per_key: usize,
    ) -> Result<Option<Record>, Problem> {
        let engine = &self.shared;
        let began = engine.env.clock.now();
        let mut pace = Pace::new();
        let mut place = None;
        loop {
            // Watch, then look: what is settled in between is not missed.
            let wakeup = engine.store.watch(identity);
            let found = self.look(identity).await?;
            let left = wait.saturating_sub(engine.env.clock.now().since(began));
            let record = match found {
                Some(record) if record.state == State::Running && !left.is_zero() => record,
                other => return Ok(other),
            };
            if place.is_none() {
                let tenant = Tenant::of(&record.namespace);
                let entered = engine
                    .waiters
                    .enter(identity.address(), tenant, most_per_key);
                place = Some(entered.map_err(|why| too_many(engine, &record, *identity, why))?);
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

fn too_many(engine: &Shared, record: &Record, identity: Identity, why: BusyReason) -> Problem {
    engine.emit(&Subject::of(record, identity), Step::Busy { why });
    let retry_after = Duration::from_secs(1);
    Problem::Busy { why, retry_after }
}

fn no_answer(source: StoreError) -> Problem {
    Problem::of_store(Some(source), Duration::from_secs(1))
}

impl Subject {
    /// As the record tells.
    pub(super) fn of(record: &Record, identity: Identity) -> Self {
        Self {
            namespace: record.namespace.clone(),
            hint: record.hint,
            identity,
            actor: None,
        }
    }
}

impl Shared {
    pub(super) async fn look(&self, identity: &Identity) -> Result<Option<Record>, StoreError> {
        let call = self.store.read(identity);
        within(&*self.env.clock, self.config.call_limit, call).await
    }

    /// The lease as it was handed out, or as its record tells. Whether it still is the owner's, only the store
    /// decides.
    async fn take_up(
        self: &Arc<Self>,
        lease: &RemoteLease,
        may: impl FnOnce(&Namespace) -> bool,
    ) -> Result<(Arc<Held>, Grant, Option<Arc<Remembered>>), Problem> {
        let known = self.handed_out.get(lease);
        let (subject, payload, grant) = match &known {
            Some(known) => {
                let (subject, grant) = (known.subject.clone(), known.grant.clone());
                (subject, known.fingerprint, grant)
            }
            None => {
                let found = self.look(&lease.identity).await.map_err(no_answer)?;
                let found = found.ok_or(Problem::LeaseLost { fence: lease.fence })?;
                // Another's record says nothing about what this lease was for.
                let is_its = found.is_owned_by(lease.fence, lease.token);
                let payload = is_its.then_some(found.fingerprint);
                let subject = Subject::of(&found, lease.identity);
                (subject, payload, as_told(&found, lease))
            }
        };
        if !may(&subject.namespace) {
            // As if there were none: that there is one is nobody else's business.
            return Err(Problem::LeaseLost { fence: lease.fence });
        }
        let now = self.env.clock.now();
        let held = Held::new(Arc::clone(self), subject, payload, Some(grant.clone()), now);
        Ok((held, grant, known))
    }
}

pub(super) fn as_told(record: &Record, lease: &RemoteLease) -> Grant {
    Grant {
        identity: lease.identity,
        fence: lease.fence,
        token: lease.token,
        attempt: record.attempt,
        checkpoint: Bytes::new(),
        lease: record.lease,
        crash: record.crash,
        memo: Bytes::new(),
    }
}

/// An admission that its caller doesn't have yet. Dropped, it lets go of what it won.
struct Undelivered {
    engine: Arc<Shared>,
    admitted: Option<Admitted>,
    held: Option<Arc<Held>>,
    most_bytes: usize,
    // A caller with a token of its own may already have asked again, elsewhere too, and run under the very same lease.
    may_let_go: bool,
}

impl Undelivered {
    async fn new(engine: Arc<Shared>, request: Request) -> Self {
        let mut held = None;
        let most_bytes = request.policy.max_answer_bytes;
        let may_let_go = request.token.is_none();
        let (began, fingerprint) = (engine.env.clock.now(), request.fingerprint);
        let admission = admit(&engine, &request, began).await;
        let how = match &admission {
            Admission::Won(_) => Ending::HandedOut,
            Admission::Unprotected => Ending::Unprotected,
            Admission::Replayed(replayed) => Ending::Replayed(replayed.number),
            Admission::Problem(problem) => Ending::Problem(problem.code()),
        };
        engine.answered(&request.subject, fingerprint, began, how);
        let admitted = match admission {
            Admission::Replayed(replayed) => Admitted::Replayed(replayed),
            Admission::Problem(problem) => Admitted::Problem(problem),
            Admission::Unprotected => Admitted::Unprotected,
            Admission::Won(Won {
                grant,
                sent,
                now,
                turn,
            }) => {
                // Somebody else's effect: when it ends is not known here, so others ask the store.
                drop(turn);
                let (shared, subject) = (Arc::clone(&engine), request.subject);
                let won = Held::new(
                    shared,
                    subject,
                    Some(fingerprint),
                    Some(grant.clone()),
                    sent,
                );
                if may_start(&won, &grant, now).await.is_some() {
                    held = Some(won);
                    let remaining = Duration::ZERO;
                    Admitted::Won(HandedOut { grant, remaining })
                } else if request.policy.mode == Mode::Observe {
                    too_late(&won, &grant, may_let_go).await;
                    Admitted::Unprotected
                } else {
                    // Nothing was started here (P36).
                    if may_let_go {
                        let _ = settle(&won, &grant, &Settlement::Release).await;
                    }
                    Admitted::Problem(Problem::Late)
                }
            }
        };
        Self {
            engine,
            admitted: Some(admitted),
            held,
            most_bytes,
            may_let_go,
        }
    }

    fn deliver(mut self) -> Admitted {
        let mut admitted = self
            .admitted
            .take()
            .unwrap_or(Admitted::Problem(Problem::ShutDown));
        if let (Admitted::Won(out), Some(held)) = (&mut admitted, self.held.take()) {
            out.remaining = held.remaining();
            let fence = out.grant.fence;
            self.engine
                .emit(&held.subject, Step::EffectBegan { fence: Some(fence) });
            let remembered = Remembered {
                subject: held.subject.clone(),
                fingerprint: held.fingerprint,
                grant: out.grant.clone(),
                most_bytes: self.most_bytes,
                since: self.engine.env.clock.now(),
            };
            let key = (out.grant.identity, fence);
            self.engine.handed_out.0.insert(key, Arc::new(remembered));
        }
        admitted
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        let held = self.held.take().filter(|_| self.may_let_go);
        let Some(held) = held else { return };
        let under_way = UnderWay::begin(&self.engine.running);
        self.engine.env.spawn.spawn(Box::pin(async move {
            if let Some(grant) = &held.grant {
                let _ = settle(&held, grant, &Settlement::Release).await;
            }
            drop(under_way);
        }));
    }
}
