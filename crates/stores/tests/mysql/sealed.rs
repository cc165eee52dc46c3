//! Encrypted records on a real server.

crate::encrypted::encrypted_tests!(async { (crate::open(&crate::shared()).await, ()) });
