//! Redis and Valkey keep every rule, in every topology.

use super::support::{Server, cluster, sentinel, variable};

semel_testkit::conformance_tests!(redis_7, async || Server::at(variable(
    "SEMEL_TEST_REDIS_URL"
))
.await);
semel_testkit::conformance_tests!(valkey_9, async || Server::at(variable(
    "SEMEL_TEST_VALKEY_URL"
))
.await);
semel_testkit::conformance_tests!(redis_sentinel, async || Server::at(sentinel()).await);
semel_testkit::conformance_tests!(redis_cluster, async || Server::at(cluster()).await);
