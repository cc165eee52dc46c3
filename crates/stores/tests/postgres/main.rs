//! PostgreSQL, on real servers: the rules, runs inside the caller's transaction, and what goes wrong.
//!
//! `cargo xtask services up postgres pgbouncer postgres-sync` starts the shared servers; without them these tests
//! fail. Tests that kill servers or change their settings have servers of their own.
#![cfg(feature = "postgres")]

mod diagnosis;
mod failures;
#[path = "../sql/lost_reply.rs"]
mod lost_reply;
mod sessions;
mod settings;
mod suite;
mod support;
mod tables;
mod transaction;
