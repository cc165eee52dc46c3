//! What becomes of the tables: updates within their page, bodies by the day, sweeping and the
//! archive.

use semel_core::{Settled, Store, StoreAdmin as _};
use semel_testkit::private::PostgresServer;

use crate::open;
use crate::support::{brief, complete, done, fresh, sleep, won};

#[tokio::test]
async fn settling_stays_within_the_page() {
    let server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    for _ in 0..400 {
        assert!(done(&store, &fresh()).await);
    }
    drop(store);
    let counted = "select sum(n_tup_upd) >= 400 and sum(n_tup_hot_upd) >= 0.9 * sum(n_tup_upd) \
                   from pg_stat_user_tables where schemaname = 'semel'";
    let mut tries = 0;
    // Statistics arrive when sessions end.
    while server.sql("semel", counted) != "t" && tries < 50 {
        sleep(100).await;
        tries += 1;
    }
    let figures = "select sum(n_tup_hot_upd), sum(n_tup_upd) from pg_stat_user_tables where schemaname = 'semel'";
    assert_eq!(
        server.sql("semel", counted),
        "t",
        "{}",
        server.sql("semel", figures)
    );
}

#[tokio::test]
async fn expired_records_are_swept_and_live_ones_are_not() {
    let server = PostgresServer::start(&[]).await;
    let store = open(&format!("{}?archive=on", server.url())).await;
    let mut kept = Vec::new();
    for _ in 0..50 {
        won(&store, &brief()).await;
        kept.push(fresh());
        won(&store, &kept[kept.len() - 1]).await;
    }
    // On a slow machine the first may be over by now.
    let early = store.sweep(1_000).await.unwrap();
    sleep(1_100).await;
    let some = store.sweep(20).await.unwrap();
    assert_eq!(some, 20.min(50 - early));
    assert_eq!(store.sweep(1_000).await.unwrap(), 50 - early - some);
    assert_eq!(store.sweep(1_000).await.unwrap(), 0);
    for claim in kept {
        assert!(store.read(&claim.identity).await.unwrap().is_some());
    }
    assert_eq!(
        server.sql("semel", "select count(*) from semel.archive"),
        "50"
    );
}

#[tokio::test]
async fn without_an_archive_nothing_is_kept_of_the_swept() {
    let server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    won(&store, &brief()).await;
    sleep(1_100).await;
    assert_eq!(store.sweep(10).await.unwrap(), 1);
    assert_eq!(
        server.sql("semel", "select count(*) from semel.archive"),
        "0"
    );
}

#[tokio::test]
async fn large_bodies_live_in_a_partition_for_their_day_and_go_with_it() {
    let server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    let (claim, large) = (fresh(), complete(&"x".repeat(200_000)));
    let lease = won(&store, &claim).await;
    store.settle(&lease, &large).await.unwrap();
    assert_eq!(
        server.sql("semel", "select count(*) from semel.bodies"),
        "1"
    );
    let small = "select count(*) from semel.records where octet_length(body) > 1000";
    assert_eq!(server.sql("semel", small), "0");
    let days = "select count(*) from pg_inherits where inhparent = 'semel.bodies'::regclass";
    assert_eq!(server.sql("semel", days), "1");
    // A day that is past is dropped by the sweeper; the one in use is not.
    server.sql("semel", "select semel.open_day(20000)");
    assert_eq!(server.sql("semel", days), "2");
    store.sweep(10).await.unwrap();
    assert_eq!(server.sql("semel", days), "1");
    let record = store.read(&claim.identity).await.unwrap().unwrap();
    assert_eq!(record.answer.as_ref(), large.answer());
    assert!(store.delete(&claim.identity).await.unwrap());
    assert_eq!(
        server.sql("semel", "select count(*) from semel.bodies"),
        "0"
    );
}

#[tokio::test]
async fn a_day_whose_partition_is_gone_is_made_anew() {
    let server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    let large = complete(&"x".repeat(200_000));
    let settle = async || {
        let lease = won(&store, &fresh()).await;
        store.settle(&lease, &large).await
    };
    assert_eq!(settle().await.unwrap(), Settled::Done);
    // As a failover does to a replica that had not received it yet.
    let partition =
        "select inhrelid::regclass from pg_inherits where inhparent = 'semel.bodies'::regclass";
    let partition = server.sql("semel", partition);
    server.sql("semel", &format!("drop table {partition}"));
    assert_eq!(settle().await.unwrap(), Settled::Done);
    assert_eq!(
        server.sql("semel", "select count(*) from semel.bodies"),
        "1"
    );
}

/// A session may not see yet that another has just made the partition, and make it again.
#[tokio::test]
async fn processes_that_need_a_new_day_at_once_all_settle() {
    let server = PostgresServer::start(&[]).await;
    let mut stores = Vec::new();
    for _ in 0..8 {
        stores.push(open(&server.url()).await);
    }
    let large = complete(&"x".repeat(40_000));
    let all_gone = "do $$ declare name text; begin for name in select inhrelid::regclass from pg_inherits \
                    where inhparent = 'semel.bodies'::regclass loop execute 'drop table ' || name; end loop; end $$";
    for _ in 0..25 {
        server.sql("semel", all_gone);
        let settled = stores.iter().map(|store| async {
            let lease = won(store, &fresh()).await;
            store.settle(&lease, &large).await
        });
        for settled in futures_util::future::join_all(settled).await {
            assert_eq!(settled.expect("settled"), Settled::Done);
        }
    }
}
