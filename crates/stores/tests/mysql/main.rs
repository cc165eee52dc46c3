//! MariaDB, on real servers: the rules, runs inside the caller's transaction, and what goes wrong.
//!
//! `cargo xtask services up mariadb` starts the shared server; without it these tests fail. Tests
//! that kill servers or change their settings have servers of their own.
#![cfg(feature = "mysql")]

mod deadlocks;
#[path = "../encrypted/mod.rs"]
mod encrypted;
mod ended;
mod failures;
mod fences;
mod groups;
#[path = "../sql/groups.rs"]
mod groups_shared;
#[path = "../sql/lost_reply.rs"]
mod lost_reply;
mod refusals;
mod rows;
mod sealed;
mod settings;
mod suite;
#[path = "../sql/support.rs"]
mod support;
mod transaction;
mod waiters;

use semel_core::StoreResult;
use semel_stores::mysql::MySqlStore;

pub(crate) async fn open(url: &str) -> MySqlStore {
    try_open(url).await.expect("a server that is fit")
}

pub(crate) async fn try_open(url: &str) -> StoreResult<MySqlStore> {
    MySqlStore::open(url, semel::tokio_env().clock).await
}

/// The server that tests share.
pub(crate) fn shared() -> String {
    std::env::var("SEMEL_TEST_MARIADB_URL").expect(
        "SEMEL_TEST_MARIADB_URL is not set: start the servers with `cargo xtask services up`",
    )
}
