//! [`FaultyStore`]: a store whose calls fail, come late, get lost or arrive twice.
//!
//! Two ways to say when: by chance, from a seed ([`Faults`]), or exactly ([`FaultyStore::next`] and
//! the two that users' tests need most, [`FaultyStore::lose_response`] and
//! [`FaultyStore::crash_after_effect`]).
//!
//! ```
//! use std::sync::Arc;
//! use semel_core::{Certainty, MemoryConfig, MemoryStore, Store as _};
//! use semel_testkit::clock::FakeClock;
//! use semel_testkit::faulty::{Call, Fault, FaultyStore};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let clock = Arc::new(FakeClock::new());
//! let memory = MemoryStore::new(MemoryConfig::default(), clock.clone());
//! let store = FaultyStore::sound(Arc::new(memory), clock);
//! store.next(Call::Read, Fault::Refuse);
//!
//! let identity = semel_core::Identity::from_bytes([1; 32]);
//! assert_eq!(store.read(&identity).await.unwrap_err().certainty, Certainty::Definite);
//! assert!(store.read(&identity).await.unwrap().is_none());
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

mod fault;

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use semel_core::store::{Capabilities, Page, Query, Stats, Wake};
use semel_core::wake::Wakeup;
use semel_core::{
    BoxFuture, Certainty, Claim, Claimed, Clock, Fence, Grant, Identity, Record, Renewed,
    Resolution, Resolved, Settled, Settlement, Store, StoreAdmin, StoreError, StoreErrorKind,
    StoreResult, Token,
};

pub use fault::{Call, Fault, Faults};

/// A store with faults. Clones share script, chance and records: keep one, hand the other on.
#[derive(Clone)]
pub struct FaultyStore {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Arc<dyn StoreAdmin>,
    clock: Arc<dyn Clock>,
    faults: Faults,
    state: Mutex<State>,
}

struct State {
    rng: StdRng,
    script: VecDeque<(Call, Fault)>,
    dead: Vec<Token>,
    befallen: usize,
}

impl FaultyStore {
    /// A store whose calls meet `faults` by chance, the same ones for the same seed and order of
    /// calls. Delays are waited out on `clock`.
    #[must_use]
    pub fn new(
        inner: Arc<dyn StoreAdmin>,
        clock: Arc<dyn Clock>,
        faults: Faults,
        seed: u64,
    ) -> Self {
        let state = State {
            rng: StdRng::seed_from_u64(seed),
            script: VecDeque::new(),
            dead: Vec::new(),
            befallen: 0,
        };
        let state = Mutex::new(state);
        Self {
            shared: Arc::new(Shared {
                inner,
                clock,
                faults,
                state,
            }),
        }
    }

    /// A store without faults, until it is told of one.
    #[must_use]
    pub fn sound(inner: Arc<dyn StoreAdmin>, clock: Arc<dyn Clock>) -> Self {
        Self::new(inner, clock, Faults::NONE, 0)
    }

    /// The next `call` meets `fault`. Said several times for one kind of call, it is said of the next,
    /// the one after that, and so on.
    pub fn next(&self, call: Call, fault: Fault) {
        self.shared.state.lock().script.push_back((call, fault));
    }

    /// The next settlement happens, and whoever sent it is not told: the error says that the outcome
    /// is unknown.
    ///
    /// What a test should see: the settlement is sent again and is `Done` (P18), the caller gets its
    /// answer, and the effect ran once.
    pub fn lose_response(&self) {
        self.next(Call::Settle, Fault::LoseReply);
    }

    /// The process dies after its next effect, before the settlement is sent.
    ///
    /// The next call to settle never reaches the store and never returns; nor does any later claim,
    /// renewal or settlement with the same token, since a dead process sends nothing. Whatever awaits
    /// them waits for ever: let the test await something else, and drop them.
    ///
    /// What a test should see, once the lease has lapsed: under `takeover` the next caller runs the
    /// effect again with attempt 2; under `hold` it finds the key in doubt.
    pub fn crash_after_effect(&self) {
        self.next(Call::Settle, Fault::Crash);
    }

    /// How many calls have met a fault so far.
    #[must_use]
    pub fn befallen(&self) -> usize {
        self.shared.state.lock().befallen
    }

