//! What the server may answer, brought about one by one: an effect that ran is settled in the end,
//! and runs once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use semel::{Failure, Semel};
use semel_core::event::{Event, Observer, Step, StoreCall};
use semel_core::{Certainty, Store as _, StoreErrorKind};
use semel_stores::mysql::ERRORS;
use semel_testkit::private::MariaDbServer;
use sqlx::mysql::MySqlPool;

use crate::open;
use crate::support::fresh;

/// A server that refuses as the test says. What it counts by is no transactional table, so that it
/// is not rolled back.
struct Refusing {
    server: MariaDbServer,
    pool: MySqlPool,
}

impl Refusing {
    /// One that refuses `event`s on records: `INSERT` or `UPDATE`.
    async fn start(event: &str) -> Self {
        let server = MariaDbServer::start(&[]).await;
        drop(open(&server.url()).await); // Makes the tables.
        let pool = MySqlPool::connect(&server.url()).await.expect("a server");
        let this = Self { server, pool };
        this.sql("CREATE TABLE refusals (number INT, more INT) ENGINE = MyISAM")
            .await;
        this.sql("INSERT INTO refusals VALUES (0, 0)").await;
        this.sql(&format!(
            "CREATE TRIGGER refuse BEFORE {event} ON semel_records FOR EACH ROW BEGIN \
             DECLARE refusal INT DEFAULT (SELECT number FROM refusals WHERE more > 0); \
             IF refusal IS NOT NULL THEN \
             UPDATE refusals SET more = more - 1; \
             SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = refusal, MESSAGE_TEXT = 'as the test says'; \
             END IF; END"
        ))
        .await;
        this
    }

    async fn sql(&self, text: &str) {
        let sent = sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&self.pool);
        sent.await.unwrap_or_else(|error| panic!("{text}: {error}"));
    }

    /// The next so many are refused with this number.
    async fn refuse(&self, number: u16, times: u32) {
        self.sql(&format!(
            "UPDATE refusals SET number = {number}, more = {times}"
        ))
        .await;
    }
}

#[tokio::test]
async fn node_that_is_not_ready_is_a_transient_error() {
    let refusing = Refusing::start("INSERT").await;
    let store = open(&refusing.server.url()).await;
    // Galera: not synchronised. Group replication: rolled back by it. Memory, threads.
    for number in [1047, 3101, 1037, 1041, 1135] {
        let claim = fresh();
        refusing.refuse(number, 1).await;
        let error = store.claim(&claim).await.expect_err("refused");
        let known = (error.kind, error.certainty);
        let passing = (StoreErrorKind::Unavailable, Certainty::Definite);
        assert_eq!(known, passing, "{number}");
        assert!(store.read(&claim.identity).await.unwrap().is_none());
    }
}

/// Why settlements failed.
#[derive(Default)]
struct Failures(Mutex<Vec<(StoreErrorKind, Certainty)>>);

impl Observer for Failures {
    fn observe(&self, event: &Event<'_>) {
        if let Step::StoreFailed {
            call: StoreCall::Settle,
            kind,
            certainty,
        } = event.step
        {
            self.0.lock().push((kind, certainty));
        }
    }
}

/// One more than the store sends a statement by itself.
const fn more_than_a_call(number: u16) -> u32 {
    match number {
        1213 => 17,
        _ => 3,
    }
}

#[tokio::test]
async fn refused_settlement_is_retried_until_it_is_settled() {
    let refusing = Arc::new(Refusing::start("UPDATE").await);
    let failures = Arc::new(Failures::default());
    let semel = Semel::builder().observer(failures.clone());
    let semel = semel.open(&refusing.server.url()).await.expect("a server");
    for row in ERRORS {
        let number: u16 = row.code.parse().expect("a number");
        let runs = Arc::new(AtomicU32::new(0));
        for replayed in [false, true] {
            let (refusing, runs) = (Arc::clone(&refusing), Arc::clone(&runs));
            let call = semel.operation("charge").key(row.code).payload(&1);
            let answer = call.run(async move |_| {
                refusing.refuse(number, more_than_a_call(number)).await;
                Ok::<_, Failure>(runs.fetch_add(1, Ordering::SeqCst))
            });
            let answer = answer
                .await
                .unwrap_or_else(|error| panic!("{row:?}: {error:?}"));
            assert_eq!((answer.value, answer.replayed), (0, replayed), "{row:?}");
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1, "{row:?}");
        let seen = std::mem::take(&mut *failures.0.lock());
        assert!(!seen.is_empty(), "{row:?}: the engine met no refusal");
        let as_said = |found: &(StoreErrorKind, Certainty)| *found == (row.kind, row.certainty);
        assert!(seen.iter().all(as_said), "{row:?}: {seen:?}");
    }
}
