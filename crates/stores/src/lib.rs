//! Where Semel keeps its records, beyond this process's memory. One feature per backend.
//!
//! | feature | store | module |
//! |---|---|---|
//! | `object` | S3 and what speaks it, Google Cloud Storage, Azure Blob Storage | `object` |
//! | `postgres` | PostgreSQL ≥ 14 | `postgres` |
//! | `redis` | Redis ≥ 7.0, Valkey | `redis` |
//!
//! Every backend passes the conformance suite of `semel-testkit` on a real server.

#[cfg(feature = "object")]
pub mod object;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
