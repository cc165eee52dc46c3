//! Cut connections, ended sessions, killed servers: nothing acknowledged is lost, and nobody gets
//! another's answer.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::time::Duration;

use semel_core::{Certainty, Claim, Claimed, Renewed, Settled, Settlement, Store, StoreErrorKind};
use semel_testkit::private::{PostgresServer, url_at};
use semel_testkit::proxy::{Cut, Proxy, Way};
use sqlx::PgPool;

use crate::commits::until_commits_wait;
use crate::support::{Load, again, complete, done, fresh, lost, of, sleep, won};
use crate::{lost_reply, open};

async fn proxy(server: &PostgresServer) -> Proxy {
    let proxy = Proxy::to(server.address(), semel::tokio_env().clock).await;
    proxy.expect("a port")
}

#[tokio::test]
async fn reply_lost_after_the_write_is_recovered_by_a_retry() {
    let server = PostgresServer::start(&[]).await;
    let proxy = proxy(&server).await;
    let url = format!("{}?max_connections=1", url_at(proxy.address()));
    let store = open(&url).await;
    won(&store, &fresh()).await; // Statements are prepared by now.
    for _ in 0..8 {
        let mut claim = fresh();
        // The same statement of every partition has to be prepared first.
        while claim.identity.address()[0] >> 6 != 0 {
            claim = fresh();
        }
        let before = proxy.cuts();
        proxy.cut(Cut::BeforeReply);
        let lease = won(&store, &claim).await;
        assert_eq!((lease.attempt, proxy.cuts()), (1, before + 1));
        assert_eq!(lease.token, claim.token);

        proxy.cut(Cut::BeforeReply);
        assert_eq!(store.renew(&lease, None).await.unwrap(), Renewed::Held);

        proxy.cut(Cut::BeforeReply);
        let settled = store.settle(&lease, &complete("once")).await.unwrap();
        assert_eq!((settled, proxy.cuts()), (Settled::Done, before + 3));
        let Claimed::Replay(replay) = store.claim(&again(&claim)).await.unwrap() else {
            panic!("a replay was expected");
        };
        assert_eq!(replay.answer, *complete("once").answer().unwrap());
    }
}

#[tokio::test]
async fn a_reply_lost_with_no_way_to_ask_again_is_not_definite() {
    let server = PostgresServer::start(&[]).await;
    let proxy = proxy(&server).await;
    let store = open(&format!("{}?max_connections=1", url_at(proxy.address()))).await;
    let direct = open(&server.url()).await;
    // The same statement of one partition has to be prepared first.
    let in_first = || {
        let claims = std::iter::repeat_with(fresh);
        let mut first = claims.filter(|claim| claim.identity.address()[0] >> 6 == 0);
        first.next().expect("some key is in it")
    };
    lost_reply::is_not_definite(&proxy, &store, &direct, in_first).await;
}

