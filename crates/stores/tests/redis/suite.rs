//! Redis and Valkey keep every rule, in every topology.

use super::support::{Server, cluster, sentinel, variable};

/// A database that no other test uses: a listing there reads every record that there is.
fn alone(name: &str) -> String {
    format!("{}/1", variable(name))
}

semel_conformance::conformance_tests!(redis_7, async || Server::at(alone("SEMEL_TEST_REDIS_URL"))
    .await);
semel_conformance::conformance_tests!(valkey_9, async || Server::at(alone(
    "SEMEL_TEST_VALKEY_URL"
))
.await);
semel_conformance::conformance_tests!(redis_sentinel, async || Server::at(sentinel()).await);
semel_conformance::conformance_tests!(redis_cluster, async || Server::at(cluster()).await);
