//! A server that is there and says no for a while: what has happened is recorded all the same, and
//! a claim is told that it may be sent again.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use semel::{Failure, Semel, TypedAnswer};
use semel_core::store::Store as _;
use semel_core::{Certainty, Claim, Claimed, StoreError, StoreErrorKind};
use semel_stores::redis::RedisStore;
use semel_testkit::private::RedisServer;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::interceptor::Interceptor;
use crate::support::{open, scene};

/// An effect that waits in its middle for the test.
#[derive(Clone, Default)]
pub(super) struct Effect {
    pub(super) begun: Arc<Notify>,
    pub(super) may_end: Arc<Notify>,
    runs: Arc<AtomicU32>,
}

impl Effect {
    /// Asks for it. Its value says how often it has run.
    pub(super) fn ask(
        &self,
        semel: &Semel,
        key: &str,
    ) -> JoinHandle<Result<TypedAnswer<u32>, semel::Error>> {
        let this = self.clone();
        let call = semel.operation("charge").key(key).payload(&1);
        tokio::spawn(call.run(|_| async move {
            this.begun.notify_one();
            this.may_end.notified().await;
            Ok::<_, Failure>(this.runs.fetch_add(1, Ordering::SeqCst) + 1)
        }))
    }

    /// It has run once, is recorded, and does not run again.
    pub(super) async fn is_recorded(
        &self,
        asked: JoinHandle<Result<TypedAnswer<u32>, semel::Error>>,
        semel: &Semel,
        key: &str,
    ) {
        let answer = asked.await.expect("no panic").expect("recorded");
        assert_eq!((answer.value, answer.replayed), (1, false), "{key}");
        self.may_end.notify_one();
        let again = self.ask(semel, key).await.expect("no panic");
        let again = again.expect("recorded");
        assert_eq!((again.value, again.replayed), (1, true), "{key}");
        assert_eq!(self.runs.load(Ordering::SeqCst), 1, "{key}");
    }
}

/// Somebody else's script that doesn't end: meanwhile the server says `-BUSY` to everybody.
struct SlowScript<'a> {
    server: &'a RedisServer,
    /// Its caller. The script goes on until it is killed.
    _caller: TcpStream,
}

impl<'a> SlowScript<'a> {
    async fn start(server: &'a RedisServer) -> Self {
        let mut caller = TcpStream::connect(server.address()).expect("a server");
        let script = b"*3\r\n$4\r\nEVAL\r\n$17\r\nwhile true do end\r\n$1\r\n0\r\n";
        caller.write_all(script).expect("a server");
        let mut pause = tokio::time::interval(Duration::from_millis(10));
        loop {
            pause.tick().await;
            let said = server.try_ask(&["PING"]).map_err(|said| said.to_string());
            if said.is_err_and(|said| said.starts_with("BUSY")) {
                break;
            }
        }
        Self {
            server,
            _caller: caller,
        }
    }

    async fn kill(self) {
        let _ = self.server.ask(&["SCRIPT", "KILL"]);
        self.server.until(&["PING"], "PONG").await;
    }
}

