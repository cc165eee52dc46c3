//! Encrypted records on a real server.

crate::encrypted::encrypted_tests!(crate::open(&crate::shared()));
