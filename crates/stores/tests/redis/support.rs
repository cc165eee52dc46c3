//! What the tests of the Redis store share.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use semel_conformance::{ALL, CheckVerdict, ConformanceCheck, Scene, Spans, Subject};
use semel_core::store::StoreAdmin;
use semel_core::{
    Answer, BoxFuture, Certainty, Claim, Clock, Identity, Settlement, StoreError, StoreErrorKind,
    Token,
};
use semel_stores::redis::{DEFAULT_PREFIX, RedisStore};

/// The value of a variable that `cargo xtask services up` sets.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: start the servers with `cargo xtask services up`")
    })
}

/// The hosts in a list of URLs.
fn hosts(name: &str) -> String {
    variable(name).replace("redis://", "")
}

/// The shared servers behind sentinels.
pub(crate) fn sentinel() -> String {
    let master = variable("SEMEL_TEST_REDIS_SENTINEL_MASTER");
    let sentinels = hosts("SEMEL_TEST_REDIS_SENTINEL_URLS");
    format!("redis+sentinel://{sentinels}/{master}")
}

/// The shared cluster.
pub(crate) fn cluster() -> String {
    format!("redis+cluster://{}", hosts("SEMEL_TEST_REDIS_CLUSTER_URLS"))
}

/// The program of the shared Valkey, for a server of one's own.
pub(crate) async fn valkey_program() -> std::path::PathBuf {
    let client = redis::Client::open(variable("SEMEL_TEST_VALKEY_URL")).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await;
    let mut connection = connection.expect("a server");
    let info: String = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut connection)
        .await
        .expect("a server");
    let program = info
        .lines()
        .find_map(|line| line.strip_prefix("executable:"));
    program.expect("the server says what it is").trim().into()
}

/// Real time.
pub(crate) fn clock() -> Arc<dyn Clock> {
    semel::tokio_env().clock
}

/// 128 bits that nobody else has.
pub(crate) fn chance() -> u128 {
    semel::tokio_env().entropy.next_u128()
}

pub(crate) async fn open(url: &str) -> RedisStore {
    let store = RedisStore::open(url, clock()).await;
    store.unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)))
}

/// What was said when a store could not be opened, with the cause.
pub(crate) async fn refused(url: &str) -> String {
    let error = RedisStore::open(url, clock()).await.expect_err("refused");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    format!("{error}: {}", cause.unwrap_or_default())
}

/// A store on some servers, as two processes see it.
pub(crate) struct Server {
    url: String,
    store: RedisStore,
    another: RedisStore,
}

impl Server {
    pub(crate) async fn at(url: impl Into<String>) -> Self {
        let url = url.into();
        let (store, another) = (open(&url).await, open(&url).await);
        Self {
            url,
            store,
            another,
        }
    }
}

impl Subject for Server {
    fn store(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.store.clone())
    }

    fn another(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.another.clone())
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        clock().sleep(time)
    }

    fn spans(&self) -> Spans {
        Spans::SERVER
    }

    fn spoil<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let mut change = redis::cmd("SETRANGE");
            change.arg(key_of(identity)).arg(0).arg(&[99_u8][..]);
            send(&self.url, &change).await;
            true
        })
    }
}

/// The key under which the store keeps a record.
pub(crate) fn key_of(identity: &Identity) -> String {
    let hex = identity.address().map(|byte| format!("{byte:02x}"));
    format!("{DEFAULT_PREFIX}{}", hex.concat())
}

/// A corner of a store of one's own.
pub(crate) async fn scene(url: impl Into<String>) -> Scene {
    Scene::new(Arc::new(Server::at(url).await))
}

/// The suite in one process, many checks at a time: quick, if the set-up is not a new topology but
/// another way to the same servers. Left out is what writes behind the store's back, which takes a
/// way of its own.
pub(crate) async fn suite(url: &str, wanted: impl Fn(&str) -> bool) {
    checks(url, wanted, 1).await;
}

