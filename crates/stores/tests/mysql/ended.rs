//! `run_in` whose transaction is over before its settlement: by a deadlock, or by a statement of
//! the effect's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use semel::{Error, Failure, MySqlTx, Problem, Semel, TxError};
use semel_testkit::private::MariaDbServer;
use sqlx::mysql::{MySqlDatabaseError, MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, MySqlConnection};
use tokio::sync::Notify;

use crate::support::sleep;
use crate::transaction::{Bank, fresh};

/// What an effect does after it was told of a deadlock.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// Repeats its write, and fails if that does.
    Repeats,
    /// Repeats its write, and succeeds regardless of that.
    PassesOver,
    /// Repeats its write, and fails regardless of that.
    Fails,
    /// Repeats its write, and commits by itself.
    Commits,
    /// Gives the error on, as `?` does.
    Stops,
}

async fn send(connection: &mut MySqlConnection, text: &str) -> Result<(), sqlx::Error> {
    let sent = sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await;
    sent.map(drop)
}

fn is_deadlock(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    let error = error.and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
    error.is_some_and(|error| error.number() == 1213)
}

/// Writes `entry`, then meets a deadlock.
async fn meet(mut tx: MySqlTx, entry: String, wrote: &Notify, then: Then) -> Result<u32, Failure> {
    send(&mut tx, &entry).await?;
    send(&mut tx, "UPDATE heavy SET value = 2 WHERE id = 1").await?;
    wrote.notify_one();
    let met = send(&mut tx, "UPDATE heavy SET value = 2 WHERE id = 2").await;
    let deadlock = met.expect_err("the other session has the row, and wants the first one");
    assert!(is_deadlock(&deadlock), "{deadlock}");
    match then {
        Then::Stops => return Err(deadlock.into()),
        Then::Repeats => send(&mut tx, &entry).await?,
        Then::PassesOver => drop(send(&mut tx, &entry).await),
        Then::Commits => {
            send(&mut tx, &entry).await?;
            send(&mut tx, "COMMIT").await?;
        }
        Then::Fails => {
            drop(send(&mut tx, &entry).await);
            return Err(Failure::retry("it fails after all"));
        }
    }
    Ok(1)
}

/// Another session, which has the second row and then wants the first. Its transaction is the
/// heavier one, which the server keeps.
async fn cross(server: &MariaDbServer, pool: &MySqlPool, locked: &Notify, wrote: &Notify) {
    let mut other = pool.begin().await.expect("a server");
    let most = "UPDATE heavy SET value = 1 WHERE id > 1";
    send(&mut other, most).await.expect("free rows");
    locked.notify_one();
    wrote.notified().await;
    let waiting =
        "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'";
    while server.sql(waiting) != "1" {
        sleep(10).await;
    }
    let first = "UPDATE heavy SET value = 1 WHERE id = 1";
    send(&mut other, first).await.expect("the effect gave way");
    other.rollback().await.expect("a server");
}

