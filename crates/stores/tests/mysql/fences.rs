//! Fences grow regardless of a record and of the server's clock (P22).

use std::path::PathBuf;
use std::time::Duration;

use semel::{Failure, Semel};
use semel_core::store::Query;
use semel_core::{Claim, Fence, Store as _, StoreAdmin as _};
use semel_stores::mysql::MySqlStore;
use semel_testkit::private::{MariaDbServer, new_folder};
use sqlx::mysql::MySqlPoolOptions;

use crate::open;
use crate::support::{fresh, sleep, terms, won};
use crate::transaction::Bank;

/// A server whose clock the test sets.
struct Clocked {
    server: MariaDbServer,
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
        let server = MariaDbServer::start_in(&[], &environment).await;
        Self { server, folder }
    }

    /// A store with one connection, so that there is one session to wait for.
    async fn store(&self) -> MySqlStore {
        open(&format!("{}?max_connections=1", self.server.url())).await
    }

    /// Sets the clock an hour back, and waits until the sessions have seen it.
    async fn set_back(&self, store: &MySqlStore) {
        let before = store.now().await.expect("a server");
        let beside = self.folder.join("next");
        std::fs::write(&beside, "-3600s\n").expect("a file");
        std::fs::rename(beside, self.folder.join("offset")).expect("a file");
        // Each thread of the server may keep its time for a second: until the last of them has read
        // the file.
        let mut seen = 0;
        while seen < 30 {
            let now = store.now().await.expect("a server");
            let is_back = before.as_micros() > now.as_micros() + 600_000_000;
            seen = if is_back { seen + 1 } else { 0 };
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

#[tokio::test]
async fn p22_fences_grow_across_deletion_when_the_clock_is_set_back() {
    let clocked = Clocked::start().await;
    let store = clocked.store().await;
    let (claim, gone) = (fresh(), fresh());
    let mut last = won(&store, &claim).await.fence;
    let gone_at = won(&store, &gone).await.fence;
    assert!(store.delete(&gone.identity).await.unwrap());
    clocked.set_back(&store).await;
    for _ in 0..3 {
        assert!(store.delete(&claim.identity).await.unwrap());
        assert!(!store.delete(&claim.identity).await.unwrap(), "it is gone");
        assert_eq!(store.read(&claim.identity).await.unwrap(), None);
        // A claim in progress may have read the old floor of fences, and would get a smaller fence.
        assert_eq!(store.sweep(10).await.unwrap(), 0, "removed too early");
        let next = won(&store, &again(&claim)).await.fence;
        assert!(next > last, "{next:?} after {last:?}");
        last = next;
    }
    // Deleted before the clock was set back.
    let next = won(&store, &again(&gone)).await.fence;
    assert!(next > gone_at, "{next:?} after {gone_at:?}");
}

#[tokio::test]
async fn p22_fences_grow_across_expiry_and_sweep_when_the_clock_is_set_back() {
    let clocked = Clocked::start().await;
    let store = clocked.store().await;
    let second = Duration::from_secs(1);
    let claim = Claim {
        terms: terms(second, second),
        ..fresh()
    };
    let first = won(&store, &claim).await.fence;
    while store.sweep(10).await.unwrap() == 0 {
        sleep(100).await;
    }
    clocked.set_back(&store).await;
    let next = won(&store, &again(&claim)).await.fence;
    assert!(next > first, "{next:?} after {first:?}");
}

/// Runs `the-key` in a transaction of a process that has just started.
async fn fence_in_transaction(url: &str) -> Fence {
    let pool = MySqlPoolOptions::new().max_connections(1);
    let pool = pool.connect(url).await.expect("a server");
    let bank = Bank::on(url, pool, Semel::builder()).await;
    let call = bank.call("the-key").run_in(&bank.pool, async |_, lease| {
        Ok::<_, Failure>(lease.fence().expect("a lease").0)
    });
    let answer = call.await.expect("an answer");
    assert!(!answer.replayed);
    Fence(answer.value)
}

/// A run in the caller's own transaction gets a fence by the same rule.
#[tokio::test]
async fn p22_fences_of_transactional_runs_grow_when_the_clock_is_set_back() {
    let clocked = Clocked::start().await;
    let url = clocked.server.url();
    let first = fence_in_transaction(&url).await;
    let store = clocked.store().await;
    let query = Query::default().with_scope("transfer".to_owned());
    for (identity, _) in store.list(&query).await.unwrap().records {
        assert!(store.delete(&identity).await.unwrap());
    }
    clocked.set_back(&store).await;
    let next = fence_in_transaction(&url).await;
    assert!(next > first, "{next:?} after {first:?}");
}