/// The same where each answer waits for a replica or a disk. On a busy machine one comes too late,
/// which is told as unknown, and rightly: then the check is made again from its beginning.
pub(crate) async fn suite_at_a_level(url: &str, wanted: impl Fn(&str) -> bool) {
    checks(url, wanted, 5).await;
}

async fn checks(url: &str, wanted: impl Fn(&str) -> bool, tries: usize) {
    let subject: Arc<dyn Subject> = Arc::new(Server::at(url).await);
    let checks = ALL
        .iter()
        .filter(|check| !check.name.starts_with("p25") && wanted(check.name));
    // Not all at once: a check that is slowed down too much finds its records expired.
    let mut verdicts = futures_util::stream::iter(checks)
        .map(|check| {
            let subject = Arc::clone(&subject);
            async move { (check.name, verdict(check, &subject, tries).await) }
        })
        .buffer_unordered(12);
    while let Some((name, verdict)) = verdicts.next().await {
        verdict.unwrap_or_else(|why| panic!("{name}: {why:#}"));
    }
}

async fn verdict(
    check: &ConformanceCheck,
    subject: &Arc<dyn Subject>,
    tries: usize,
) -> CheckVerdict {
    for _ in 1..tries {
        let verdict = once(check, subject).await;
        let error = verdict.as_ref().err().and_then(|why| why.downcast_ref());
        if !error.is_some_and(is_unconfirmed) {
            return verdict;
        }
    }
    once(check, subject).await
}

async fn once(check: &ConformanceCheck, subject: &Arc<dyn Subject>) -> CheckVerdict {
    let run = (check.run)(Scene::new(Arc::clone(subject)));
    tokio::spawn(run).await.expect("no panic")
}

/// Whether a call may have been done, and has not spread as far as it has to.
pub(crate) fn is_unconfirmed(error: &StoreError) -> bool {
    (error.kind, error.certainty) == (StoreErrorKind::Unavailable, Certainty::Unknown)
}

/// One check for every kind of call, if the way matters and not the rules.
pub(crate) fn is_short(name: &str) -> bool {
    [
        "p04", "p05", "p06", "p09", "p12", "p14", "p16", "p18", "p19", "p27", "p34",
    ]
    .iter()
    .any(|rule| name.starts_with(rule))
}

/// The same request from another caller.
pub(crate) fn again(claim: &Claim) -> Claim {
    Claim {
        token: Token(chance()),
        ..claim.clone()
    }
}

/// Completes with an answer that has this body.
pub(crate) fn complete(body: &str) -> Settlement {
    Settlement::Complete(Arc::new(Answer {
        head: Bytes::from_static(b"200"),
        body: semel_core::AnswerBody::Kept(Bytes::copy_from_slice(body.as_bytes())),
    }))
}

/// Sends a command behind the store's back, to whichever server takes it.
async fn send(url: &str, cmd: &redis::Cmd) {
    for server in servers(url).await {
        let client = redis::Client::open(server).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await;
        let mut connection = connection.expect("a server");
        // A replica, or a master without the key's slot, refuses.
        if cmd.exec_async(&mut connection).await.is_ok() {
            return;
        }
    }
    panic!("no server took the command");
}

/// The servers that a URL names, or that its sentinels name.
async fn servers(url: &str) -> Vec<String> {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    if scheme != "redis+sentinel" {
        let at = |host| format!("redis://{host}/{path}");
        return hosts.split(',').map(at).collect();
    }
    let sentinel = hosts.split(',').next().expect("a sentinel");
    let client = redis::Client::open(format!("redis://{sentinel}")).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await;
    let mut connection = connection.expect("a sentinel");
    let (host, port): (String, u16) = redis::cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(path)
        .query_async(&mut connection)
        .await
        .expect("a master");
    vec![format!("redis://{host}:{port}")]
}
