//! Sessions: shared by many callers; and ended by an administrator, in mid-statement and while they
//! wait in the pool.

use std::collections::BTreeSet;

use semel_core::{Settled, Store, StoreAdmin as _};
use semel_stores::postgres::PostgresStore;
use semel_testkit::private::PostgresServer;
use sqlx::PgPool;

use crate::open;
use crate::support::{complete, fresh, sleep, won};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_callers_share_four_sessions() {
    const CALLERS: usize = 100;
    let server = PostgresServer::start(&[]).await;
    let store = open(&format!("{}?max_connections=4", server.url())).await;
    let call = |store: PostgresStore| async move {
        for _ in 0..10 {
            let claim = fresh();
            let lease = won(&store, &claim).await;
            store.settle(&lease, &complete("done")).await.unwrap();
            assert!(store.read(&claim.identity).await.unwrap().is_some());
        }
    };
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| tokio::spawn(call(store.clone())))
        .collect();
    let sessions = "select pid from pg_stat_activity where application_name = 'semel'";
    let mut seen = BTreeSet::new();
    loop {
        let done = callers.iter().all(tokio::task::JoinHandle::is_finished);
        let now = server.sql("postgres", sessions);
        seen.extend(now.lines().map(str::to_owned));
        if done {
            break;
        }
        sleep(5).await;
    }
    for caller in callers {
        caller.await.unwrap();
    }
    // All calls went over the same sessions; none was replaced.
    assert!((1..=4).contains(&seen.len()), "{seen:?}");
    let connections = store.connections().expect("a pool");
    assert_eq!((connections.most, connections.exhausted), (Some(4), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_killed_during_a_statement_is_replaced() {
    let server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    let pool = PgPool::connect(&server.url()).await.unwrap();
    let mut lock = pool.begin().await.unwrap();
    let text = "LOCK TABLE semel.records IN ACCESS EXCLUSIVE MODE";
    sqlx::query(text).execute(&mut *lock).await.unwrap();
    let claim = fresh();
    let claiming = tokio::spawn({
        let (store, claim) = (store.clone(), claim.clone());
        async move { won(&store, &claim).await }
    });
    let waits = "application_name = 'semel' and wait_event_type = 'Lock'";
    let waiting = format!("select count(*) from pg_stat_activity where {waits}");
    while server.sql("postgres", &waiting) != "1" {
        sleep(20).await;
    }
    let end = format!("select pg_terminate_backend(pid) from pg_stat_activity where {waits}");
    server.sql("postgres", &end);
    lock.rollback().await.unwrap();
    assert_eq!(claiming.await.unwrap().token, claim.token);
}

/// Makes eight connections, and has an administrator end all of them while they wait for work.
async fn end_eight_sessions(server: &PostgresServer, store: &PostgresStore) {
    let pool = PgPool::connect(&server.url()).await.expect("a server");
    let mut lock = pool.begin().await.expect("a transaction");
    let text = "LOCK TABLE semel.records IN ACCESS EXCLUSIVE MODE";
    let locked = sqlx::query(text).execute(&mut *lock).await;
    locked.expect("a lock");
    let claims: Vec<_> = (0..8).map(|_| fresh()).collect();
    // Reads share no statement, so each has a connection.
    let reading =
        futures_util::future::join_all(claims.iter().map(|claim| store.read(&claim.identity)));
    let unlocking = async {
        let waiting = "select count(*) from pg_stat_activity where application_name = 'semel' \
                       and wait_event_type = 'Lock'";
        while server.sql("postgres", waiting) != "8" {
            sleep(20).await;
        }
        lock.rollback().await.expect("no lock");
    };
    tokio::join!(reading, unlocking);
    let end = "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity \
               where application_name = 'semel'";
    let ended: u32 = server.sql("postgres", end).parse().expect("a number");
    assert!(ended >= 8, "{ended} ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_ended_together_cost_nobody_an_answer() {
    let server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    let claim = fresh();
    end_eight_sessions(&server, &store).await;
    assert!(store.read(&claim.identity).await.unwrap().is_none());

    // What takes a transaction, too: a large body and its record.
    let large = complete(&"x".repeat(300_000));
    let lease = won(&store, &fresh()).await;
    assert_eq!(store.settle(&lease, &large).await.unwrap(), Settled::Done);
    let lease = won(&store, &claim).await;
    end_eight_sessions(&server, &store).await;
    assert_eq!(store.settle(&lease, &large).await.unwrap(), Settled::Done);
}
