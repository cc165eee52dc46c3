//! Cut connections, ended sessions, killed servers: nothing acknowledged is lost, and nobody gets
//! another's answer.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::time::Duration;

use semel_core::{Certainty, Claimed, Renewed, Settled, Store, StoreErrorKind};
use semel_testkit::private::MariaDbServer;
use semel_testkit::proxy::{Cut, Proxy, Way};
use sqlx::mysql::MySqlPool;

use crate::support::{Load, again, complete, done, fresh, lost, of, sleep, won};
use crate::{lost_reply, open};

async fn proxy(server: &MariaDbServer) -> Proxy {
    let proxy = Proxy::to(server.address(), semel::tokio_env().clock).await;
    proxy.expect("a port")
}

#[tokio::test]
async fn reply_lost_after_the_write_is_recovered_by_a_retry() {
    let server = MariaDbServer::start(&[]).await;
    let proxy = proxy(&server).await;
    let store = open(&format!(
        "{}?max_connections=1",
        MariaDbServer::url_at(proxy.address())
    ))
    .await;
    for _ in 0..8 {
        // A connection that was cut is made anew, and statements are prepared on it anew: only then
        // is the next reply the one that matters.
        let prepare = async || {
            let other = fresh();
            let lease = won(&store, &other).await;
            store.renew(&lease, None).await.unwrap();
            store.settle(&lease, &complete("another")).await.unwrap();
            store.read(&other.identity).await.unwrap();
        };
        let claim = fresh();
        let before = proxy.cuts();
        prepare().await;
        proxy.cut(Cut::BeforeReply);
        let lease = won(&store, &claim).await;
        assert_eq!((lease.attempt, proxy.cuts()), (1, before + 1));
        assert_eq!(lease.token, claim.token);
        let record = store.read(&claim.identity).await.unwrap().unwrap();
        assert_eq!(
            record.fence, lease.fence,
            "the fence of the claim that was written"
        );

        prepare().await;
        proxy.cut(Cut::BeforeReply);
        assert_eq!(store.renew(&lease, None).await.unwrap(), Renewed::Held);

        prepare().await;
        proxy.cut(Cut::BeforeReply);
        let settled = store.settle(&lease, &complete("once")).await.unwrap();
        assert_eq!((settled, proxy.cuts()), (Settled::Done, before + 3));
        // Sent again with the same token: the same result.
        let settled = store.settle(&lease, &complete("once")).await.unwrap();
        assert_eq!(settled, Settled::Done);
        let Claimed::Replay(replay) = store.claim(&again(&claim)).await.unwrap() else {
            panic!("a replay was expected");
        };
        assert_eq!(replay.answer, *complete("once").answer().unwrap());
    }
}

#[tokio::test]
async fn a_reply_lost_with_no_way_to_ask_again_is_not_definite() {
    let server = MariaDbServer::start(&[]).await;
    let proxy = proxy(&server).await;
    let url = MariaDbServer::url_at(proxy.address());
    let store = open(&format!("{url}?max_connections=1")).await;
    let direct = open(&server.url()).await;
    lost_reply::is_not_definite(&proxy, &store, &direct, fresh).await;
}

#[tokio::test]
async fn a_deletion_whose_reply_was_lost_is_not_denied() {
    let server = MariaDbServer::start(&[]).await;
    let proxy = proxy(&server).await;
    let url = MariaDbServer::url_at(proxy.address());
    let store = open(&format!("{url}?max_connections=1")).await;
    let direct = open(&server.url()).await;
    lost_reply::of_a_deletion_is_not_denied(&proxy, &store, &direct, fresh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_calls_never_leak_their_reply_to_another() {
    let server = MariaDbServer::start(&[]).await;
    let proxy = proxy(&server).await;
    let store = open(&format!(
        "{}?max_connections=4",
        MariaDbServer::url_at(proxy.address())
    ))
    .await;
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
            for i in 0..1_000_u64 {
                let key = &keys[usize::try_from(i).unwrap() % keys.len()];
                let limit = Duration::from_micros(i * 7919 % 5000);
                drop(tokio::time::timeout(limit, store.read(&key.identity)).await);
            }
        }
    });
    let mut read = 0;
    while !leavers.is_finished() || read <= keys.len() {
        for (i, key) in keys.iter().enumerate() {
            let record = store.read(&key.identity).await.unwrap().unwrap();
            let expected = complete(&format!("answer {i}"));
            assert_eq!(record.answer.as_ref(), expected.answer());
            read += 1;
        }
    }
    leavers.await.unwrap();
}

