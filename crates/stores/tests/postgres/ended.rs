//! `run_in` whose effect ends the transaction by itself: nobody knows what of it was committed, so
//! its key is in doubt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use semel::{Error, Failure, Mode, Policy, Problem, TxError};
use sqlx::AssertSqlSafe;

use crate::transaction::{Bank, fresh};

/// Runs an effect that sends `statements` one by one, passes over their errors, and answers as
/// `fails` says.
async fn run(bank: &Bank, key: &str, statements: &[&str], fails: bool) -> Result<u32, Error> {
    let statements: Vec<String> = statements
        .iter()
        .map(|text| text.replace("{entry}", &bank.entry(key)))
        .collect();
    let ran = bank.call(key).run_in(&bank.pool, async move |mut tx, _| {
        for text in statements {
            let sent = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *tx).await;
            drop(sent);
        }
        if fails {
            return Err(Failure::retry("it fails after all"));
        }
        Ok::<_, Failure>(1)
    });
    ran.await.map(|answer| answer.value)
}

/// A first run that must be told as in doubt, and a second one that must not run.
async fn is_in_doubt(statements: &[&str], fails: bool, entries: i64) {
    let (bank, key) = (Bank::open().await, fresh());
    let told = run(&bank, &key, statements, fails).await;
    let Err(Error::InDoubt(cause)) = &told else {
        panic!("{statements:?}: {told:?}")
    };
    assert!(
        matches!(cause.downcast_ref(), Some(TxError::Ended)),
        "{cause:?}"
    );
    assert!(!told.is_err_and(|error| error.is_retryable()));
    assert_eq!(bank.entries().await, entries, "{statements:?}");

    let again = Arc::new(AtomicU32::new(0));
    let ran = Arc::clone(&again);
    let inside = bank.call(&key).run_in(&bank.pool, async move |_, _| {
        Ok::<_, Failure>(ran.fetch_add(1, Ordering::SeqCst))
    });
    let ran = Arc::clone(&again);
    let outside = bank
        .call(&key)
        .run(move |_| async move { Ok::<_, Failure>(ran.fetch_add(1, Ordering::SeqCst)) });
    for told in [inside.await, outside.await] {
        assert!(
            matches!(&told, Err(Error::Problem(Problem::InDoubt(_)))),
            "{told:?}"
        );
    }
    assert_eq!(again.load(Ordering::SeqCst), 0);
    assert_eq!(bank.entries().await, entries, "{statements:?}");
}

#[tokio::test]
async fn an_effect_that_commits_by_itself_leaves_a_doubt() {
    is_in_doubt(&["{entry}", "COMMIT"], false, 1).await;
}

#[tokio::test]
async fn an_effect_that_commits_and_begins_anew_leaves_a_doubt() {
    is_in_doubt(&["{entry}", "COMMIT", "BEGIN", "{entry}"], false, 1).await;
}

#[tokio::test]
async fn an_effect_that_rolls_back_and_writes_by_itself_leaves_a_doubt() {
    is_in_doubt(&["ROLLBACK", "{entry}"], false, 1).await;
}

#[tokio::test]
async fn an_effect_that_commits_by_itself_and_fails_leaves_a_doubt() {
    is_in_doubt(&["{entry}", "COMMIT"], true, 1).await;
}

#[tokio::test]
async fn effect_that_rolls_back_writes_and_fails_leaves_a_doubt() {
    is_in_doubt(&["ROLLBACK", "{entry}"], true, 1).await;
}

#[tokio::test]
async fn effect_that_commits_and_ignores_an_error_leaves_a_doubt() {
    let statements = ["{entry}", "COMMIT", "BEGIN", "SELECT no_such_thing"];
    is_in_doubt(&statements, false, 1).await;
    is_in_doubt(&statements, true, 1).await;
}

#[tokio::test]
async fn an_effect_that_commits_and_loses_its_connection_leaves_a_doubt() {
    let statements = [
        "{entry}",
        "COMMIT",
        "SELECT pg_terminate_backend(pg_backend_pid())",
    ];
    is_in_doubt(&statements, false, 1).await;
    is_in_doubt(&statements, true, 1).await;
}

#[tokio::test]
async fn an_effect_that_commits_by_itself_and_rejects_leaves_a_doubt() {
    let (bank, key) = (Bank::open().await, fresh());
    let text = bank.entry(&key);
    let rejected = bank.call(&key).run_in(&bank.pool, async move |mut tx, _| {
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *tx).await?;
        sqlx::raw_sql("COMMIT").execute(&mut *tx).await?;
        Err::<String, _>(Failure::reject("no money"))
    });
    let told = rejected.await;
    assert!(matches!(told, Err(Error::InDoubt(_))), "{told:?}");
    let again = bank.transfer(&key).await;
    assert!(
        matches!(again, Err(Error::Problem(Problem::InDoubt(_)))),
        "{again:?}"
    );
    assert_eq!(bank.entries().await, 1);
}

/// An error ends nothing: everything is rolled back, and the next call runs it.
#[tokio::test]
async fn effect_that_loses_its_connection_is_rolled_back() {
    let statements = ["{entry}", "SELECT pg_terminate_backend(pg_backend_pid())"];
    for fails in [false, true] {
        let (bank, key) = (Bank::open().await, fresh());
        let told = run(&bank, &key, &statements, fails).await;
        assert!(matches!(told, Err(Error::Failed(_))), "{told:?}");
        assert!(!bank.transfer(&key).await.unwrap().replayed);
        assert_eq!(bank.entries().await, 1);
    }
}

/// Without protection there is no record to keep the doubt in: the caller alone is told.
#[tokio::test]
async fn unprotected_effect_that_commits_has_unknown_outcome() {
    for fails in [false, true] {
        let (bank, key) = (Bank::open().await, fresh());
        let policy = Policy::default().with_mode(Mode::Off);
        let operation = bank.semel.operation("transfer").policy(Arc::new(policy));
        let (call, text) = (operation.key(&key).payload(&100), bank.entry(&key));
        let told = call.run_in(&bank.pool, async move |mut tx, _| {
            sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *tx).await?;
            sqlx::raw_sql("COMMIT").execute(&mut *tx).await?;
            match fails {
                true => Err(Failure::retry("it fails after all")),
                false => Ok(1),
            }
        });
        let told = told.await;
        assert!(matches!(told, Err(Error::Unknown(_))), "{told:?}");
        assert_eq!(bank.entries().await, 1);
    }
}