/// A server that soon says that it is busy.
async fn impatient_server() -> RedisServer {
    RedisServer::start(&["--busy-reply-threshold", "10"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_is_recorded_after_a_slow_script_of_somebody_else() {
    let server = impatient_server().await;
    let way = Interceptor::to(server.address()).await;
    let semel = Semel::open(&way.url()).await.unwrap();
    let effect = Effect::default();
    let asked = effect.ask(&semel, "busy");
    effect.begun.notified().await;
    let script = SlowScript::start(&server).await;
    effect.may_end.notify_one();
    way.refused("BUSY", 2).await;
    script.kill().await;
    effect.is_recorded(asked, &semel, "busy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_told_that_a_busy_server_is_unavailable() {
    let server = impatient_server().await;
    let (store, corner) = (open(&server.url()).await, scene(server.url()).await);
    let claim = corner.fresh().unwrap();
    let script = SlowScript::start(&server).await;
    let error = store.claim(&claim).await.expect_err("a busy server");
    script.kill().await;
    assert_eq!(
        known(&error),
        (StoreErrorKind::Unavailable, Certainty::Definite)
    );
    corner.won(&claim).await.unwrap();
}

/// A busy server lets nobody choose a numbered database, so that no connection comes about.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_told_that_a_busy_server_is_unavailable_while_it_connects() {
    let server = impatient_server().await;
    let (store, corner) = (
        open(&format!("{}/1", server.url())).await,
        scene(server.url()).await,
    );
    let _ = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    let script = SlowScript::start(&server).await;
    let error = last_of_three(&store, &corner.fresh().unwrap()).await;
    script.kill().await;
    assert_eq!(
        known(&error),
        (StoreErrorKind::Unavailable, Certainty::Definite)
    );
}

fn known(error: &StoreError) -> (StoreErrorKind, Certainty) {
    (error.kind, error.certainty)
}

/// What a claim is told by a server that lets nobody in. The first may only find out that its
/// connection is gone.
async fn last_of_three(store: &RedisStore, claim: &Claim) -> StoreError {
    let mut told = None;
    for _ in 0..3 {
        let error = store.claim(claim).await.expect_err("nobody is let in");
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error:?}");
        told = Some(error);
    }
    told.expect("asked three times")
}

/// A server with a password, and a connection to it that stays.
struct Crowded {
    server: RedisServer,
    inside: MultiplexedConnection,
}

impl Crowded {
    async fn start() -> Self {
        let server = RedisServer::start(&[]).await;
        let client = redis::Client::open(server.url()).expect("a URL");
        let inside = client.get_multiplexed_async_connection().await;
        let mut crowded = Self {
            server,
            inside: inside.expect("a server"),
        };
        crowded.ask("CONFIG SET requirepass secret").await;
        crowded
    }

    fn url(&self) -> String {
        format!("redis://:secret@{}", self.server.address())
    }

    async fn ask(&mut self, words: &str) -> String {
        let mut words = words.split(' ');
        let mut cmd = redis::cmd(words.next().expect("a command"));
        cmd.arg(words.collect::<Vec<_>>());
        let reply: redis::Value = cmd.query_async(&mut self.inside).await.expect("a reply");
        redis::from_redis_value(reply).unwrap_or_default()
    }

    /// Ends all other connections and lets nobody in.
    async fn close(&mut self) {
        self.ask("CONFIG SET maxclients 1").await;
        self.ask("CLIENT KILL TYPE normal").await;
    }

    /// Waits until so many have been sent away, then lets everybody in.
    async fn open_after(&mut self, times: u64) {
        let mut pause = tokio::time::interval(Duration::from_millis(10));
        loop {
            pause.tick().await;
            let info = self.ask("INFO stats").await;
            let count = info
                .lines()
                .find_map(|line| line.strip_prefix("rejected_connections:"));
            if count.is_some_and(|count| count.trim().parse::<u64>().is_ok_and(|it| it >= times)) {
                break;
            }
        }
        self.ask("CONFIG SET maxclients 10000").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_is_recorded_after_a_server_had_too_many_clients() {
    let mut server = Crowded::start().await;
    let semel = Semel::open(&server.url()).await.unwrap();
    let effect = Effect::default();
    let asked = effect.ask(&semel, "crowded");
    effect.begun.notified().await;
    server.close().await;
    effect.may_end.notify_one();
    server.open_after(2).await;
    effect.is_recorded(asked, &semel, "crowded").await;
}

/// The same if the settlement has to be confirmed by a replica, on a connection of its own.
#[tokio::test(flavor = "multi_thread")]
async fn an_effect_is_recorded_at_a_level_after_a_server_had_too_many_clients() {
    let mut server = Crowded::start().await;
    let port = server.server.port().to_string();
    let _replica =
        RedisServer::start(&["--replicaof", "127.0.0.1", &port, "--masterauth", "secret"]).await;
    let mut pause = tokio::time::interval(Duration::from_millis(10));
    while !server
        .ask("INFO replication")
        .await
        .contains("state=online")
    {
        pause.tick().await;
    }
    let url = format!("{}?durability=wait:1", server.url());
    let semel = Semel::open(&url).await.unwrap();
    let effect = Effect::default();
    let asked = effect.ask(&semel, "crowded");
    effect.begun.notified().await;
    server.close().await;
    effect.may_end.notify_one();
    server.open_after(2).await;
    effect.is_recorded(asked, &semel, "crowded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_told_that_a_server_with_too_many_clients_is_unavailable() {
    let mut server = Crowded::start().await;
    let (store, corner) = (open(&server.url()).await, scene(server.url()).await);
    let claim = corner.fresh().unwrap();
    server.close().await;
    let error = last_of_three(&store, &claim).await;
    assert_eq!(
        known(&error),
        (StoreErrorKind::Unavailable, Certainty::Definite)
    );
    server.open_after(2).await;
    let claimed = store.claim(&claim).await.unwrap();
    assert!(matches!(claimed, Claimed::Won(_)), "{claimed:?}");
}

/// A wrong password is no passing state.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_told_that_a_changed_password_is_refused() {
    let mut server = Crowded::start().await;
    let (store, corner) = (open(&server.url()).await, scene(server.url()).await);
    let claim = corner.fresh().unwrap();
    server.ask("CONFIG SET requirepass another").await;
    server.ask("CLIENT KILL TYPE normal").await;
    // The first claim may only find out that its connection is gone.
    let _ = store.claim(&claim).await.expect_err("a wrong password");
    let error = store.claim(&claim).await.expect_err("a wrong password");
    assert_eq!(
        known(&error),
        (StoreErrorKind::Rejected, Certainty::Definite)
    );
}
