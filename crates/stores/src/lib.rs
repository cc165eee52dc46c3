//! Where Semel keeps its records, beyond this process's memory. One feature per backend.
//!
//! | feature | store | module |
//! |---|---|---|
//! | `redis` | Redis ≥ 7.0, Valkey | `redis` |
//!
//! Every backend passes the conformance suite of `semel-testkit` on a real server.

#[cfg(feature = "redis")]
pub mod redis;
