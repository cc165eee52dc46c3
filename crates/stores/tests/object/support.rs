//! What the tests of the object store share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use semel_core::clock::Sleep;
use semel_core::{
    Answer, Busy, Claim, ClaimTerms, Claimed, Clock, CrashPolicy, Fingerprint, Grant, Identity,
    Key, Namespace, Secret, Settlement, Store, StoreResult, Tick, Timestamp, Token,
};
use semel_stores::object::ObjectStore;
use semel_testkit::http_proxy::HttpProxy;

/// The value of a variable that `cargo xtask services up` sets.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: start the servers with `cargo xtask services up`")
    })
}

pub(crate) fn chance() -> u128 {
    semel::tokio_env().entropy.next_u128()
}

/// Real time.
pub(crate) fn clock() -> Arc<dyn Clock> {
    semel::tokio_env().clock
}

/// A folder of the shared bucket that nobody else uses.
pub(crate) fn own_url() -> String {
    own_url_of("SEMEL_TEST_S3_URL")
}

/// The same, of the bucket that a variable names.
pub(crate) fn own_url_of(name: &str) -> String {
    let prefix = format!("/test-{:032x}?", chance());
    variable(name).replace('?', &prefix)
}

/// The same folder, reached through a proxy.
pub(crate) fn through(proxy: &HttpProxy, url: &str) -> String {
    let endpoint = format!("http://{}", proxy.address());
    url.replace(&variable("SEMEL_TEST_S3_ENDPOINT"), &endpoint)
}

pub(crate) async fn proxy() -> HttpProxy {
    let endpoint = variable("SEMEL_TEST_S3_ENDPOINT");
    let address: SocketAddr = endpoint.replace("http://", "").parse().expect("an address");
    HttpProxy::to(address).await.expect("a port")
}

pub(crate) async fn open(url: &str) -> ObjectStore {
    open_with(url, clock()).await
}

pub(crate) async fn open_with(url: &str, clock: Arc<dyn Clock>) -> ObjectStore {
    let store = ObjectStore::open(url, clock).await;
    store.unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)))
}

/// A claim of a key that nobody else has.
pub(crate) fn fresh() -> Claim {
    fresh_for(Duration::from_secs(30))
}

/// The same, with a lease of this length.
pub(crate) fn fresh_for(lease: Duration) -> Claim {
    let namespace = Namespace::new("", "", "traps").expect("a namespace");
    let key = Key::parse(&format!("k-{:032x}", chance())).expect("a key");
    let retention = Duration::from_secs(3600);
    let terms = ClaimTerms::new(lease, retention, CrashPolicy::Takeover, 5).expect("terms");
    Claim {
        retry: false,
        identity: Identity::new(&Secret::none(), &namespace, &key),
        fingerprint: Fingerprint::builder(&Secret::none())
            .part(b"payload")
            .finish(),
        token: Token(chance()),
        terms,
        secret_id: 0,
        hint: key.hint(),
        namespace,
    }
}

/// The same request from another caller.
pub(crate) fn again(claim: &Claim) -> Claim {
    Claim {
        token: Token(chance()),
        ..claim.clone()
    }
}

pub(crate) fn complete(text: &str) -> Settlement {
    Settlement::Complete(Arc::new(Answer::from_body(text.to_owned())))
}

pub(crate) async fn won(store: &ObjectStore, claim: &Claim) -> Grant {
    lease_of(store.claim(claim).await)
}

pub(crate) fn lease_of(claimed: StoreResult<Claimed>) -> Grant {
    match claimed.expect("an answer") {
        Claimed::Won(grant) => grant,
        other => panic!("won was expected: {other:?}"),
    }
}

pub(crate) async fn busy(store: &ObjectStore, claim: &Claim) -> Busy {
    match store.claim(claim).await.expect("an answer") {
        Claimed::Busy(busy) => busy,
        other => panic!("busy was expected: {other:?}"),
    }
}

/// The answer that a new caller gets.
pub(crate) async fn replayed(store: &ObjectStore, claim: &Claim) -> Arc<Answer> {
    match store.claim(&again(claim)).await.expect("an answer") {
        Claimed::Replay(replay) => replay.answer,
        other => panic!("a replay was expected: {other:?}"),
    }
}

/// A clock that a test can stop, as a suspended machine's is, and whose wall clock is wrong.
pub(crate) struct OddClock {
    real: Arc<dyn Clock>,
    /// Stopped here.
    pub(crate) stopped: parking_lot::Mutex<Option<Tick>>,
    /// Added to the wall clock, in microseconds.
    pub(crate) wall_off: i64,
}

impl OddClock {
    pub(crate) fn new(wall_off: i64) -> Arc<Self> {
        Arc::new(Self {
            real: clock(),
            stopped: parking_lot::Mutex::new(None),
            wall_off,
        })
    }

    pub(crate) fn stop(&self) {
        *self.stopped.lock() = Some(self.real.now());
    }
}

impl Clock for OddClock {
    fn now(&self) -> Tick {
        self.stopped.lock().unwrap_or_else(|| self.real.now())
    }

    fn wall(&self) -> Timestamp {
        let wall = self.real.wall().as_micros();
        Timestamp::from_micros(wall.saturating_add_signed(self.wall_off))
    }

    fn sleep(&self, for_time: Duration) -> Sleep {
        self.real.sleep(for_time)
    }
}
