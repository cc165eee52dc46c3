//! The engine: claim → run → settle → answer. The only control flow there is.
//!
//! A door (the HTTP layer, the sidecar, a tool gateway, a job queue) reads key and fingerprint,
//! hands the engine a
//! [`Request`] and an effect, and writes the [`Response`]. All decisions are made here.
//!
//! | file | step |
//! |---|---|
//! | `request` | what a door hands over |
//! | `admit`, `claimant` | claims, waits for another's run, asks the recover hook |
//! | `admission` | what comes of that: a lease, an answer, or a problem |
//! | `claim`, `coalesce` | single-flight: one claim at a time for a key, its answer shared with all callers |
//! | `wait` | waits for another's claim or run |
//! | `orphan` | releases what a claim without an answer may have won |
//! | `run` | from the lease to the answer |
//! | `effect` | when the effect may start, its guarded run |
//! | `settle` | the settlement that a verdict asks for, sent until it is answered |
//! | `observe` | the same in observe mode, if the store decides nothing |
//! | `lease`, `renew`, `lease_table` | the lease as the effect sees it, and its automatic renewal |
//! | `apart` | answers that live shorter than their records |
//! | `remote`, `handout`, `pending` | the same steps for an effect that runs elsewhere, one call each |
//! | `operate` | what an operator does to a record |
//! | `response` | what comes out |
//! | `store_call` | one timed and reported store call |
//! | `breaker`, `waiters`, `cache`, `backoff` | circuit breaker, bounds on waiters, local replays, pauses |
//! | `drain` | counts running work, so that a process can shut down gracefully |

mod admission;
mod admit;
mod apart;
mod backoff;
mod breaker;
mod cache;
mod claim;
mod claimant;
mod coalesce;
mod drain;
mod effect;
mod handout;
mod lease;
mod lease_table;
mod observe;
mod operate;
mod orphan;
mod pending;
mod remote;
mod renew;
mod request;
mod response;
mod run;
mod settle;
mod store_call;
mod wait;
mod waiters;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_channel::oneshot;

pub use admission::Admission;
pub use apart::ANSWER_SCOPE;
pub use breaker::BreakerConfig;
pub use cache::CacheConfig;
pub use handout::{LeaseHandout, RemoteLease};
pub use lease::{Lease, LeaseLost};
pub use operate::{OperatorOutcome, Unlock};
pub use request::{Doubt, Recover, Request};
pub use response::{Problem, Ran, Replayed, Report, Response, Verdict};

use crate::clock::Tick;
use crate::env::Env;
use crate::event::{BreakerState, Ending, Event, NoopObserver, Observer, Step};
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::key::KeyHint;
use crate::namespace::Namespace;
use crate::record::Answer;
use crate::secret::Secret;
use crate::store::Store;

use breaker::Breaker;
use cache::ReplayCache;
use coalesce::ClaimCoalescer;
use drain::{RunningWork, WorkGuard};
use handout::HandoutCache;
use renew::Renewals;
use request::Subject;
use waiters::Waiters;

/// Settings of the whole process, as opposed to those of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineConfig {
    /// The most callers of this process that may wait at a time, over all keys. 1,024.
    pub max_waiters: usize,
    /// The most waiting callers of one tenant, if tenants are used. 512.
    pub max_waiters_per_tenant: usize,
    /// How long to wait for one store call. 5 s.
    pub call_limit: Duration,
    /// The circuit breaker: when to stop calling a store that is down.
    pub breaker: BreakerConfig,
    /// The local cache of replays.
    pub cache: CacheConfig,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            max_waiters: 1024,
            max_waiters_per_tenant: 512,
            call_limit: Duration::from_secs(5),
            breaker: BreakerConfig::default(),
            cache: CacheConfig::default(),
        }
    }
}

impl EngineConfig {
    /// Sets [`max_waiters`](Self::max_waiters).
    #[must_use]
    pub const fn with_max_waiters(mut self, max_waiters: usize) -> Self {
        self.max_waiters = max_waiters;
        self
    }

    /// Sets [`max_waiters_per_tenant`](Self::max_waiters_per_tenant).
    #[must_use]
    pub const fn with_max_waiters_per_tenant(mut self, max_waiters_per_tenant: usize) -> Self {
        self.max_waiters_per_tenant = max_waiters_per_tenant;
        self
    }

