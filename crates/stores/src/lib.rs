//! Where Semel keeps its records, beyond this process's memory. One feature per backend.
//!
//! | feature | store | module |
//! |---|---|---|
//! | `postgres` | PostgreSQL ≥ 14 | `postgres` |
//! | `redis` | Redis ≥ 7.0, Valkey | `postgres` | PostgreSQL ≥ 14 | `postgres` |
//! | `redis` |
//!
//! Every backend passes the conformance suite of `semel-testkit` on a real server.

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
