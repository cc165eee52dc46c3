//! Durable and shared stores for Semel's records, one feature per backend.
//!
//! | feature | store | module |
//! |---|---|---|
//! | `mysql` | MariaDB ≥ 10.6, MySQL ≥ 8.0 | `mysql` |
//! | `object` | S3 and what speaks it, Google Cloud Storage, Azure Blob Storage | `object` |
//! | `postgres` | PostgreSQL ≥ 14 | `postgres` |
//! | `redis` | Redis ≥ 7.0, Valkey | `redis` |
//! | `sqlite` | a file on this host | `sqlite` |
//!
//! [`encrypted`] encrypts the records of any of them, [`compressed`] compresses larger answers.
//!
//! Every backend passes the conformance suite of `semel-conformance` on a real server.

#[cfg(any(
    feature = "mysql",
    feature = "object",
    feature = "postgres",
    feature = "redis"
))]
mod cas;
pub mod compose;
pub mod compressed;
pub mod encrypted;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod local_host;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "object")]
pub mod object;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod server_error;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(any(feature = "mysql", feature = "postgres"))]
pub use sql::transaction::TxError;

pub use server_error::ServerError;
