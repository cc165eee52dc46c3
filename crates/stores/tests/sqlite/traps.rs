//! What goes wrong with a file that several have open: locks that are held, callers that leave,
//! clocks that are set back.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel_core::clock::Sleep;
use semel_core::{
    Certainty, Claimed, Clock, Store, StoreAdmin as _, StoreErrorKind, Tick, Timestamp,
};
use semel_stores::sqlite::SqliteStore;
use sqlx::SqliteConnection;

use crate::support::{again, complete, done, fresh, sleep, won};
use crate::{Place, open};

/// A connection that knows nothing of ours, and has the write lock.
async fn holding_the_lock(place: &Place) -> SqliteConnection {
    let mut other = place.raw().await;
    let begun = sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other);
    begun.await.expect("nobody else has it");
    other
}

#[tokio::test]
async fn long_write_lock_is_an_error_that_changes_nothing() {
    let place = Place::new();
    let store = open(&format!("{}?busy_ms=200", place.url())).await.unwrap();
    let finished = fresh();
    assert!(done(&store, &finished).await);
    let mut other = holding_the_lock(&place).await;
    let claim = fresh();
    let error = store.claim(&claim).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert_eq!(error.certainty, Certainty::Definite);
    // Whoever needs no lock waits for nobody.
    let replay = store.claim(&again(&finished)).await.unwrap();
    assert!(matches!(replay, Claimed::Replay(_)), "{replay:?}");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    assert!(store.read(&claim.identity).await.unwrap().is_none());
    assert_eq!(won(&store, &claim).await.attempt, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_lock_that_is_held_for_a_while_is_waited_for() {
    let place = Place::new();
    let store = place.open().await;
    let mut other = holding_the_lock(&place).await;
    let claim = fresh();
    let claiming = tokio::spawn({
        let (store, claim) = (store.clone(), claim.clone());
        async move { won(&store, &claim).await }
    });
    sleep(300).await;
    assert!(!claiming.is_finished());
    sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();
    assert_eq!(claiming.await.unwrap().token, claim.token);
}

/// The lock by which processes take turns.
fn turn(place: &Place) -> File {
    let path = format!("{}-turn", place.path().display());
    File::options().write(true).open(path).expect("a file")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_process_keeps_its_turn_until_it_has_the_lock() {
    let place = Place::new();
    let store = place.open().await;
    let mut other = holding_the_lock(&place).await;
    let turn = turn(&place);
    turn.try_lock().expect("nobody waits");
    turn.unlock().unwrap();
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { won(&store, &fresh()).await }
    });
    // A process that writes all the time can't get in between.
    while turn.try_lock().is_ok() {
        turn.unlock().unwrap();
        assert!(!claiming.is_finished(), "it waits without its turn");
        sleep(3).await;
    }
    sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();
    claiming.await.unwrap();
    turn.try_lock().expect("nobody waits any more");
}

#[tokio::test]
async fn stopped_process_delays_others_only_briefly() {
    let place = Place::new();
    let store = place.open().await;
    let turn = turn(&place);
    turn.lock().unwrap();
    assert!(done(&store, &fresh()).await);
    // Nor does a file that was taken away.
    std::fs::remove_file(format!("{}-turn", place.path().display())).unwrap();
    assert!(done(&place.open().await, &fresh()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_in_mid_call_disturb_nobody() {
    let place = Place::new();
    let store = place.open().await;
    let leavers = tokio::spawn({
        let store = store.clone();
        async move {
            for i in 0..2_000_u64 {
                let claim = fresh();
                let limit = Duration::from_micros(i * 7919 % 3_000);
                drop(tokio::time::timeout(limit, store.claim(&claim)).await);
            }
        }
    });
    let mut stayed = 0;
    while !leavers.is_finished() || stayed <= 20 {
        let claim = fresh();
        let lease = won(&store, &claim).await;
        let answer = complete(&format!("answer {stayed}"));
        store.settle(&lease, &answer).await.unwrap();
        let record = store.read(&claim.identity).await.unwrap().unwrap();
        assert_eq!(record.answer.as_ref(), answer.answer());
        stayed += 1;
    }
    leavers.await.unwrap();
}

/// The host's clock, as far behind as the test says.
struct SetBack {
    real: Arc<dyn Clock>,
    by_micros: AtomicU64,
}

impl Clock for SetBack {
    fn now(&self) -> Tick {
        self.real.now()
    }

    fn wall(&self) -> Timestamp {
        let by = self.by_micros.load(Ordering::SeqCst);
        Timestamp::from_micros(self.real.wall().as_micros() - by)
    }

    fn sleep(&self, for_time: Duration) -> Sleep {
        self.real.sleep(for_time)
    }
}

#[tokio::test]
async fn fences_grow_even_if_the_record_is_gone_and_the_clock_was_set_back() {
    let place = Place::new();
    let clock = Arc::new(SetBack {
        real: semel::tokio_env().clock,
        by_micros: AtomicU64::new(0),
    });
    let store = SqliteStore::open(&place.url(), clock.clone())
        .await
        .unwrap();
    let claim = fresh();
    let first = won(&store, &claim).await;
    assert!(store.delete(&claim.identity).await.unwrap());
    clock.by_micros.store(3_600_000_000, Ordering::SeqCst);
    let second = won(&store, &again(&claim)).await;
    assert!(
        second.fence > first.fence,
        "{} follows {}",
        second.fence,
        first.fence
    );
    let findings = store.diagnose().await.unwrap();
    let found = crate::support::finding(&findings, "clock");
    assert_eq!(found.severity, semel_core::diagnosis::Severity::Warning);
}
