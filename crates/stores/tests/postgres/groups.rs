//! Claims and settlements that come at the same time share statements.

use semel::{Failure, Semel};
use semel_core::Settled;
use semel_testkit::private::{PostgresServer, url_at};
use semel_testkit::proxy::Proxy;
use sqlx::{PgPool, Row as _};
use tokio::sync::oneshot;

use crate::groups_shared::{self as shared, settle_all, win_all};
use crate::open;
use crate::support::fresh;

/// How many transactions wrote the records that are there, and how many records there are.
async fn writers(pool: &PgPool) -> (i64, i64) {
    let text = "SELECT count(DISTINCT xmin::text), count(*) FROM semel.records";
    let row = sqlx::query(text).fetch_one(pool).await.expect("a server");
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn simultaneous_calls_share_transactions() {
    let server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    let pool = PgPool::connect(&server.url()).await.expect("a server");
    let claims: Vec<_> = (0..200).map(|_| fresh()).collect();
    let grants = win_all(&store, &claims).await;
    let (writing, records) = writers(&pool).await;
    assert!(
        records >= 200 && writing * 3 < records,
        "{writing} wrote {records}"
    );
    for settled in settle_all(&store, &claims, &grants).await {
        assert_eq!(settled, Settled::Done);
    }
    let (writing, records) = writers(&pool).await;
    assert!(
        records >= 200 && writing * 3 < records,
        "{writing} wrote {records}"
    );
}

#[tokio::test]
async fn each_key_has_one_owner() {
    let server = PostgresServer::start(&[]).await;
    shared::each_key_has_one_owner(&open(&server.url()).await).await;
}

#[tokio::test]
async fn caller_that_leaves_takes_nobody_along() {
    let server = PostgresServer::start(&[]).await;
    shared::caller_that_leaves_takes_nobody_along(&open(&server.url()).await).await;
}

#[tokio::test]
async fn lost_reply_doubts_nobody() {
    let server = PostgresServer::start(&[]).await;
    let proxy = Proxy::to(server.address(), semel::tokio_env().clock).await;
    let proxy = proxy.expect("a port");
    let store = open(&url_at(proxy.address())).await;
    shared::lost_reply_doubts_nobody(&proxy, &store).await;
}

/// The key of an open transaction is claimed in the same batch as others, which are answered before
/// that transaction ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_transaction_delays_no_other_key() {
    let server = PostgresServer::start(&[]).await;
    let semel = Semel::open(&server.url()).await.expect("a store");
    let pool = PgPool::connect(&server.url()).await.expect("a server");
    let store = open(&server.url()).await;
    let (begun, is_begun) = oneshot::channel();
    let (end, is_ended) = oneshot::channel::<()>();
    let call = semel.operation("transfer").key("open").payload(&1);
    let open_run = tokio::spawn(async move {
        call.run_in(&pool, async move |_, _| {
            begun.send(()).expect("the test waits for it");
            is_ended.await.expect("the test ends it");
            Ok::<_, Failure>(())
        })
        .await
    });
    is_begun.await.expect("the effect begins");
    let waiter = semel.operation("transfer").key("open").payload(&1);
    let waiter = tokio::spawn(async move { waiter.run(|_| async { Ok::<_, Failure>(()) }).await });
    for _ in 0..3 {
        let claims: Vec<_> = (0..50).map(|_| fresh()).collect();
        let grants = win_all(&store, &claims).await;
        for settled in settle_all(&store, &claims, &grants).await {
            assert_eq!(settled, Settled::Done);
        }
    }
    assert!(!open_run.is_finished());
    end.send(()).expect("the effect waits for it");
    open_run.await.expect("no panic").expect("committed");
    let replayed = waiter.await.expect("no panic").expect("an answer");
    assert!(replayed.replayed);
}
