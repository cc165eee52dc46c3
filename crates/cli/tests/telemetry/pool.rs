//! A connection pool that is exhausted, read from the metrics of the real program.

use semel_testkit::private::{PostgresServer, Private};

use super::support::{Rig, pause, post};

#[tokio::test]
#[ignore = "needs servers"]
async fn calls_without_a_connection_are_counted() {
    let server = PostgresServer::start(&[]).await;
    let url = format!("{}?max_connections=1", server.url());
    let rig = Rig::on(server, &url, "").await;
    let labels = [r#"backend="postgres""#];
    let exhausted = "semel_store_connections_exhausted_total";
    assert_eq!(rig.post("/", Some("order-0001"), "{}").await.0, 200);
    rig.metrics().await.is(exhausted, &labels, 0.0);
    // From now on every statement waits, so the first keeps the only connection.
    let lock = "begin; lock table semel.records in access exclusive mode; select pg_sleep(600)";
    let mut lock = Private::start(&mut rig.store.psql("semel", lock));
    let locks = "select count(*) from pg_locks where mode = 'AccessExclusiveLock' and granted";
    while rig.store.sql("semel", locks) == "0" {
        pause().await;
    }
    let address = rig.address;
    let asked: Vec<_> = ["order-0002", "order-0003"]
        .map(|key| tokio::spawn(post(address, "/", Some(key), "{}")))
        .into();
    while rig.metrics().await.get(exhausted, &labels) < Some(1.0) {
        pause().await;
    }
    lock.kill();
    for asked in asked {
        asked.await.unwrap();
    }
}
