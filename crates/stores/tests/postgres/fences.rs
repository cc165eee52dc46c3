//! Fences grow regardless of a record and of the server's clock (P22).

use std::path::PathBuf;
use std::time::Duration;

use semel_core::{Claim, StoreAdmin as _};
use semel_stores::postgres::PostgresStore;
use semel_testkit::private::{PostgresServer, new_folder};
use sqlx::Connection as _;

use crate::open;
use crate::support::{fresh, sleep, terms, won};

/// A server whose clock the test sets.
struct Clocked {
    server: PostgresServer,
    folder: PathBuf,
}

impl Clocked {
    async fn start() -> Self {
        let library = std::env::var("SEMEL_TEST_FAKETIME").expect(
            "SEMEL_TEST_FAKETIME is not set: start the servers with `cargo xtask services up`",
        );
        let folder = new_folder("clock");
        let file = folder.join("offset");
        std::fs::write(&file, "+0s\n").expect("a file");
        let file = file.display().to_string();
        let environment = [
            ("LD_PRELOAD", library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", file.as_str()),
            ("FAKETIME_CACHE_DURATION", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        let server = PostgresServer::start_in(&[], &environment).await;
        Self { server, folder }
    }

    /// Sets the clock, and waits until the sessions of `store` have seen it.
    async fn set(&self, store: &PostgresStore, offset: &str) {
        let before = store.now().await.expect("a server");
        let beside = self.folder.join("next");
        std::fs::write(&beside, format!("{offset}\n")).expect("a file");
        std::fs::rename(beside, self.folder.join("offset")).expect("a file");
        // Each session has a time of its own for a second: until the last of them has read the
        // file.
        let mut seen = 0;
        while seen < 30 {
            let now = store.now().await.expect("a server");
            let has_jumped = now.as_micros().abs_diff(before.as_micros()) > 600_000_000;
            seen = if has_jumped { seen + 1 } else { 0 };
            sleep(100).await;
        }
    }
}

impl Drop for Clocked {
    fn drop(&mut self) {
        // Left-over files are no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn again(claim: &Claim) -> Claim {
    Claim {
        token: fresh().token,
        ..claim.clone()
    }
}

/// As after a clock that was set back: a claim begins while a deletion is not over, with the floor
/// from before it.
#[tokio::test]
async fn p22_fences_grow_for_a_claim_that_waits_for_a_deletion() {
    let server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    let ahead = "update semel.fence_floor set floor = semel.now_us() + 3600000000";
    server.sql("semel", ahead);
    let claim = fresh();
    let last = won(&store, &claim).await.fence;
    // The store's own deletion, slowly.
    let mut deleting = sqlx::PgConnection::connect(&server.url()).await.unwrap();
    let delete = format!(
        "BEGIN; DELETE FROM semel.records WHERE fence = {0}; UPDATE semel.fence_floor SET floor = {0}",
        last.0
    );
    let delete = sqlx::raw_sql(sqlx::AssertSqlSafe(delete));
    delete.execute(&mut deleting).await.unwrap();
    let (claiming, next) = (store.clone(), again(&claim));
    let claiming = tokio::spawn(async move { won(&claiming, &next).await.fence });
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    while server.sql("semel", waits) == "0" {
        sleep(10).await;
    }
    let commit = sqlx::raw_sql("COMMIT");
    commit.execute(&mut deleting).await.unwrap();
    let next = claiming.await.unwrap();
    assert!(next > last, "{next:?} after {last:?}");
}

#[tokio::test]
async fn p22_fences_grow_across_deletion_when_the_clock_is_set_back() {
    let clocked = Clocked::start().await;
    let url = format!("{}?max_connections=1", clocked.server.url());
    let store = open(&url).await;
    let claim = fresh();
    let mut last = won(&store, &claim).await.fence;
    clocked.set(&store, "-3600s").await;
    for _ in 0..3 {
        assert!(store.delete(&claim.identity).await.unwrap());
        let next = won(&store, &again(&claim)).await.fence;
        assert!(next > last, "{next:?} after {last:?}");
        last = next;
    }
}

#[tokio::test]
async fn p22_fences_grow_when_the_clock_is_set_back_after_the_deletion() {
    let clocked = Clocked::start().await;
    let url = format!("{}?max_connections=1", clocked.server.url());
    let store = open(&url).await;
    let claim = fresh();
    let first = won(&store, &claim).await.fence;
    assert!(store.delete(&claim.identity).await.unwrap());
    clocked.set(&store, "-3600s").await;
    let next = won(&store, &again(&claim)).await.fence;
    assert!(next > first, "{next:?} after {first:?}");
}

#[tokio::test]
async fn p22_fences_grow_across_expiry_and_sweep_when_the_clock_is_set_back() {
    let clocked = Clocked::start().await;
    let url = format!("{}?max_connections=1", clocked.server.url());
    let store = open(&url).await;
    let claim = Claim {
        terms: terms(Duration::from_secs(1), Duration::from_secs(1)),
        ..fresh()
    };
    let first = won(&store, &claim).await.fence;
    while store.sweep(10).await.unwrap() == 0 {
        sleep(100).await;
    }
    clocked.set(&store, "-3600s").await;
    let next = won(&store, &again(&claim)).await.fence;
    assert!(next > first, "{next:?} after {first:?}");
}
