//! [`FaultyStore`]: a store whose calls fail, come late, get lost or arrive twice.
//!
//! Two ways to say when: by chance, from a seed ([`Faults`]), or exactly ([`FaultyStore::next`] and
//! the two that users' tests need most, [`FaultyStore::lose_response`] and
//! [`FaultyStore::crash_after_effect`]).
//!
//! ```
//! use std::sync::Arc;
//! use semel_core::{Certainty, MemoryConfig, MemoryStore, Store as _};
//! use semel_conformance::clock::FakeClock;
//! use semel_testkit::faulty::{CallKind, Fault, FaultyStore};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let clock = Arc::new(FakeClock::new());
//! let memory = MemoryStore::new(MemoryConfig::default(), clock.clone());
//! let store = FaultyStore::sound(Arc::new(memory), clock);
//! store.next(CallKind::Read, Fault::Refuse);
//!
//! let identity = semel_core::Identity::from_bytes([1; 32]);
//! assert_eq!(store.read(&identity).await.unwrap_err().certainty, Certainty::Definite);
//! assert!(store.read(&identity).await.unwrap().is_none());
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

mod calls;
mod fault;

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use semel_core::{
    BoxFuture, Certainty, Clock, StoreAdmin, StoreError, StoreErrorKind, StoreResult, Token,
};

pub use fault::{CallKind, Fault, Faults};

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
    script: VecDeque<(CallKind, Fault)>,
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

    /// A store without faults, until some are added.
    #[must_use]
    pub fn sound(inner: Arc<dyn StoreAdmin>, clock: Arc<dyn Clock>) -> Self {
        Self::new(inner, clock, Faults::NONE, 0)
    }

    /// The next `call` meets `fault`. Said several times for one kind of call, it is said of the
    /// next, the one after that, and so on.
    pub fn next(&self, call: CallKind, fault: Fault) {
        self.shared.state.lock().script.push_back((call, fault));
    }

    /// The next settlement happens, and whoever sent it is not told: the error says that the
    /// outcome is unknown.
    ///
    /// What a test should see: the settlement is sent again and is `Done` (P18), the caller gets
    /// its answer, and the effect ran once.
    ///
    /// ```
    /// # use semel_core::*;
    /// # use semel_conformance::clock::FakeClock;
    /// # use semel_testkit::faulty::FaultyStore;
    /// # use std::{sync::Arc, time::Duration};
    /// # let (secret, second) = (Secret::none(), Duration::from_secs(1));
    /// # let (namespace, key) = (Namespace::new("", "", "charge")?, Key::parse("ord-1")?);
    /// # let claim = Claim {
    /// #     retry: false,
    /// #     identity: Identity::new(&secret, &namespace, &key),
    /// #     fingerprint: Fingerprint::builder(&secret).part(b"10 EUR").finish(),
    /// #     token: Token(1),
    /// #     terms: ClaimTerms::new(second * 30, second * 3600, CrashPolicy::Takeover, 5)?,
    /// #     secret_id: 0,
    /// #     namespace,
    /// #     hint: key.hint(),
    /// # };
    /// # let paid = Settlement::Complete(Answer::from_body("paid").into());
    /// # let clock = Arc::new(FakeClock::new());
    /// # let memory = MemoryStore::new(MemoryConfig::default(), clock.clone());
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let store = FaultyStore::sound(Arc::new(memory), clock.clone());
    /// let Claimed::Won(lease) = store.claim(&claim).await? else { panic!("the key is new") };
    /// store.lose_response();
    /// assert!(store.settle(&lease, &paid).await.is_err());
    /// assert_eq!(store.settle(&lease, &paid).await?, Settled::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lose_response(&self) {
        self.next(CallKind::Settle, Fault::LoseReply);
    }

    /// The process dies after its next effect, before the settlement is sent.
    ///
    /// The next call to settle never reaches the store and never returns; nor does any later claim,
    /// renewal or settlement with the same token, since a dead process sends nothing. An engine
    /// gives such a call up when its own limit on the clock has passed; until then, whatever awaits
    /// it waits. Let the test drop it, and ask as another process would.
    ///
    /// What a test should see, once the lease has lapsed: under `takeover` the next caller runs the
    /// effect again with attempt 2; under `hold` it finds the key in doubt.
    ///
    /// ```
    /// # use futures_util::FutureExt as _;
    /// # use semel_core::*;
    /// # use semel_conformance::clock::FakeClock;
    /// # use semel_testkit::faulty::FaultyStore;
    /// # use std::{sync::Arc, time::Duration};
    /// # let (secret, second) = (Secret::none(), Duration::from_secs(1));
    /// # let (namespace, key) = (Namespace::new("", "", "charge")?, Key::parse("ord-1")?);
    /// # let claim = Claim {
    /// #     retry: false,
    /// #     identity: Identity::new(&secret, &namespace, &key),
    /// #     fingerprint: Fingerprint::builder(&secret).part(b"10 EUR").finish(),
    /// #     token: Token(1),
    /// #     terms: ClaimTerms::new(second * 30, second * 3600, CrashPolicy::Takeover, 5)?,
    /// #     secret_id: 0,
    /// #     namespace,
    /// #     hint: key.hint(),
    /// # };
    /// # let paid = Settlement::Complete(Answer::from_body("paid").into());
    /// # let clock = Arc::new(FakeClock::new());
    /// # let memory = MemoryStore::new(MemoryConfig::default(), clock.clone());
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let store = FaultyStore::sound(Arc::new(memory), clock.clone());
    /// let Claimed::Won(lease) = store.claim(&claim).await? else { panic!("the key is new") };
    /// store.crash_after_effect();
    /// assert!(store.settle(&lease, &paid).now_or_never().is_none()); // It would wait for ever.
    /// clock.advance(lease.lease);
    /// let next = Claim { token: Token(2), ..claim };
    /// let Claimed::Won(second) = store.claim(&next).await? else { panic!("the lease has lapsed") };
    /// assert_eq!(second.attempt, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn crash_after_effect(&self) {
        self.next(CallKind::Settle, Fault::Crash);
    }

    /// How many calls have met a fault so far.
    #[must_use]
    pub fn befallen(&self) -> usize {
        self.shared.state.lock().befallen
    }

    /// The fault that befalls this call: a scripted one first, then what chance says.
    fn fault(&self, call: CallKind, token: Option<Token>) -> Option<Fault> {
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

    /// Sends a call through the injected faults.
    async fn through<'a, T>(
        &'a self,
        call: CallKind,
        token: Option<Token>,
        send: impl Fn(&'a dyn StoreAdmin) -> BoxFuture<'a, StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        let store = &*self.shared.inner;
        match self.fault(call, token) {
            None => send(store).await,
            Some(Fault::Refuse) => Err(failed(Certainty::Definite)),
            Some(Fault::Full) => Err(StoreError::new(
                StoreErrorKind::Full,
                Certainty::Definite,
                "a scripted fault",
            )),
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

impl std::fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultyStore({} befallen)", self.befallen())
    }
}