/// Runs an effect that meets a deadlock, and then the same key again. The entry is there once, and
/// what the first caller was told is true.
async fn meets_a_deadlock(then: Then) {
    let server = MariaDbServer::start(&[]).await;
    let pool = MySqlPool::connect(&server.url()).await.expect("a server");
    let (bank, key) = (
        Bank::on(&server.url(), pool.clone(), Semel::builder()).await,
        fresh(),
    );
    bank.sql("CREATE TABLE heavy (id INT PRIMARY KEY, value INT)")
        .await;
    let rows: Vec<String> = (1..=500).map(|id| format!("({id}, 0)")).collect();
    bank.sql(&format!("INSERT INTO heavy VALUES {}", rows.join(",")))
        .await;
    let (locked, wrote) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let effect = {
        let (entry, locked, wrote) = (bank.entry(&key), Arc::clone(&locked), Arc::clone(&wrote));
        async move |tx, _| {
            locked.notified().await;
            meet(tx, entry, &wrote, then).await
        }
    };
    let first = bank.call(&key).run_in(&bank.pool, effect);
    let (first, ()) = tokio::join!(first, cross(&server, &pool, &locked, &wrote));
    let error = first.expect_err("its transaction was rolled back");
    let told = format!("{then:?}: {error:?}");
    if matches!(error, Error::Failed(_)) {
        assert_eq!(bank.entries().await, 0, "nothing happened, it says: {told}");
        assert!(!bank.transfer(&key).await.expect("a free key").replayed);
    } else {
        assert!(matches!(error, Error::InDoubt(_)), "{told}");
        bank.transfer(&key).await.expect_err("a key in doubt");
    }
    assert_eq!(bank.entries().await, 1, "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_repeated_after_a_deadlock_happens_once() {
    meets_a_deadlock(Then::Repeats).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_that_passes_over_a_deadlock_happens_once() {
    meets_a_deadlock(Then::PassesOver).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_that_goes_on_after_a_deadlock_and_fails_happens_once() {
    meets_a_deadlock(Then::Fails).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_that_commits_by_itself_after_a_deadlock_happens_once() {
    meets_a_deadlock(Then::Commits).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_that_stops_at_a_deadlock_may_be_called_again() {
    meets_a_deadlock(Then::Stops).await;
}

/// Runs an effect that sends `statements` one by one, passes over their errors, and answers as
/// `fails` says.
async fn run(bank: &Bank, key: &str, statements: &[&str], fails: bool) -> Result<u32, Error> {
    let statements: Vec<String> = statements
        .iter()
        .map(|text| text.replace("{entry}", &bank.entry(key)))
        .collect();
    let ran = bank.call(key).run_in(&bank.pool, async move |mut tx, _| {
        for text in statements {
            drop(send(&mut tx, &text).await);
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
    assert_eq!(bank.entries().await, entries, "{statements:?}");
    let again = Arc::new(AtomicU32::new(0));
    let ran = Arc::clone(&again);
    let second = bank.call(&key).run_in(&bank.pool, async move |_, _| {
        Ok::<_, Failure>(ran.fetch_add(1, Ordering::SeqCst))
    });
    let told = second.await;
    assert!(
        matches!(&told, Err(Error::Problem(Problem::InDoubt(_)))),
        "{told:?}"
    );
    assert_eq!(again.load(Ordering::SeqCst), 0);
    assert_eq!(bank.entries().await, entries, "{statements:?}");
}

#[tokio::test]
async fn an_effect_that_commits_by_itself_leaves_a_doubt() {
    is_in_doubt(&["{entry}", "COMMIT"], false, 1).await;
    is_in_doubt(&["{entry}", "COMMIT", "BEGIN", "{entry}"], false, 1).await;
}

#[tokio::test]
async fn an_effect_that_commits_by_itself_and_fails_leaves_a_doubt() {
    is_in_doubt(&["{entry}", "COMMIT"], true, 1).await;
    is_in_doubt(&["{entry}", "CREATE TABLE refused_later (id INT)"], true, 1).await;
    let writes_on = ["{entry}", "COMMIT", "START TRANSACTION READ WRITE"];
    is_in_doubt(&writes_on, true, 1).await;
}

/// What came before a rollback of its own, the store can't know.
#[tokio::test]
async fn an_effect_that_rolls_back_by_itself_leaves_a_doubt_and_writes_nothing() {
    let ends: [&[&str]; 3] = [
        &["{entry}", "ROLLBACK", "{entry}"],
        &["ROLLBACK", "BEGIN", "{entry}", "COMMIT"],
        &["ROLLBACK", "CREATE TABLE refused_too (id INT)", "{entry}"],
    ];
    for statements in ends {
        for fails in [false, true] {
            is_in_doubt(statements, fails, 0).await;
        }
    }
}

/// However a run ends, the next user of its connection may write.
#[tokio::test]
async fn connections_are_given_back_as_they_were() {
    let pool = MySqlPoolOptions::new().max_connections(1);
    let pool = pool.connect(&crate::shared()).await.expect("a server");
    let bank = Bank::on(&crate::shared(), pool, Semel::builder()).await;
    let ends: [(&[&str], bool); 5] = [
        (&["{entry}"], false),
        (&["{entry}"], true),
        (&["ROLLBACK"], false),
        (&["COMMIT"], true),
        (&["SELECT no_such_thing"], true),
    ];
    for (index, (statements, fails)) in ends.into_iter().enumerate() {
        let before = bank.entries().await;
        let told = run(&bank, &fresh(), statements, fails).await;
        let written = i64::from(told.is_ok());
        bank.sql(&bank.entry("afterwards")).await;
        let expected = before + written + 1;
        assert_eq!(bank.entries().await, expected, "{index}: {told:?}");
    }
    // A caller that leaves while its effect runs.
    let (began, key) = (Arc::new(Notify::new()), fresh());
    let inside = Arc::clone(&began);
    let panics = bank.call(&key).run_in(&bank.pool, async move |_, _| {
        inside.notify_one();
        assert!(key_is_never_this(), "a panic");
        Ok::<_, Failure>(1)
    });
    panics.await.expect_err("a panic");
    bank.sql(&bank.entry("afterwards")).await;
    let (send, receive) = tokio::sync::oneshot::channel();
    let kept = bank.call(&fresh()).run_in(&bank.pool, async move |tx, _| {
        drop(send.send(tx));
        Ok::<_, Failure>(1)
    });
    kept.await.expect_err("it kept its transaction");
    drop(receive.await);
    bank.sql(&bank.entry("afterwards")).await;
}

fn key_is_never_this() -> bool {
    fresh().is_empty()
}
