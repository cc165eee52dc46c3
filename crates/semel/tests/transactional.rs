//! `run_in` without protection, on real servers: no record says afterwards what became of a commit.
//!
//! `cargo xtask services up postgres mariadb` starts the servers. With protection:
//! `crates/stores/tests`.
#![cfg(all(feature = "mysql", feature = "postgres"))]

use semel::{Call, Error, Failure, Mode, Policy, Semel, TxError};
use sqlx::{AssertSqlSafe, MySqlPool, PgPool, Row as _};

fn url(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name}: see `cargo xtask services up`"))
}

fn off(semel: &Semel) -> Call {
    let policy = Policy::default().with_mode(Mode::Off);
    semel.operation("t").policy(policy).key("k").payload(&1)
}

/// A name that no other test has.
fn fresh(what: &str) -> String {
    format!("{what}_{:032x}", semel::tokio_env().entropy.next_u128())
}

/// A ledger in PostgreSQL, whose entries are checked at the commit by `check`, a body of PL/pgSQL.
struct Bank {
    semel: Semel,
    pool: PgPool,
    ledger: String,
}

impl Bank {
    async fn open(check: &str) -> Self {
        let url = url("SEMEL_TEST_POSTGRES_URL");
        let bank = Self {
            semel: Semel::open(&url).await.expect("a server"),
            pool: PgPool::connect(&url).await.expect("a server"),
            ledger: fresh("ledger"),
        };
        let ledger = &bank.ledger;
        bank.sql(format!(
            "CREATE TABLE {ledger} (entry text); \
             CREATE FUNCTION check_{ledger}() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN {check} RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER checked AFTER INSERT ON {ledger} \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION check_{ledger}()"
        ))
        .await;
        bank
    }

    async fn sql(&self, text: String) {
        let done = sqlx::raw_sql(AssertSqlSafe(text)).execute(&self.pool).await;
        done.expect("a statement that works");
    }

    /// Writes an entry, then sends `then`, whose errors it passes over.
    async fn write_and(&self, then: &'static str) -> Result<(), Error> {
        let text = format!("INSERT INTO {} VALUES ('once')", self.ledger);
        let ran = off(&self.semel).run_in(&self.pool, async move |mut tx, lease| {
            assert!(lease.fence().is_none());
            let write = sqlx::raw_sql(AssertSqlSafe(text));
            write.execute(&mut *tx).await?;
            let _ = sqlx::raw_sql(then).execute(&mut *tx).await;
            Ok::<_, Failure>(())
        });
        ran.await.map(drop)
    }

    /// How many entries there are, when everything is taken away again.
    async fn close(self) -> i64 {
        let ledger = &self.ledger;
        let count = format!("SELECT count(*) FROM {ledger}");
        let row = sqlx::query(AssertSqlSafe(count)).fetch_one(&self.pool);
        let entries = row.await.expect("a ledger").get(0);
        self.sql(format!(
            "DROP TABLE {ledger}; DROP FUNCTION check_{ledger}()"
        ))
        .await;
        entries
    }
}

fn cause(error: &Error) -> Option<&TxError> {
    match error {
        Error::Failed(cause) | Error::Unknown(cause) => cause.downcast_ref(),
        _ => None,
    }
}

#[tokio::test]
async fn error_ignored_by_the_effect_fails_the_run() {
    let bank = Bank::open("").await;
    let error = bank.write_and("SELECT no_such_thing").await.unwrap_err();
    assert!(
        matches!(cause(&error), Some(TxError::Refused(_))),
        "{error:?}"
    );
    // Nothing happened, and that is certain.
    assert!(error.is_retryable());
    assert_eq!(bank.close().await, 0);
}

#[tokio::test]
async fn commit_without_an_answer_is_unknown() {
    let ends = "PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(30);";
    let bank = Bank::open(ends).await;
    let error = bank.write_and("SELECT 1").await.unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error:?}");
    assert!(!error.is_retryable());
    bank.close().await;
}

#[tokio::test]
async fn rejected_commit_had_no_effect() {
    let bank = Bank::open("RAISE EXCEPTION 'no';").await;
    let error = bank.write_and("SELECT 1").await.unwrap_err();
    assert!(
        matches!(cause(&error), Some(TxError::Refused(_))),
        "{error:?}"
    );
    assert!(error.is_retryable());
    assert_eq!(bank.close().await, 0);
}

#[tokio::test]
async fn a_connection_lost_before_the_commit_did_nothing() {
    let bank = Bank::open("").await;
    let ends = "SELECT pg_terminate_backend(pg_backend_pid())";
    let error = bank.write_and(ends).await.unwrap_err();
    assert!(
        matches!(cause(&error), Some(TxError::RolledBack)),
        "{error:?}"
    );
    assert!(error.is_retryable());
    assert_eq!(bank.close().await, 0);
}

#[tokio::test]
async fn effect_that_commits_gets_an_unknown_outcome() {
    let bank = Bank::open("").await;
    let error = bank.write_and("COMMIT").await.unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error:?}");
    assert!(matches!(cause(&error), Some(TxError::Ended)), "{error:?}");
    assert_eq!(bank.close().await, 1);
}

#[tokio::test]
async fn effect_that_keeps_its_transaction_gets_an_error() {
    let bank = Bank::open("").await;
    let (send, receive) = tokio::sync::oneshot::channel();
    let kept = off(&bank.semel).run_in(&bank.pool, async move |tx, _| {
        let _ = send.send(tx);
        Ok::<_, Failure>(())
    });
    let error = kept.await.unwrap_err();
    assert!(matches!(cause(&error), Some(TxError::Kept)), "{error:?}");
    drop(receive.await);
    bank.close().await;
}

#[tokio::test]
async fn savepoint_of_the_effect_is_allowed() {
    let bank = Bank::open("").await;
    let tries = "SAVEPOINT a; ROLLBACK TO SAVEPOINT a";
    bank.write_and(tries).await.expect("it is committed");
    assert_eq!(bank.close().await, 1);
}

#[tokio::test]
async fn mariadb_ddl_in_the_effect_gets_an_unknown_outcome() {
    let url = url("SEMEL_TEST_MARIADB_URL");
    let semel = Semel::open(&url).await.expect("a server");
    let pool = MySqlPool::connect(&url).await.expect("a server");
    let run = async |statement: String| {
        let ran = off(&semel).run_in(&pool, async move |mut tx, _| {
            let statement = sqlx::raw_sql(AssertSqlSafe(statement));
            statement.execute(&mut *tx).await?;
            Ok::<_, Failure>(())
        });
        ran.await.map(drop)
    };
    let table = fresh("made");
    let made = run(format!("CREATE TABLE {table} (entry INT)")).await;
    let error = made.expect_err("it was committed on the way");
    assert!(matches!(error, Error::Unknown(_)), "{error:?}");
    assert!(matches!(cause(&error), Some(TxError::Ended)), "{error:?}");
    let wrote = run(format!("INSERT INTO {table} VALUES (1)")).await;
    wrote.expect("it is committed");
    let count = format!("SELECT count(*) FROM {table}");
    let row = sqlx::query(AssertSqlSafe(count)).fetch_one(&pool).await;
    assert_eq!(row.expect("a table").get::<i64, _>(0), 1);
    let clear = sqlx::raw_sql(AssertSqlSafe(format!("DROP TABLE {table}")));
    clear.execute(&pool).await.expect("a server");
}