#[tokio::test]
async fn a_deletion_whose_reply_was_lost_is_not_denied() {
    let server = PostgresServer::start(&[]).await;
    let proxy = proxy(&server).await;
    let store = open(&format!("{}?max_connections=1", url_at(proxy.address()))).await;
    let direct = open(&server.url()).await;
    let in_first = || {
        let claims = std::iter::repeat_with(fresh);
        let mut first = claims.filter(|claim| claim.identity.address()[0] >> 6 == 0);
        first.next().expect("some key is in it")
    };
    lost_reply::of_a_deletion_is_not_denied(&proxy, &store, &direct, in_first).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_calls_never_leak_their_reply_to_another() {
    let server = PostgresServer::start(&[]).await;
    let proxy = proxy(&server).await;
    let store = open(&format!("{}?max_connections=4", url_at(proxy.address()))).await;
    let mut keys = Vec::new();
    for i in 0..16 {
        let claim = of(&format!("reader-{i}"));
        let lease = won(&store, &claim).await;
        store
            .settle(&lease, &complete(&format!("answer {i}")))
            .await
            .unwrap();
        keys.push(claim);
    }
    proxy.delay(Way::Reply, Duration::from_millis(1));
    let leavers = tokio::spawn({
        let (store, keys) = (store.clone(), keys.clone());
        async move {
            for i in 0..2_000_u64 {
                let key = &keys[usize::try_from(i).unwrap() % keys.len()];
                let limit = Duration::from_micros(i * 7919 % 3000);
                drop(tokio::time::timeout(limit, store.read(&key.identity)).await);
            }
        }
    });
    let mut read = 0;
    while !leavers.is_finished() || read <= keys.len() {
        for (i, key) in keys.iter().enumerate() {
            let record = store.read(&key.identity).await.unwrap().unwrap();
            assert_eq!(
                record.answer.as_ref(),
                complete(&format!("answer {i}")).answer()
            );
            read += 1;
        }
    }
    leavers.await.unwrap();
}

#[tokio::test]
async fn a_statement_that_takes_too_long_has_changed_nothing() {
    let server = PostgresServer::start(&[]).await;
    // What makes the tables is not what is limited.
    drop(open(&server.url()).await);
    let limit = "alter role semel set statement_timeout = '1s'";
    server.sql("postgres", limit);
    let store = open(&server.url()).await;
    let claim = fresh();
    let pool = PgPool::connect(&server.url()).await.unwrap();
    let mut lock = pool.begin().await.unwrap();
    let text = "LOCK TABLE semel.records IN ACCESS EXCLUSIVE MODE";
    sqlx::query(text).execute(&mut *lock).await.unwrap();
    let error = store.claim(&claim).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert_eq!(error.certainty, Certainty::Definite);
    lock.rollback().await.unwrap();
    assert!(store.read(&claim.identity).await.unwrap().is_none());
    assert_eq!(won(&store, &claim).await.attempt, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_loses_nothing_that_was_acknowledged() {
    let mut server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    let load = Load::on(&store);
    load.more(60).await;
    server.kill();
    let acknowledged = load.stop().await;
    server.restart().await;
    assert!(
        acknowledged.len() > 50,
        "only {} acknowledged",
        acknowledged.len()
    );
    assert_eq!(lost(&store, &acknowledged).await, 0);
}

/// A primary and a replica that is behind a way the test can close.
struct Pair {
    primary: PostgresServer,
    replica: PostgresServer,
    way: Proxy,
}

impl Pair {
    async fn start() -> Self {
        let primary = PostgresServer::start(&[]).await;
        let way = proxy(&primary).await;
        let replica = PostgresServer::replica_of(way.address(), "replica", &[]).await;
        let following = "select count(*) from pg_stat_replication where state = 'streaming'";
        while primary.sql("postgres", following) != "1" {
            sleep(50).await;
        }
        Self {
            primary,
            replica,
            way,
        }
    }

    /// Load on the primary, whose way to the replica is closed half-way; then the primary fails,
    /// and the replica takes its place. → how many were acknowledged, and how many of these are
    /// lost.
    async fn fail_over(mut self) -> (usize, usize) {
        let store = open(&self.primary.url()).await;
        let load = Load::on(&store);
        load.more(40).await;
        self.way.hold(Way::Reply, true);
        // Long enough for many more, if they are acknowledged without the replica.
        let _ = tokio::time::timeout(Duration::from_secs(3), load.more(40)).await;
        self.primary.kill();
        let acknowledged = load.stop().await;
        self.way.cut_all();
        self.replica.promote();
        let after = open(&self.replica.url()).await;
        (acknowledged.len(), lost(&after, &acknowledged).await)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asynchronous_replica_may_lose_what_was_acknowledged() {
    let pair = Pair::start().await;
    let (acknowledged, lost) = pair.fail_over().await;
    assert!(acknowledged > 20, "{acknowledged} acknowledged");
    assert!(
        lost > 0,
        "this shows what the guarantees page says may happen"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_replica_loses_nothing_that_was_acknowledged() {
    let pair = Pair::start().await;
    let names = "alter system set synchronous_standby_names = 'FIRST 1 (replica)'";
    pair.primary.sql("postgres", names);
    pair.primary.sql("postgres", "select pg_reload_conf()");
    // What is acknowledged before the server has seen that may be lost.
    pair.way.hold(Way::Reply, true);
    until_commits_wait(&pair.primary).await;
    pair.way.hold(Way::Reply, false);
    let (acknowledged, lost) = pair.fail_over().await;
    assert!(acknowledged > 20, "{acknowledged} acknowledged");
    assert_eq!(lost, 0);
}

#[tokio::test]
async fn a_server_that_comes_back_is_used_again() {
    let mut server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    assert!(done(&store, &fresh()).await);
    server.kill();
    assert!(!done(&store, &fresh()).await);
    server.restart().await;
    assert!(done(&store, &fresh()).await);
}

/// A key that is claimed and given back without end: another is quicker each time, which is an
/// answer and no error (P4).
#[tokio::test]
async fn a_claim_that_is_overtaken_every_time_is_answered_busy() {
    let server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    let claim = fresh();
    let lease = won(&store, &claim).await;
    let given_back = store.settle(&lease, &Settlement::Release).await;
    assert_eq!(given_back.unwrap(), Settled::Done);
    let each = |what: &str| {
        for part in 0..4 {
            server.sql(
                "semel",
                &what.replace("{records}", &format!("semel.records_{part}")),
            );
        }
    };
    server.sql(
        "semel",
        "create function semel.quicker() returns trigger language plpgsql as $$ begin return null; end $$",
    );
    each(
        "create trigger quicker before update on {records} for each row execute function semel.quicker()",
    );
    let another = Claim {
        token: fresh().token,
        ..claim.clone()
    };
    let Claimed::Busy(busy) = store.claim(&another).await.unwrap() else {
        panic!("nobody could have won");
    };
    assert!(busy.retry_after < claim.terms.lease(), "{busy:?}");
    each("drop trigger quicker on {records}");
    won(&store, &another).await;
}
