//! `run_in`: the effect and its record in one transaction, on a real PostgreSQL.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and sockets run on real time"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::core::StoreErrorKind;
use semel::{Error, Failure, Mode, Policy, PostgresTx, Problem, Semel, TxError};
use sqlx::{AssertSqlSafe, PgPool, Row as _};

/// A database with a ledger of its own for each test.
pub(crate) struct Bank {
    pub(crate) semel: Semel,
    pub(crate) pool: PgPool,
    ledger: String,
}

impl Bank {
    pub(crate) async fn open() -> Self {
        Self::with(Semel::builder()).await
    }

    pub(crate) async fn with(builder: semel::Builder) -> Self {
        let url = std::env::var("SEMEL_TEST_POSTGRES_URL").expect(
            "SEMEL_TEST_POSTGRES_URL is not set: start the servers with `cargo xtask services up`",
        );
        Self::at(&url, builder).await
    }

    pub(crate) async fn at(url: &str, builder: semel::Builder) -> Self {
        let semel = builder.open(url).await.expect("a server");
        let pool = PgPool::connect(url).await.expect("a server");
        let ledger = format!("ledger_{}", fresh());
        let bank = Self {
            semel,
            pool,
            ledger,
        };
        let ledger = &bank.ledger;
        bank.sql(&format!(
            "CREATE TABLE {ledger} (entry text, UNIQUE (entry) DEFERRABLE INITIALLY DEFERRED)"
        ))
        .await;
        bank
    }

    pub(crate) async fn sql(&self, text: &str) {
        let done = sqlx::raw_sql(AssertSqlSafe(text)).execute(&self.pool).await;
        done.expect("a statement that works");
    }

    pub(crate) async fn entries(&self) -> i64 {
        let text = format!("SELECT count(*) FROM {}", self.ledger);
        let row = sqlx::query(AssertSqlSafe(text)).fetch_one(&self.pool).await;
        row.expect("a ledger").get(0)
    }

    pub(crate) fn call(&self, key: &str) -> semel::Call {
        self.semel.operation("transfer").key(key).payload(&100)
    }

    /// The statement that writes `entry` into the ledger.
    pub(crate) fn entry(&self, entry: &str) -> String {
        format!("INSERT INTO {} VALUES ('{entry}')", self.ledger)
    }

    /// Runs the transfer `key`, whose effect writes one entry.
    pub(crate) async fn transfer(&self, key: &str) -> Result<semel::TypedAnswer<String>, Error> {
        let text = self.entry(key);
        let call = self.call(key);
        call.run_in(&self.pool, async move |mut tx, _| {
            write(&mut tx, text).await?;
            Ok::<_, Failure>("receipt".to_owned())
        })
        .await
    }
}

pub(crate) async fn write(tx: &mut PostgresTx, text: String) -> Result<(), Failure> {
    let statement = sqlx::query(AssertSqlSafe(text));
    statement.execute(&mut **tx).await?;
    Ok(())
}

impl Drop for Bank {
    fn drop(&mut self) {
        let (pool, ledger) = (self.pool.clone(), self.ledger.clone());
        tokio::spawn(async move {
            let text = format!("DROP TABLE IF EXISTS {ledger}");
            let _ = sqlx::raw_sql(AssertSqlSafe(text)).execute(&pool).await;
        });
    }
}

pub(crate) fn fresh() -> String {
    format!("{:032x}", semel::tokio_env().entropy.next_u128())
}

fn cause(error: &Error) -> Option<&TxError> {
    let Error::Failed(cause) = error else {
        return None;
    };
    cause.downcast_ref()
}

#[tokio::test]
async fn the_effect_and_its_record_are_committed_together() {
    let (bank, key) = (Bank::open().await, fresh());
    let first = bank.transfer(&key).await.unwrap();
    let second = bank.transfer(&key).await.unwrap();
    assert_eq!((first.replayed, second.replayed), (false, true));
    assert_eq!(first.value, second.value);
    assert_eq!(bank.entries().await, 1);
}

#[tokio::test]
async fn run_and_run_in_share_their_keys() {
    let (bank, key) = (Bank::open().await, fresh());
    bank.transfer(&key).await.unwrap();
    let again = bank
        .call(&key)
        .run(|_| async { Ok::<_, Failure>("another".to_owned()) });
    assert_eq!(again.await.unwrap().value, "receipt");
    let other = bank.semel.operation("transfer").key(&key).payload(&99);
    let other = other.run_in(&bank.pool, async |_, _| Ok::<_, Failure>("no".to_owned()));
    assert!(matches!(
        other.await,
        Err(Error::Problem(Problem::Mismatch))
    ));
}