    /// Sets [`call_limit`](Self::call_limit).
    #[must_use]
    pub const fn with_call_limit(mut self, call_limit: Duration) -> Self {
        self.call_limit = call_limit;
        self
    }

    /// Sets [`breaker`](Self::breaker).
    #[must_use]
    pub const fn with_breaker(mut self, breaker: BreakerConfig) -> Self {
        self.breaker = breaker;
        self
    }

    /// Sets [`cache`](Self::cache).
    #[must_use]
    pub const fn with_cache(mut self, cache: CacheConfig) -> Self {
        self.cache = cache;
        self
    }
}

/// Runs effects once. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    env: Env,
    secret: Secret,
    config: EngineConfig,
    observer: Arc<dyn Observer>,
    /// Whether the observer wants events.
    observed: bool,
    /// Whether the observer wants durations.
    timed: bool,
    /// Whether the settlement commits the effect itself: in a caller's transaction, nothing is kept
    /// without it.
    commits: bool,
    breaker: Arc<Breaker>,
    coalescer: Arc<ClaimCoalescer>,
    waiters: Arc<Waiters>,
    cache: Arc<ReplayCache>,
    renewals: Arc<Renewals>,
    running: Arc<RunningWork>,
    handouts: Arc<HandoutCache>,
}

impl Engine {
    /// An engine with default settings, without a secret and without an observer.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, env: Env) -> Self {
        Self::with(
            store,
            env,
            Secret::none(),
            EngineConfig::default(),
            Arc::new(NoopObserver),
        )
    }

    /// An engine with all settings given.
    #[must_use]
    pub fn with(
        store: Arc<dyn Store>,
        env: Env,
        secret: Secret,
        config: EngineConfig,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let shared = Shared {
            store,
            env,
            secret,
            config,
            observed: observer.wants_events(),
            timed: observer.wants_events() && observer.wants_times(),
            commits: false,
            observer,
            breaker: Arc::new(Breaker::new(config.breaker, config.call_limit)),
            coalescer: Arc::default(),
            waiters: Waiters::new(config.max_waiters, config.max_waiters_per_tenant),
            cache: Arc::new(ReplayCache::new(config.cache)),
            renewals: Arc::default(),
            running: Arc::default(),
            handouts: Arc::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// An engine that shares breaker, waiters, cache and settings with this one, but uses another
    /// [`Store`] for the same records, such as a transaction of the caller's.
    #[must_use]
    pub fn with_store(&self, store: Arc<dyn Store>) -> Self {
        let this = &self.shared;
        let shared = Shared {
            store,
            env: this.env.clone(),
            secret: this.secret.clone(),
            config: this.config,
            observer: Arc::clone(&this.observer),
            observed: this.observed,
            timed: this.timed,
            commits: true,
            breaker: Arc::clone(&this.breaker),
            // Not shared: what a transaction reads and writes is invisible to others until it
            // commits.
            coalescer: Arc::default(),
            waiters: Arc::clone(&this.waiters),
            cache: Arc::clone(&this.cache),
            renewals: Arc::clone(&this.renewals),
            running: Arc::clone(&this.running),
            handouts: Arc::clone(&this.handouts),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Runs `effect` if this request is the first with its key. Answers in every case.
    ///
    /// The work goes on if the returned future is dropped (P37): it begins on the caller's task,
    /// and moves to a task of its own the first time it has to wait.
    pub async fn execute<V, F, Fut>(&self, request: Request, effect: F) -> Response<V>
    where
        V: Send + 'static,
        F: FnOnce(Lease) -> Fut + Send + 'static,
        Fut: Future<Output = Report<V>> + Send + 'static,
    {
        let work = run::drive(Arc::clone(&self.shared), request, effect);
        let answered = self.run_detached(Box::pin(work)).await;
        answered.unwrap_or(Response::Problem(Problem::ShutDown))
    }

    /// Runs `work` to its end, even if the caller is cancelled. `None` if the runtime shut down
    /// first.
    async fn run_detached<T: Send + 'static>(
        &self,
        mut work: Pin<Box<impl Future<Output = T> + Send + 'static>>,
    ) -> Option<T> {
        // A process that shuts down waits for this guard, because the claim may still win (P37).
        // Dropped at the end, on a panic, and with a task that the runtime cancels.
        let guard = WorkGuard::begin(&self.shared.running);
        // A single poll can't be cancelled halfway, so work that completes in it needs no task.
        let first = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
        if let Poll::Ready(done) = first {
            return Some(done);
        }
        let (send, receive) = oneshot::channel();
        self.shared.env.spawn.spawn(Box::pin(async move {
            // The caller may be gone: the work is done and recorded all the same.
            let _ = send.send(work.await);
            drop(guard);
        }));
        receive.await.ok()
    }

    /// The secret that keys identities and fingerprints.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.shared.secret
    }

    /// The store that this engine uses.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// The clock, task spawner and random source of this engine.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.shared.env
    }

    /// Drops what this process knows about a record. Call it after deleting or resolving one. An
    /// answer that the store gives after this to a call sent before it isn't cached either.
    pub fn forget(&self, identity: &Identity) {
        let now = self.shared.env.clock.now();
        self.shared.cache.forget(identity, now);
        self.shared.coalescer.forget(identity);
    }

    /// Drops all local replays (P38). Call it after erasing what records keep.
    pub fn forget_replays(&self) {
        self.shared.cache.clear(self.shared.env.clock.now());
    }

    /// How many effects run now, including those whose callers are gone.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.running.count()
    }

    /// How long ago the oldest lease was claimed whose effect still runs in this process. `None` if
    /// there is none. Leases that were handed out are not counted.
    #[must_use]
    pub fn oldest_run(&self) -> Option<Duration> {
        let began = self.shared.renewals.oldest()?;
        Some(self.shared.env.clock.now().since(began))
    }

    /// How many keys this process claims or runs now.
    #[must_use]
    pub fn busy_keys(&self) -> usize {
        self.shared.coalescer.count()
    }

    /// Completes when no work is left: a process awaits this before it shuts down, after it has
    /// stopped taking requests. Work is every running effect and every request that may still start
    /// one, including those whose callers are gone (P37). A request that waits for another's run
    /// counts for as long as its policy lets it wait.
    pub async fn idle(&self) {
        self.shared.running.idle().await;
    }

    /// Reports to the observer what a door did to a request without a usable key.
    pub fn report(&self, namespace: &Namespace, operation: Option<&str>, step: Step) {
        let nobody = Identity::from_bytes([0; 32]);
        let event = Event::new(namespace, KeyHint::default(), nobody, step);
        self.report_event(&event.with_operation(operation));
    }

    /// Reports to the observer what was decided without this engine, as by a queue in a bucket.
    pub fn report_event(&self, event: &Event<'_>) {
        let needs_times = matches!(event.step, Step::Answered { .. } | Step::StoreCalled { .. });
        if self.shared.observed && (self.shared.timed || !needs_times) {
            self.shared.observer.observe(event);
        }
    }

    /// The state of the circuit breaker.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.shared.breaker.state(self.shared.env.clock.now())
    }

    /// How many callers of this process wait now for another's claim or run.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.waiters.waiting()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({})", self.shared.store.capabilities().name)
    }
}

