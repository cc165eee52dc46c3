//! Encrypted records on a real server.

crate::encrypted::encrypted_tests!(async {
    (
        crate::open(&std::env::var("SEMEL_TEST_POSTGRES_URL").expect("SEMEL_TEST_POSTGRES_URL"))
            .await,
        (),
    )
});
