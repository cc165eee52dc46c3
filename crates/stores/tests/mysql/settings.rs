//! Servers and URLs that are not fit are refused at start, with what to do; and what the store says
//! of its server, each finding brought about.

use semel_core::diagnosis::Severity;
use semel_core::store::StoreAdmin as _;
use semel_core::{Answer, Store as _};
use semel_stores::mysql::pending;
use semel_testkit::private::{MariaDbServer, free_port};

use crate::support::{brief, complete, done, finding, fresh, refusal, sleep, won};
use crate::{open, try_open};

#[tokio::test]
async fn a_server_that_would_forget_is_refused() {
    for value in ["0", "2"] {
        let setting = format!("innodb-flush-log-at-trx-commit={value}");
        let server = MariaDbServer::start(&[&setting]).await;
        let said = refusal(try_open(&server.url()).await);
        assert!(said.contains("innodb_flush_log_at_trx_commit"), "{said}");
    }
}

#[tokio::test]
async fn a_server_that_may_only_be_read_is_refused() {
    let server = MariaDbServer::start(&["read-only=1"]).await;
    let said = refusal(try_open(&server.url()).await);
    assert!(said.contains("connect to the primary"), "{said}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_as_such() {
    let url = format!("mysql://semel:hush@127.0.0.1:{}/semel", free_port());
    let error = try_open(&url).await.expect_err("nobody is there");
    let source = std::error::Error::source(&error).map(ToString::to_string);
    let said = source.unwrap_or_default();
    assert!(said.contains("refused") && !said.contains("hush"), "{said}");
}

#[tokio::test]
async fn healthy_server_has_no_findings_and_bad_settings_do() {
    let server = MariaDbServer::start(&["log-bin=binlog", "server-id=1", "sync-binlog=1"]).await;
    let store = open(&server.url()).await;
    let verdict = async |check: &'static str| {
        let findings = store.diagnose().await.unwrap();
        finding(&findings, check).severity
    };
    let findings = store.diagnose().await.unwrap();
    let worst = findings.iter().map(|finding| finding.severity).max();
    assert_eq!(worst, Some(Severity::Good), "{findings:?}");

    server.sql("set global sync_binlog = 0");
    assert_eq!(verdict("persistence").await, Severity::Warning);
    server.sql("set global innodb_flush_log_at_trx_commit = 2");
    assert_eq!(verdict("persistence").await, Severity::Broken);
    server.sql("set global read_only = 1");
    assert_eq!(verdict("writable").await, Severity::Broken);
    server.sql("set global read_only = 0; set global max_connections = 12");
    assert_eq!(verdict("connections").await, Severity::Warning);
    server.sql("set global max_allowed_packet = 1048576");
    assert_eq!(verdict("packets").await, Severity::Warning);
    server.sql("alter table semel.semel_records add index mine (scope)");
    assert_eq!(verdict("table").await, Severity::Warning);
    server.sql("alter table semel.semel_records drop index mine, drop primary key");
    assert_eq!(verdict("table").await, Severity::Broken);
    server.sql(
        "insert into semel.semel_records select unhex(md5(seq)), '', '', 1, 1, 1, 1000, 1000, 1, 1, 0, 1, 5, 1, '', '', \
         '', 'old', '', null, null, null, null from semel.seq_1_to_2000",
    );
    assert_eq!(verdict("sweeping").await, Severity::Warning);
}

#[tokio::test]
async fn without_migrations_missing_tables_are_said() {
    let server = MariaDbServer::start(&[]).await;
    let off = format!("{}?migrate=off", server.url());
    let said = refusal(try_open(&off).await);
    assert!(said.contains("migrations/mysql"), "{said}");
    let clock = semel::tokio_env().clock;
    assert_eq!(
        pending(&off, clock.clone()).await.unwrap(),
        ["0001_records", "0002_fences"]
    );
    open(&server.url()).await;
    assert!(pending(&off, clock).await.unwrap().is_empty());
    open(&off).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_processes_may_start_at_once_on_an_empty_database() {
    let server = MariaDbServer::start(&[]).await;
    let url = format!("{}?max_connections=2", server.url());
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { try_open(&url).await.map(drop) })
        })
        .collect();
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_user_that_may_only_read_and_write_is_enough() {
    let server = MariaDbServer::start(&[]).await;
    open(&server.url()).await; // Somebody else makes the tables.
    server.sql(
        "create user app@'127.0.0.1'; grant select, insert, update, delete on semel.* to app@'127.0.0.1'",
    );
    let store = open(&server.url().replace("semel@", "app@")).await;
    assert!(done(&store, &fresh()).await);
    assert_eq!(store.sweep(10).await.unwrap(), 0);
    assert!(!store.diagnose().await.unwrap().is_empty());
}

#[tokio::test]
async fn too_large_answer_is_rejected_and_the_connection_survives() {
    let server = MariaDbServer::start(&["max-allowed-packet=2M"]).await;
    let store = open(&server.url()).await;
    let most = store.capabilities().max_answer_bytes;
    assert!(most < 2 * 1024 * 1024, "{most}");
    let lease = won(&store, &fresh()).await;
    let said = refusal(store.settle(&lease, &complete(&"x".repeat(most + 1))).await);
    assert!(said.contains("max_allowed_packet"), "{said}");
    store
        .settle(&lease, &complete(&"x".repeat(most)))
        .await
        .unwrap();
}

#[tokio::test]
async fn the_largest_answer_is_kept() {
    let server =
        MariaDbServer::start(&["max-allowed-packet=64M", "innodb-log-file-size=256M"]).await;
    let store = open(&server.url()).await;
    assert_eq!(
        store.capabilities().max_answer_bytes,
        Answer::MAX_BODY_BYTES + Answer::MAX_HEAD_BYTES
    );
    let claim = fresh();
    let lease = won(&store, &claim).await;
    let largest = complete(&"x".repeat(Answer::MAX_BODY_BYTES));
    store.settle(&lease, &largest).await.unwrap();
    let record = store.read(&claim.identity).await.unwrap().unwrap();
    assert!(record.answer.as_ref() == largest.answer());
}

#[tokio::test]
async fn expired_records_are_swept_and_live_ones_are_not() {
    let server = MariaDbServer::start(&[]).await;
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
    assert_eq!(store.expired(1_000).await.unwrap(), 50 - early);
    let some = store.sweep(20).await.unwrap();
    assert_eq!(some, 20.min(50 - early));
    assert_eq!(store.sweep(1_000).await.unwrap(), 50 - early - some);
    assert_eq!(store.sweep(1_000).await.unwrap(), 0);
    for claim in kept {
        assert!(store.read(&claim.identity).await.unwrap().is_some());
    }
    assert_eq!(server.sql("select count(*) from semel.semel_archive"), "50");
    assert_eq!(
        server.sql("select count(*) from semel.semel_readable where state = 'running'"),
        "50"
    );
}