/// Records an answer whose body is kept apart, and removes that.
async fn lose_a_body(bank: &Bank, key: &str) {
    let large = format!("{key}{}", "x".repeat(40_000));
    let call = bank.call(key).run(|_| async { Ok::<_, Failure>(large) });
    call.await.expect("it runs");
    let text = format!("DELETE FROM semel.bodies WHERE position('{key}'::bytea in body) > 0");
    bank.sql(&text).await;
}

#[tokio::test]
async fn record_without_its_body_is_damaged_and_runs_nothing() {
    let (bank, key) = (Bank::open().await, fresh());
    lose_a_body(&bank, &key).await;
    let another = Bank::open().await;
    let outside = another.call(&key);
    let outside = outside.run(|_| async { Ok::<_, Failure>("another".to_owned()) });
    for told in [another.transfer(&key).await, outside.await] {
        let Err(Error::Problem(Problem::Unreadable { source })) = told else {
            panic!("it was answered, or told to wait")
        };
        assert_eq!(source.kind, StoreErrorKind::Record);
    }
    assert_eq!(another.entries().await, 0);
}

#[tokio::test]
async fn p20_a_record_that_has_expired_may_have_lost_its_body_before() {
    let policy = Policy::default()
        .with_lease(Duration::from_millis(500))
        .with_retention(Duration::from_secs(1));
    let (bank, key) = (Bank::with(Semel::builder().policy(policy)).await, fresh());
    lose_a_body(&bank, &key).await;
    let another = Bank::open().await;
    let mut pause = tokio::time::interval(Duration::from_millis(200));
    for _ in 0..50 {
        pause.tick().await;
        if let Ok(answer) = another.transfer(&key).await {
            assert!(!answer.replayed);
            assert_eq!(another.entries().await, 1);
            return;
        }
    }
    panic!("its key never is free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_callers_at_once_one_transfers() {
    let policy = Policy::default().with_max_waiters_per_key(100);
    let bank = Arc::new(Bank::with(Semel::builder().policy(policy)).await);
    let key = fresh();
    let callers: Vec<_> = (0..32)
        .map(|_| {
            let (bank, key) = (Arc::clone(&bank), key.clone());
            tokio::spawn(async move { bank.transfer(&key).await })
        })
        .collect();
    let mut fresh = 0;
    for caller in callers {
        fresh += u32::from(!caller.await.unwrap().unwrap().replayed);
    }
    assert_eq!((fresh, bank.entries().await), (1, 1));
}

#[tokio::test]
async fn caller_that_refuses_to_wait_is_busy_during_a_transaction() {
    let policy = Policy::default().with_on_busy(semel::OnBusy::Refuse);
    let bank = Arc::new(Bank::with(Semel::builder().policy(policy)).await);
    let key = fresh();
    let (started, go) = (
        Arc::new(tokio::sync::Notify::new()),
        Arc::new(tokio::sync::Notify::new()),
    );
    let owner = tokio::spawn({
        let (bank, key, started, go) = (bank.clone(), key.clone(), started.clone(), go.clone());
        async move {
            let text = bank.entry("one");
            let call = bank.call(&key);
            call.run_in(&bank.pool, async move |mut tx, _| {
                write(&mut tx, text).await?;
                started.notify_one();
                go.notified().await;
                Ok::<_, Failure>("receipt".to_owned())
            })
            .await
        }
    });
    started.notified().await;
    let busy = bank.transfer(&key).await;
    assert!(
        matches!(busy, Err(Error::Problem(Problem::Busy { .. }))),
        "{busy:?}"
    );
    go.notify_one();
    owner.await.unwrap().unwrap();
    assert_eq!(bank.entries().await, 1);
}

#[tokio::test]
async fn a_failed_effect_is_rolled_back_and_runs_again() {
    let (bank, key) = (Bank::open().await, fresh());
    let text = bank.entry("half");
    let failed = bank.call(&key).run_in(&bank.pool, async move |mut tx, _| {
        write(&mut tx, text).await?;
        Err::<String, _>(Failure::retry("out of luck"))
    });
    let failed = failed.await.unwrap_err();
    assert!(
        matches!(failed, Error::Failed(_)) && failed.is_retryable(),
        "{failed:?}"
    );
    assert_eq!(bank.entries().await, 0);
    assert!(!bank.transfer(&key).await.unwrap().replayed);
    assert_eq!(bank.entries().await, 1);
}

#[tokio::test]
async fn a_panic_is_rolled_back_and_runs_again() {
    let (bank, key) = (Bank::open().await, fresh());
    let text = bank.entry("half");
    let panicked = bank.call(&key).run_in(&bank.pool, async move |mut tx, _| {
        write(&mut tx, text).await?;
        assert!(key_is_never_this(), "a panic");
        Ok::<_, Failure>("no".to_owned())
    });
    assert!(panicked.await.is_err());
    assert_eq!(bank.entries().await, 0);
    assert!(!bank.transfer(&key).await.unwrap().replayed);
}

fn key_is_never_this() -> bool {
    fresh().is_empty()
}

#[tokio::test]
async fn a_rejection_is_rolled_back_and_kept() {
    let (bank, key) = (Bank::open().await, fresh());
    let text = bank.entry("half");
    let rejected = bank.call(&key).run_in(&bank.pool, async move |mut tx, _| {
        write(&mut tx, text).await?;
        Err::<String, _>(Failure::reject("no money"))
    });
    assert!(matches!(rejected.await, Err(Error::Rejected(no)) if !no.replayed));
    assert!(matches!(bank.transfer(&key).await, Err(Error::Rejected(no)) if no.replayed));
    assert_eq!(bank.entries().await, 0);
}

#[tokio::test]
async fn a_commit_that_the_server_refuses_is_a_failure_and_nothing_happened() {
    let (bank, key) = (Bank::open().await, fresh());
    bank.sql(&bank.entry(&key)).await;
    let refused = bank.transfer(&key).await.unwrap_err();
    assert!(
        matches!(cause(&refused), Some(TxError::Refused(_))),
        "{refused:?}"
    );
    assert_eq!(bank.entries().await, 1);
    bank.sql(&format!("DELETE FROM {}", bank.ledger)).await;
    assert!(!bank.transfer(&key).await.unwrap().replayed);
}

#[tokio::test]
async fn an_error_that_the_effect_passes_over_is_not_committed() {
    let (bank, key) = (Bank::open().await, fresh());
    let text = bank.entry("half");
    let passed_over = bank.call(&key).run_in(&bank.pool, async move |mut tx, _| {
        write(&mut tx, text).await?;
        let _ = sqlx::query("SELECT no_such_thing").execute(&mut *tx).await;
        Ok::<_, Failure>("all is well".to_owned())
    });
    let error = passed_over.await.unwrap_err();
    assert!(
        matches!(cause(&error), Some(TxError::Refused(_))),
        "{error:?}"
    );
    assert_eq!(bank.entries().await, 0);
    assert!(!bank.transfer(&key).await.unwrap().replayed);
}

#[tokio::test]
async fn an_effect_that_commits_by_itself_is_told_so() {
    let (bank, key) = (Bank::open().await, fresh());
    let ended = bank.call(&key).run_in(&bank.pool, async move |mut tx, _| {
        sqlx::raw_sql("COMMIT").execute(&mut *tx).await?;
        sqlx::raw_sql("BEGIN").execute(&mut *tx).await?;
        Ok::<_, Failure>("done".to_owned())
    });
    let error = ended.await.unwrap_err();
    let Error::InDoubt(cause) = &error else {
        panic!("{error:?}")
    };
    assert!(
        matches!(cause.downcast_ref(), Some(TxError::Ended)),
        "{error:?}"
    );
}

#[tokio::test]
async fn effect_that_keeps_its_transaction_gets_an_error() {
    let (bank, key) = (Bank::open().await, fresh());
    let (send, receive) = tokio::sync::oneshot::channel();
    let text = bank.entry("half");
    let kept = bank.call(&key).run_in(&bank.pool, async move |mut tx, _| {
        write(&mut tx, text).await?;
        let _ = send.send(tx);
        Ok::<_, Failure>("done".to_owned())
    });
    let error = kept.await.unwrap_err();
    assert!(matches!(cause(&error), Some(TxError::Kept)), "{error:?}");
    drop(receive.await);
    let again = bank.transfer(&key);
    let again = tokio::time::timeout(Duration::from_secs(10), again).await;
    assert!(!again.unwrap().unwrap().replayed);
    assert_eq!(bank.entries().await, 1);
}

#[tokio::test]
async fn without_protection_the_effect_still_has_its_transaction() {
    let (bank, key) = (Bank::open().await, fresh());
    let runs = Arc::new(AtomicU32::new(0));
    for _ in 0..2 {
        let policy = Policy::default().with_mode(Mode::Off);
        let (text, runs) = (bank.entry(&fresh()), Arc::clone(&runs));
        let operation = bank.semel.operation("transfer").policy(Arc::new(policy));
        let call = operation.key(&key).payload(&100);
        let ran = call.run_in(&bank.pool, async move |mut tx, lease| {
            assert!(lease.fence().is_none());
            write(&mut tx, text).await?;
            Ok::<_, Failure>(runs.fetch_add(1, Ordering::SeqCst))
        });
        ran.await.unwrap();
    }
    assert_eq!((runs.load(Ordering::SeqCst), bank.entries().await), (2, 2));
}

#[tokio::test]
async fn a_store_elsewhere_can_not_share_the_transaction() {
    let bank = Bank::open().await;
    let elsewhere = Semel::open("memory://").await.unwrap();
    let call = elsewhere.operation("transfer").key("k").payload(&1);
    let error = call
        .run_in(&bank.pool, async |_, _| Ok::<_, Failure>(1))
        .await;
    assert!(matches!(error, Err(Error::NotTransactional)));
}