impl Shared {
    fn emit(&self, subject: &Subject, step: Step) {
        if self.observed {
            self.observe(subject, step);
        }
    }

    fn observe(&self, subject: &Subject, step: Step) {
        let Subject {
            namespace,
            hint,
            identity,
            context,
        } = subject;
        let context = context.as_deref();
        self.observer.observe(&Event {
            namespace,
            hint: *hint,
            identity: *identity,
            actor: context.and_then(|context| context.actor.as_deref()),
            operation: context.and_then(|context| context.operation.as_deref()),
            step,
        });
    }

    /// The current tick if the observer wants durations; zero otherwise.
    fn tick(&self) -> Tick {
        if self.timed {
            self.env.clock.now()
        } else {
            Tick::new(Duration::ZERO)
        }
    }

    /// Reports how a request that began at `began` ended.
    fn answered(&self, subject: &Subject, fingerprint: Fingerprint, began: Tick, how: Ending) {
        if self.timed {
            let took = self.env.clock.now().since(began);
            self.emit(
                subject,
                Step::Answered {
                    how,
                    fingerprint,
                    took,
                },
            );
        }
    }

    /// The largest body kept: the policy's limit, or the store's if that is smaller.
    fn most_answer_bytes(&self, policy: usize) -> usize {
        let store = self.store.capabilities().max_answer_bytes;
        policy.min(store.saturating_sub(Answer::MAX_HEAD_BYTES))
    }
}
