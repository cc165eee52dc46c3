//! Sessions that wait for each other: the server chooses one to give way, and the store sends its
//! statement again.

use semel_core::{Claim, Claimed, Store};
use semel_testkit::private::MariaDbServer;
use sqlx::mysql::MySqlPool;
use sqlx::{AssertSqlSafe, MySqlConnection};

use crate::open;
use crate::support::{again, complete, fresh, sleep, won};

async fn run(connection: &mut MySqlConnection, text: &str) {
    let done = sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await;
    done.unwrap_or_else(|error| panic!("{text}: {error}"));
}

fn hex(claim: &Claim) -> String {
    format!("x'{:032x}'", u128::from_be_bytes(claim.identity.address()))
}

/// A row of this key that nobody but its own transaction sees.
fn insert(claim: &Claim) -> String {
    format!(
        "INSERT INTO semel_records (address, seal, token, fence, created_us, written_us, retention_ms, lease_ms, \
         attempt, max_attempts, secret_id, format, state, crash, fingerprint, environment, tenant, scope, hint) \
         VALUES ({}, '', '', 1, 1, 1, 1, 1, 1, 1, 0, 1, 5, 1, '', '', '', 'x', '')",
        hex(claim)
    )
}

async fn until(server: &MariaDbServer, question: &str, wanted: &str) {
    for _ in 0..500 {
        if server.sql(question) == wanted {
            return;
        }
        sleep(10).await;
    }
    panic!("{question} never gave {wanted}: {}", server.sql(question));
}

const WAITING: &str =
    "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'";
const DEADLOCKS: &str = "select variable_value from information_schema.global_status where variable_name = 'INNODB_DEADLOCKS'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_sessions_that_insert_one_key_have_one_winner_and_no_error() {
    let server = MariaDbServer::start(&[]).await;
    let (two, three) = (open(&server.url()).await, open(&server.url()).await);
    let pool = MySqlPool::connect(&server.url()).await.unwrap();
    let before = server.sql(DEADLOCKS);
    for _ in 0..5 {
        let claim = fresh();
        // The first has a row that is not committed; the other two wait for it, each with a shared
        // lock to come.
        let mut one = pool.begin().await.unwrap();
        run(&mut one, &insert(&claim)).await;
        let claiming = [(two.clone(), claim.clone()), (three.clone(), again(&claim))];
        let claiming =
            claiming.map(|(store, claim)| tokio::spawn(async move { store.claim(&claim).await }));
        until(&server, WAITING, "2").await;
        // It goes: both get their shared lock, both want the row, and the server ends one of them.
        one.rollback().await.unwrap();
        let mut won = 0;
        for claiming in claiming {
            let answer = claiming.await.unwrap().expect("an answer, and no deadlock");
            won += u32::from(matches!(answer, Claimed::Won(_)));
        }
        assert_eq!(won, 1);
    }
    assert_ne!(
        server.sql(DEADLOCKS),
        before,
        "the server saw no deadlock: this test shows nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlock_victim_statement_is_retried() {
    let server = MariaDbServer::start(&[]).await;
    let store = open(&format!("{}?max_connections=2", server.url())).await;
    let pool = MySqlPool::connect(&server.url()).await.unwrap();
    run(
        &mut pool.acquire().await.unwrap(),
        "CREATE TABLE heavy (id INT PRIMARY KEY, value INT)",
    )
    .await;
    let rows: Vec<String> = (0..500).map(|i| format!("({i}, 0)")).collect();
    run(
        &mut pool.acquire().await.unwrap(),
        &format!("INSERT INTO heavy VALUES {}", rows.join(",")),
    )
    .await;
    // A trigger makes the settlement want another row than its own, which somebody has who wants
    // the settlement's.
    let trigger = "CREATE TRIGGER second AFTER UPDATE ON semel_records FOR EACH ROW \
                   UPDATE heavy SET value = value + 1 WHERE id = 1";
    run(&mut pool.acquire().await.unwrap(), trigger).await;
    let claim = fresh();
    let lease = won(&store, &claim).await;
    let before = server.sql(DEADLOCKS);
    let mut other = pool.begin().await.unwrap();
    // The heavier transaction is the one that the server keeps.
    run(&mut other, "UPDATE heavy SET value = value + 1").await;
    let settling = tokio::spawn({
        let (store, lease) = (store.clone(), lease.clone());
        async move { store.settle(&lease, &complete("once")).await }
    });
    until(&server, WAITING, "1").await;
    let wants = format!(
        "UPDATE semel_records SET hint = 'x' WHERE address = {}",
        hex(&claim)
    );
    run(&mut other, &wants).await;
    other.rollback().await.unwrap();
    assert_eq!(settling.await.unwrap().unwrap(), semel_core::Settled::Done);
    assert_ne!(
        server.sql(DEADLOCKS),
        before,
        "the server saw no deadlock: this test shows nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_row_is_busy_after_the_lock_timeout() {
    let server = MariaDbServer::start(&[]).await;
    let store = open(&server.url()).await;
    let pool = MySqlPool::connect(&server.url()).await.unwrap();
    let claim = fresh();
    let mut other = pool.begin().await.unwrap();
    run(&mut other, &insert(&claim)).await;
    let answer = store.claim(&claim).await.unwrap();
    assert!(matches!(answer, Claimed::Busy(_)), "{answer:?}");
    other.rollback().await.unwrap();
    assert_eq!(won(&store, &claim).await.attempt, 1);
}
