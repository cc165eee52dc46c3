//! The Redis store on real servers: the conformance suite on every set-up, the ways to reach a
//! server, and the traps that others fell into.
//!
//! `cargo xtask services up redis valkey redis-sentinel redis-cluster` starts what is shared;
//! without them these tests fail. What a test kills, pauses or configures is a server of its own.
#![cfg(feature = "redis")]

mod diagnosis;
mod durability;
#[path = "../encrypted/mod.rs"]
mod encrypted;
mod interceptor;
mod links;
mod sealed;
mod semel_on_redis;
mod suite;
mod support;
mod traps;
