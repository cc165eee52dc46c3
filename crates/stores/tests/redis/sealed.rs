//! Encrypted records on a real server.

crate::encrypted::encrypted_tests!(async {
    (
        super::support::open(&super::support::variable("SEMEL_TEST_REDIS_URL")).await,
        (),
    )
});
