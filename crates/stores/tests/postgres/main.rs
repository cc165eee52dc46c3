//! PostgreSQL, on real servers: the rules, runs inside the caller's transaction, and what goes
//! wrong.
//!
//! `cargo xtask services up postgres pgbouncer postgres-sync` starts the shared servers; without
//! them these tests fail. Tests that kill servers or change their settings have servers of their
//! own.
#![cfg(feature = "postgres")]

mod commits;
mod diagnosis;
#[path = "../encrypted/mod.rs"]
mod encrypted;
mod ended;
mod errors;
mod failures;
mod fences;
mod groups;
#[path = "../sql/groups.rs"]
mod groups_shared;
#[path = "../sql/lost_reply.rs"]
mod lost_reply;
mod open_runs;
mod sealed;
mod sessions;
mod settings;
mod suite;
#[path = "../sql/support.rs"]
mod support;
mod tables;
mod transaction;

use semel_core::StoreResult;
use semel_stores::postgres::PostgresStore;

pub(crate) async fn open(url: &str) -> PostgresStore {
    try_open(url).await.expect("a server that is fit")
}

pub(crate) async fn try_open(url: &str) -> StoreResult<PostgresStore> {
    PostgresStore::open(url, semel::tokio_env().clock).await
}
