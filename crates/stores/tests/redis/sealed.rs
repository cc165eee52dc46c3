//! Encrypted records on a real server.

crate::encrypted::encrypted_tests!(super::support::open(&super::support::variable(
    "SEMEL_TEST_REDIS_URL"
)));
