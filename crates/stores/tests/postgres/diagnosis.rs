//! What the store says of its server, each finding brought about.

use semel_core::diagnosis::Severity;
use semel_core::store::StoreAdmin as _;
use semel_testkit::private::PostgresServer;
use sqlx::PgPool;

use crate::open;
use crate::support::finding;

#[tokio::test]
async fn a_server_in_order_has_nothing_to_mend() {
    let server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    let findings = store.diagnose().await.unwrap();
    let worst = findings.iter().map(|finding| finding.severity).max();
    // One server alone is a choice, and no more than that.
    assert_eq!(worst, Some(Severity::Note), "{findings:?}");
    assert_eq!(finding(&findings, "replication").severity, Severity::Note);
}

#[tokio::test]
async fn indexes_that_cost_and_indexes_that_are_gone_are_told() {
    let server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    let pool = PgPool::connect(&server.url()).await.unwrap();
    let run = async |text: &'static str| sqlx::query(text).execute(&pool).await.unwrap();
    run("CREATE INDEX mine ON semel.records (scope)").await;
    let findings = store.diagnose().await.unwrap();
    assert_eq!(finding(&findings, "indexes").severity, Severity::Warning);
    run("DROP INDEX semel.mine").await;
    run("ALTER TABLE semel.records DROP CONSTRAINT records_pkey").await;
    let findings = store.diagnose().await.unwrap();
    assert_eq!(finding(&findings, "indexes").severity, Severity::Broken);
}

#[tokio::test]
async fn settings_that_hurt_are_told() {
    let settings = ["autovacuum=off", "max_connections=30"];
    let server = PostgresServer::start(&settings).await;
    let store = open(&server.url()).await;
    let findings = store.diagnose().await.unwrap();
    assert_eq!(finding(&findings, "bloat").severity, Severity::Broken);
    assert_eq!(
        finding(&findings, "connections").severity,
        Severity::Warning
    );
}

#[tokio::test]
async fn expired_records_that_nobody_sweeps_are_told() {
    let server = PostgresServer::start(&[]).await;
    let store = open(&server.url()).await;
    let pool = PgPool::connect(&server.url()).await.unwrap();
    let text = "INSERT INTO semel.records (fence, written_us, retention_ms, lease_ms, attempt, max_attempts, secret_id, \
                format, state, crash, address, seal, token, fingerprint, environment, tenant, scope, hint) \
                SELECT 1, 1, 1000, 1000, 1, 1, 0, 1, 5, 1, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), '', \
                '', '', 'old', '' FROM generate_series(1, 2000)";
    sqlx::query(text).execute(&pool).await.unwrap();
    let findings = store.diagnose().await.unwrap();
    assert_eq!(finding(&findings, "sweeping").severity, Severity::Warning);
}
