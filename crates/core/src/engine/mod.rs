//! The engine: claim → run → settle → answer. The only control flow there is.
//!
//! A door (the HTTP layer, the sidecar, a tool gateway, a job queue) reads key and fingerprint, hands
//! the engine a [`Request`] and an effect, and writes the [`Response`]. Nothing else decides.
//!
//! | file | step |
//! |---|---|
//! | `request` | what a door hands over |
//! | `admit` | claim; wait for another's run; ask a recover hook |
//! | `ask`, `turns` | one claim at a time for a key, its answer for all who asked meanwhile |
//! | `wait` | wait for another's claim or run |
//! | `given_up` | let go of what a claim without an answer may have won |
//! | `run` | start the effect, settle by its verdict, answer |
//! | `observe` | the same where the store decides nothing |
//! | `lease`, `renew` | what the effect holds, and what keeps it |
//! | `remote` | the same steps for an effect that runs elsewhere, one call each |
//! | `operate` | what an operator does to a record |
//! | `answer` | what comes out |
//! | `breaker`, `waiters`, `cache`, `limit` | bounds |
//! | `running` | how many effects run, and what is under way, for a process that wants to end |

mod admit;
mod answer;
mod ask;
mod breaker;
mod cache;
mod given_up;
mod lease;
mod limit;
mod observe;
mod operate;
mod remote;
mod renew;
mod request;
mod run;
mod running;
mod turns;
mod wait;
mod waiters;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_channel::oneshot;

pub use answer::{Problem, Ran, Replayed, Report, Response, Verdict};
pub use breaker::BreakerConfig;
pub use cache::CacheConfig;
pub use lease::{Lease, LeaseLost};
pub use operate::{Operated, Unlock};
pub use remote::{Admitted, HandedOut, RemoteLease};
pub use request::{Doubt, Recover, Request};

use crate::clock::Tick;
use crate::env::Env;
use crate::error::StoreError;
use crate::event::{BreakerState, Ending, Event, Ignore, Observer, Step, StoreCall};
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::key::KeyHint;
use crate::namespace::Namespace;
use crate::record::Answer;
use crate::secret::Secret;
use crate::store::Store;

use breaker::Breaker;
use cache::ReplayCache;
use renew::Renewals;
use request::Subject;
use running::{Running, UnderWay};
use turns::Turns;
use waiters::Waiters;

/// What concerns the whole process rather than one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// The most callers of this process that wait, over all keys. 1,024.
    pub max_waiters: usize,
    /// The most of them of one tenant, where there are tenants. 512.
    pub max_waiters_per_tenant: usize,
    /// How long to wait for one store call. 5 s.
    pub call_limit: Duration,
    /// When to stop asking a store that is down.
    pub breaker: BreakerConfig,
    /// What to keep for replays without asking the store.
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
    /// Whether the observer wants to know how long things took.
    timed: bool,
    /// Whether a settlement is the effect's own commit: in a transaction of the caller's there is no value without it.
    commits: bool,
    breaker: Arc<Breaker>,
    turns: Arc<Turns>,
    waiters: Arc<Waiters>,
    cache: Arc<ReplayCache>,
    renewals: Arc<Renewals>,
    running: Arc<Running>,
    handed_out: Arc<remote::Memory>,
}

