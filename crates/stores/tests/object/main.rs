//! The object store on a real server: the conformance suite, the traps that conditional writes
//! have, time, and servers that have to be refused.
//!
//! `cargo xtask services up s3 s3-unfit` starts and installs what is needed; without that these
//! tests fail.
#![cfg(feature = "object")]

mod bodies;
mod canary;
mod clocks;
mod costs;
#[path = "../encrypted/mod.rs"]
mod encrypted;
mod killed;
mod opened;
mod refusals;
mod refused;
mod sealed;
mod suite;
mod support;
mod traps;
