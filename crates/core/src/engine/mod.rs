//! The engine: claim → run → settle → answer. The only control flow there is.
//!
//! A door (the HTTP layer, the sidecar, a tool gateway, a job queue) reads key and fingerprint, hands
//! the engine a [`Request`] and an effect, and writes the [`Response`]. Nothing else decides.
//!
//! | file | step |
//! |---|---|
//! | `request` | what a door hands over |
//! | `admit` | claim; wait for another's run; ask a recover hook |
//! | `run` | start the effect, settle by its verdict, answer |
//! | `lease`, `renew` | what the effect holds, and what keeps it |
//! | `answer` | what comes out |
//! | `breaker`, `waiters`, `cache`, `limit` | bounds |
//! | `running` | how many effects run, for a process that wants to end |

mod admit;
mod answer;
mod breaker;
mod cache;
mod lease;
mod limit;
mod renew;
mod request;
mod run;
mod running;
mod waiters;

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_channel::oneshot;

pub use answer::{Problem, Ran, Replayed, Report, Response, Verdict};
pub use breaker::BreakerConfig;
pub use cache::CacheConfig;
pub use lease::{Lease, LeaseLost};
pub use request::{Doubt, Recover, Request};

use crate::env::Env;
use crate::error::StoreError;
use crate::event::{BreakerState, Event, Ignore, Observer, Step, StoreCall};
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
use running::Running;
use waiters::Waiters;

/// What concerns the whole process rather than one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// The most callers of this process that wait, over all keys. 1,024.
    pub max_waiters: usize,
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
    breaker: Arc<Breaker>,
    waiters: Arc<Waiters>,
    cache: Arc<ReplayCache>,
    renewals: Arc<Renewals>,
    running: Arc<Running>,
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
            observer,
            breaker: Arc::new(Breaker::new(config.breaker)),
            waiters: Waiters::new(config.max_waiters),
            cache: Arc::new(ReplayCache::new(config.cache)),
            renewals: Arc::default(),
            running: Arc::default(),
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
            breaker: Arc::clone(&this.breaker),
            waiters: Arc::clone(&this.waiters),
            cache: Arc::clone(&this.cache),
            renewals: Arc::clone(&this.renewals),
            running: Arc::clone(&this.running),
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
        let mut work = Box::pin(run::drive(Arc::clone(&self.shared), request, effect));
        // One poll can't be cut in half, so what needs no waiting needs no task.
        let first = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
        if let Poll::Ready(response) = first {
            return response;
        }
        let (send, receive) = oneshot::channel();
        self.shared.env.spawn.spawn(Box::pin(async move {
            // Nobody to tell is fine: the work is done and recorded.
            let _ = send.send(work.await);
        }));
        receive
            .await
            .unwrap_or(Response::Problem(Problem::ShutDown))
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

    /// Drops the local copy of a replay: call it after deleting or resolving a record.
    pub fn forget(&self, identity: &Identity) {
        self.shared.cache.forget(identity);
    }

    /// How many effects run now, those included whose callers have left.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.running.count()
    }

    /// Completes when no effect runs any more: what a process waits for before it ends, after it has
    /// stopped taking requests. Effects whose callers have left are on no connection to wait for (P37).
    pub async fn idle(&self) {
        self.shared.running.idle().await;
    }

    /// Tells the observer what a door did before there was a usable key: nothing else knows of it.
    pub fn report(&self, namespace: &Namespace, step: Step) {
        self.shared.observer.observe(&Event {
            namespace,
            hint: KeyHint::default(),
            identity: Identity::from_bytes([0; 32]),
            step,
        });
    }

    /// Whether the store is asked, or left alone for a while because it failed.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.shared.breaker.state(self.shared.env.clock.now())
    }

    /// How many callers of this process wait for another's run now.
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
        } = subject;
        self.observer.observe(&Event {
            namespace,
            hint: *hint,
            identity: *identity,
            step,
        });
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
