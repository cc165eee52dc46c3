//! Encrypted records on a real server.

crate::encrypted::encrypted_tests!(async {
    (
        super::support::open(&super::support::own_url_of("SEMEL_TEST_S3_URL")).await,
        (),
    )
});
