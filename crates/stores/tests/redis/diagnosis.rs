//! What the store says of its servers, each finding brought about.

use semel_core::diagnosis::{Finding, Severity};
use semel_core::store::StoreAdmin as _;
use semel_testkit::private::RedisServer;

use crate::support::open;

fn of<'a>(findings: &'a [Finding], check: &str) -> &'a Finding {
    let found = findings.iter().find(|finding| finding.check == check);
    found.unwrap_or_else(|| panic!("nothing about {check} in {findings:?}"))
}

#[tokio::test]
async fn a_server_that_forgets_at_a_restart_is_told() {
    let server = RedisServer::start(&[]).await;
    let store = open(&server.url()).await;
    let findings = store.diagnose().await.unwrap();
    let persistence = of(&findings, "persistence");
    assert_eq!(persistence.severity, Severity::Warning, "{persistence:?}");
    let fix = persistence.fix.as_deref().unwrap_or_default();
    assert!(fix.contains("appendonly yes"), "{fix}");
    assert_eq!(of(&findings, "eviction").severity, Severity::Good);
    assert_eq!(of(&findings, "clock").severity, Severity::Good);

    let _ = server.ask(&["CONFIG", "SET", "appendonly", "yes"]);
    let _ = server.ask(&["CONFIG", "SET", "appendfsync", "always"]);
    let findings = store.diagnose().await.unwrap();
    assert_eq!(of(&findings, "persistence").severity, Severity::Good);
}

#[tokio::test]
async fn eviction_and_a_full_memory_are_told() {
    let server = RedisServer::start(&["--maxmemory", "900mb"]).await;
    let store = open(&server.url()).await;
    let findings = store.diagnose().await.unwrap();
    assert_eq!(of(&findings, "memory").severity, Severity::Good);
    let _ = server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let _ = server.ask(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let findings = store.diagnose().await.unwrap();
    assert_eq!(of(&findings, "eviction").severity, Severity::Broken);
    assert_eq!(of(&findings, "memory").severity, Severity::Warning);
}

#[tokio::test]
async fn a_replica_that_nobody_waits_for_is_told() {
    let master = RedisServer::start(&[]).await;
    let port = master.port().to_string();
    let _replica = RedisServer::start(&["--replicaof", "127.0.0.1", &port]).await;
    // Joining takes a moment.
    let joined = async {
        while !master
            .ask(&["INFO", "replication"])
            .contains("state=online")
        {
            tokio::task::yield_now().await;
        }
    };
    joined.await;
    let plain = open(&master.url()).await;
    let findings = plain.diagnose().await.unwrap();
    assert_eq!(of(&findings, "replication").severity, Severity::Warning);
    let waiting = open(&format!("{}?durability=wait:1", master.url())).await;
    let findings = waiting.diagnose().await.unwrap();
    assert_eq!(of(&findings, "replication").severity, Severity::Good);
    let too_many = open(&format!("{}?durability=wait:2", master.url())).await;
    let findings = too_many.diagnose().await.unwrap();
    assert_eq!(of(&findings, "replication").severity, Severity::Broken);
}