impl Engine {
    /// An engine with default settings, no secret, and nobody watching.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, env: Env) -> Self {
        Self::with(
            store,
            env,
            Secret::none(),
            EngineConfig::default(),
            Arc::new(Ignore),
        )
    }

    /// An engine with everything chosen.
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
            timed: observer.wants_times(),
            commits: false,
            observer,
            breaker: Arc::new(Breaker::new(config.breaker, config.call_limit)),
            turns: Arc::default(),
            waiters: Waiters::new(config.max_waiters, config.max_waiters_per_tenant),
            cache: Arc::new(ReplayCache::new(config.cache)),
            renewals: Arc::default(),
            running: Arc::default(),
            handed_out: Arc::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The same engine (same breaker, waiters, local replays) over another way to the same records, such as a
    /// transaction of the caller's.
    #[must_use]
    pub fn over(&self, store: Arc<dyn Store>) -> Self {
        let this = &self.shared;
        let shared = Shared {
            store,
            env: this.env.clone(),
            secret: this.secret.clone(),
            config: this.config,
            observer: Arc::clone(&this.observer),
            timed: this.timed,
            commits: true,
            breaker: Arc::clone(&this.breaker),
            // What a transaction is told is known to nobody else until it commits.
            turns: Arc::default(),
            waiters: Arc::clone(&this.waiters),
            cache: Arc::clone(&this.cache),
            renewals: Arc::clone(&this.renewals),
            running: Arc::clone(&this.running),
            handed_out: Arc::clone(&this.handed_out),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Runs `effect` if this request is the first with its key; answers in every case.
    ///
    /// The work goes on if the returned future is dropped (P37): it is begun on the caller's own task,
    /// and moved to a task of its own the first time it has to wait for anything.
    pub async fn execute<V, F, Fut>(&self, request: Request, effect: F) -> Response<V>
    where
        V: Send + 'static,
        F: FnOnce(Lease) -> Fut + Send + 'static,
        Fut: Future<Output = Report<V>> + Send + 'static,
    {
        let work = run::drive(Arc::clone(&self.shared), request, effect);
        let answered = self.see_through(Box::pin(work)).await;
        answered.unwrap_or(Response::Problem(Problem::ShutDown))
    }

    /// Does `work` to its end, whatever becomes of the caller; `None` where the runtime ended first.
    async fn see_through<T: Send + 'static>(
        &self,
        mut work: Pin<Box<impl Future<Output = T> + Send + 'static>>,
    ) -> Option<T> {
        // From here on, as a process that ends has to wait for what may yet win (P37). Given back when dropped, also by
        // a panic, or with a task that its runtime has cut off.
        let under_way = UnderWay::begin(&self.shared.running);
        // One poll can't be cut in half, so what needs no waiting needs no task.
        let first = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
        if let Poll::Ready(done) = first {
            return Some(done);
        }
        let (send, receive) = oneshot::channel();
        self.shared.env.spawn.spawn(Box::pin(async move {
            // Nobody to tell is fine: the work is done and recorded.
            let _ = send.send(work.await);
            drop(under_way);
        }));
        receive.await.ok()
    }

    /// The secret that identities and fingerprints are made with.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.shared.secret
    }

    /// The store behind it.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Time, tasks and chance.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.shared.env
    }

    /// Drops what this process knows of a record: call it after deleting or resolving one. What the store was asked
    /// before this, and answers after it, is not kept either.
    pub fn forget(&self, identity: &Identity) {
        let now = self.shared.env.clock.now();
        self.shared.cache.forget(identity, now);
        self.shared.turns.forget(identity);
    }

    /// How many effects run now, those included whose callers have left.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.running.count()
    }

    /// How many keys this process claims or runs now.
    #[must_use]
    pub fn busy_keys(&self) -> usize {
        self.shared.turns.count()
    }

    /// Completes when nothing is under way any more: what a process waits for before it ends, after it has
    /// stopped taking requests. That is every effect that runs, and every request that may yet run one, those
    /// included whose callers have left: they are on no connection to wait for (P37). A request that waits for
    /// another's run is waited for as long as its policy lets it wait.
    pub async fn idle(&self) {
        self.shared.running.idle().await;
    }

    /// Tells the observer what a door did before there was a usable key: nothing else knows of it.
    pub fn report(&self, namespace: &Namespace, step: Step) {
        self.shared.observer.observe(&Event {
            namespace,
            hint: KeyHint::default(),
            identity: Identity::from_bytes([0; 32]),
            actor: None,
            step,
        });
    }

    /// Whether the store is asked, or left alone for a while because it failed.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.shared.breaker.state(self.shared.env.clock.now())
    }

    /// How many callers of this process wait for another's claim or run now.
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
        let Subject {
            namespace,
            hint,
            identity,
            actor,
        } = subject;
        self.observer.observe(&Event {
            namespace,
            hint: *hint,
            identity: *identity,
            actor: actor.as_deref(),
            step,
        });
    }

    /// Now, where somebody wants to know how long something took.
    fn tick(&self) -> Tick {
        if self.timed {
            self.env.clock.now()
        } else {
            Tick::new(Duration::ZERO)
        }
    }

    /// Tells how long a store call took that was sent at `sent`.
    fn called(&self, subject: &Subject, call: StoreCall, sent: Tick, answered: bool) {
        if self.timed {
            let took = self.env.clock.now().since(sent);
            self.emit(
                subject,
                Step::StoreCalled {
                    call,
                    took,
                    answered,
                },
            );
        }
    }

    /// Tells how a request ended that was begun at `began`.
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

    fn store_failed(&self, subject: &Subject, call: StoreCall, error: &StoreError) {
        let StoreError {
            kind, certainty, ..
        } = *error;
        self.emit(
            subject,
            Step::StoreFailed {
                call,
                kind,
                certainty,
            },
        );
    }

    /// The largest body kept: what the policy says, as far as the store takes it.
    fn most_answer_bytes(&self, policy: usize) -> usize {
        let store = self.store.capabilities().max_answer_bytes;
        policy.min(store.saturating_sub(Answer::MAX_HEAD_BYTES))
    }
}
