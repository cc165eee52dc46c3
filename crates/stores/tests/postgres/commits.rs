//! Commits that hang: their sessions are ended, or the caller's time is up before they are done.

use semel::{Error, Failure, Semel, TypedAnswer};
use semel_core::{Settled, Store};
use semel_testkit::private::PostgresServer;
use sqlx::{Connection as _, PgConnection, PgPool};

use crate::open;
use crate::support::{complete, fresh, sleep, won};

fn set(server: &PostgresServer, what: &str) {
    server.sql("postgres", what);
    server.sql("postgres", "select pg_reload_conf()");
}

const NOBODY: &str = "alter system set synchronous_standby_names = 'nobody'";
const AS_EVER: &str = "alter system reset synchronous_standby_names";

const WAITING: &str = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";

/// Waits until commits wait for a replica. A session that shows the setting says nothing about
/// that: commits go by what the checkpointer has seen. So one commit after the other is tried,
/// until one waits.
pub(crate) async fn until_commits_wait(server: &PostgresServer) {
    let cancel = "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'";
    for _ in 0..600 {
        let url = server.url();
        let probe = tokio::spawn(async move {
            let mut session = PgConnection::connect(&url).await.expect("a server");
            let write = sqlx::query("select pg_logical_emit_message(true, 'probe', '')");
            write.execute(&mut session).await.expect("a commit");
        });
        while !probe.is_finished() {
            if server.sql("postgres", WAITING) == "1" {
                server.sql("postgres", cancel);
                return probe.await.expect("no panic");
            }
            sleep(20).await;
        }
        probe.await.expect("no panic");
        sleep(50).await;
    }
    panic!("no commit ever waits");
}

/// Starts work whose commit waits for a replica that isn't there.
async fn hanging<T: Send + 'static>(
    server: &PostgresServer,
    work: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    set(server, NOBODY);
    until_commits_wait(server).await;
    let work = tokio::spawn(work);
    while server.sql("postgres", WAITING) != "1" {
        assert!(!work.is_finished(), "it was committed without a wait");
        sleep(20).await;
    }
    work
}

/// A session is ended in the middle of its commit.
async fn with_hanging_commits<T: Send + 'static>(
    server: &PostgresServer,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let work = hanging(server, work).await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'";
    server.sql("postgres", end);
    set(server, AS_EVER);
    work.await.expect("no panic")
}

/// A commit takes longer than a call may, and is done then.
async fn with_slow_commits<T: Send + 'static>(
    server: &PostgresServer,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let work = hanging(server, work).await;
    sleep(7_000).await;
    set(server, AS_EVER);
    work.await.expect("no panic")
}

/// A server with a ledger, and everything open: what is opened commits, too.
async fn ledger() -> (PostgresServer, Semel, PgPool) {
    let server = PostgresServer::start(&[]).await;
    let semel = Semel::open(&server.url()).await.expect("a store");
    let pool = PgPool::connect(&server.url()).await.expect("a server");
    server.sql("semel", "create table ledger (entry text)");
    (server, semel, pool)
}

/// An entry in the ledger, its receipt, and the record of its key: one transaction.
async fn transfer(semel: Semel, pool: PgPool) -> Result<TypedAnswer<String>, Error> {
    let call = semel.operation("transfer").key("k-1").payload(&1);
    call.run_in(&pool, async |mut tx, _| {
        let write = sqlx::query("INSERT INTO ledger VALUES ('once')");
        write.execute(&mut *tx).await?;
        Ok::<_, Failure>("receipt".to_owned())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_commit_is_resolved_by_the_token() {
    let server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    let claim = fresh();
    let claiming = {
        let (store, claim) = (store.clone(), claim.clone());
        async move { won(&store, &claim).await }
    };
    let lease = with_hanging_commits(&server, claiming).await;
    assert_eq!((lease.attempt, lease.token), (1, claim.token));
    let settling = {
        let (store, lease) = (store.clone(), lease.clone());
        async move { store.settle(&lease, &complete("once")).await }
    };
    assert_eq!(
        with_hanging_commits(&server, settling).await.unwrap(),
        Settled::Done
    );
    assert_eq!(
        server.sql("semel", "select count(*) from semel.records"),
        "1"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered_commit_is_resolved_by_the_token() {
    let (server, semel, pool) = ledger().await;
    let answer = with_hanging_commits(&server, transfer(semel, pool))
        .await
        .unwrap();
    assert_eq!((answer.value.as_str(), answer.replayed), ("receipt", false));
    assert_eq!(server.sql("semel", "select count(*) from ledger"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_commit_is_not_reported_as_rolled_back() {
    let (server, semel, pool) = ledger().await;
    let answer = with_slow_commits(&server, transfer(semel, pool))
        .await
        .unwrap();
    assert_eq!(answer.value, "receipt");
    assert_eq!(server.sql("semel", "select count(*) from ledger"), "1");
}