    /// The fault that befalls this call: a scripted one first, then what chance says.
    fn fault(&self, call: Call, token: Option<Token>) -> Option<Fault> {
        let mut state = self.shared.state.lock();
        if token.is_some_and(|token| state.dead.contains(&token)) {
            return Some(Fault::Hang);
        }
        let scripted = state.script.iter().position(|(of, _)| *of == call);
        let fault = match scripted.and_then(|index| state.script.remove(index)) {
            Some((_, fault)) => Some(fault),
            None if call.is_hot() => self.shared.faults.roll(&mut state.rng),
            None => None,
        };
        if fault == Some(Fault::Crash) {
            state.dead.extend(token);
        }
        state.befallen += usize::from(fault.is_some());
        fault
    }

    /// Sends a call through whatever befalls it.
    async fn through<'a, T>(
        &'a self,
        call: Call,
        token: Option<Token>,
        send: impl Fn(&'a dyn StoreAdmin) -> BoxFuture<'a, StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        let store = &*self.shared.inner;
        match self.fault(call, token) {
            None => send(store).await,
            Some(Fault::Refuse) => Err(failed(Certainty::Definite)),
            Some(Fault::LoseRequest) => Err(failed(Certainty::Unknown)),
            Some(Fault::LoseReply) => {
                drop(send(store).await);
                Err(failed(Certainty::Unknown))
            }
            Some(Fault::Delay(time)) => {
                self.shared.clock.sleep(time).await;
                send(store).await
            }
            Some(Fault::DelayReply(time)) => {
                let reply = send(store).await;
                self.shared.clock.sleep(time).await;
                reply
            }
            Some(Fault::Repeat) => {
                drop(send(store).await);
                send(store).await
            }
            Some(Fault::Hang | Fault::Crash) => pending().await,
        }
    }
}

fn failed(certainty: Certainty) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        certainty,
        "a fault was injected",
    )
}

#[deny(
    clippy::missing_trait_methods,
    reason = "a wrapper passes every call on"
)]
impl Store for FaultyStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(self.through(Call::Claim, Some(claim.token), move |store| {
            store.claim(claim)
        }))
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Grant,
        checkpoint: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>> {
        let send = move |store: &'a dyn StoreAdmin| store.renew(lease, checkpoint);
        Box::pin(self.through(Call::Renew, Some(lease.token), send))
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        let send = move |store: &'a dyn StoreAdmin| store.settle(lease, settlement);
        Box::pin(self.through(Call::Settle, Some(lease.token), send))
    }

    fn resolve<'a>(
        &'a self,
        identity: &'a Identity,
        fence: Fence,
        resolution: &'a Resolution,
    ) -> BoxFuture<'a, StoreResult<Resolved>> {
        let send = move |store: &'a dyn StoreAdmin| store.resolve(identity, fence, resolution);
        Box::pin(self.through(Call::Resolve, None, send))
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        Box::pin(self.through(Call::Read, None, move |store| store.read(identity)))
    }

    fn watch(&self, identity: &Identity) -> Wakeup {
        let dice = self.shared.state.lock().rng.random::<f64>();
        if dice < self.shared.faults.lose_wake {
            return Wakeup::never();
        }
        self.shared.inner.watch(identity)
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.shared.inner.capabilities();
        let lossy = self.shared.faults.lose_wake > 0.0 && inner.wake == Wake::Exact;
        Capabilities {
            wake: if lossy { Wake::Hint } else { inner.wake },
            ..inner
        }
    }
}

#[deny(
    clippy::missing_trait_methods,
    reason = "a wrapper passes every call on"
)]
impl StoreAdmin for FaultyStore {
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, StoreResult<Page>> {
        Box::pin(self.through(Call::List, None, move |store| store.list(query)))
    }

    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(self.through(Call::Delete, None, move |store| store.delete(identity)))
    }

    fn sweep(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(self.through(Call::Sweep, None, move |store| store.sweep(most)))
    }

    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>> {
        Box::pin(self.through(Call::Stats, None, move |store| store.stats()))
    }
}

impl std::fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultyStore({} befallen)", self.befallen())
    }
}