#[tokio::test]
async fn a_statement_that_takes_too_long_has_changed_nothing() {
    let server = MariaDbServer::start(&[]).await;
    // What makes the tables is not what is limited.
    drop(open(&server.url()).await);
    server.sql("set global max_statement_time = 1");
    let store = open(&server.url()).await;
    let claim = fresh();
    let pool = MySqlPool::connect(&server.url()).await.unwrap();
    let mut lock = pool.acquire().await.unwrap();
    sqlx::raw_sql("LOCK TABLES semel_records WRITE")
        .execute(&mut *lock)
        .await
        .unwrap();
    let error = store.claim(&claim).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert_eq!(error.certainty, Certainty::Definite);
    sqlx::raw_sql("UNLOCK TABLES")
        .execute(&mut *lock)
        .await
        .unwrap();
    assert!(store.read(&claim.identity).await.unwrap().is_none());
    assert_eq!(won(&store, &claim).await.attempt, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_killed_during_a_statement_is_replaced() {
    let server = MariaDbServer::start(&[]).await;
    let store = open(&server.url()).await;
    let pool = MySqlPool::connect(&server.url()).await.unwrap();
    let mut lock = pool.acquire().await.unwrap();
    sqlx::raw_sql("LOCK TABLES semel_records WRITE")
        .execute(&mut *lock)
        .await
        .unwrap();
    let claim = fresh();
    let claiming = tokio::spawn({
        let (store, claim) = (store.clone(), claim.clone());
        async move { won(&store, &claim).await }
    });
    let waits = "select coalesce(max(id), 0) from information_schema.processlist \
                 where state like '%metadata lock%'";
    while server.sql(waits) == "0" {
        sleep(20).await;
    }
    server.sql(&format!("kill {}", server.sql(waits)));
    sqlx::raw_sql("UNLOCK TABLES")
        .execute(&mut *lock)
        .await
        .unwrap();
    assert_eq!(claiming.await.unwrap().token, claim.token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_ended_together_cost_nobody_an_answer() {
    let server = MariaDbServer::start(&[]).await;
    let store = open(&server.url()).await;
    let pool = MySqlPool::connect(&server.url()).await.unwrap();
    let mut lock = pool.acquire().await.unwrap();
    let held = sqlx::raw_sql("LOCK TABLES semel_records WRITE");
    held.execute(&mut *lock).await.unwrap();
    let claims: Vec<_> = (0..8).map(|_| fresh()).collect();
    // Reads share no statement, so each has a connection.
    let reading =
        futures_util::future::join_all(claims.iter().map(|claim| store.read(&claim.identity)));
    let unlocking = async {
        let waiting =
            "select id from information_schema.processlist where state like '%metadata lock%'";
        let mut sessions = String::new();
        while sessions.lines().count() != 8 {
            sleep(20).await;
            sessions = server.sql(waiting);
        }
        let free = sqlx::raw_sql("UNLOCK TABLES");
        free.execute(&mut *lock).await.unwrap();
        sessions
    };
    let (_, sessions) = tokio::join!(reading, unlocking);
    for session in sessions.lines() {
        server.sql(&format!("kill {session}"));
    }
    assert!(store.read(&fresh().identity).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_loses_nothing_that_was_acknowledged() {
    let mut server = MariaDbServer::start(&["log-bin=binlog", "server-id=1"]).await;
    let store = open(&server.url()).await;
    let mut acknowledged = Vec::new();
    for _ in 0..2 {
        let load = Load::on(&store);
        load.more(30).await;
        server.kill();
        acknowledged.extend(load.stop().await);
        server.restart().await;
    }
    assert!(
        acknowledged.len() > 50,
        "only {} acknowledged",
        acknowledged.len()
    );
    assert_eq!(lost(&store, &acknowledged).await, 0);
}

#[tokio::test]
async fn a_server_that_comes_back_is_used_again() {
    let mut server = MariaDbServer::start(&[]).await;
    let store = open(&server.url()).await;
    assert!(done(&store, &fresh()).await);
    server.kill();
    assert!(!done(&store, &fresh()).await);
    server.restart().await;
    assert!(done(&store, &fresh()).await);
}
