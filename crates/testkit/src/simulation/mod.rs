//! Deterministic simulation: the real engine and the real protocol in a world that one seed
//! decides.
//!
//! Several nodes, each with its own [`Engine`](semel_core::engine::Engine) and its own clock, share
//! a store of packed records over a network that delays, loses, doubles and reorders messages and
//! cuts calls in half. Nodes die at any step, stop for longer than a lease and come back; the store
//! restarts and has its clock set; operators sweep, delete and resolve; callers lose patience and
//! ask elsewhere. There are no threads and no machine clock: time moves to the next timer, and the
//! same seed gives the same course of events, step by step (its [`SimulationOutcome::digest`]).
//!
//! Three judges look at each world:
//!
//! | judge | looks at | says |
//! |---|---|---|
//! | [`history::check`](crate::history::check) | every call as the store decided it | the invariants |
//! | `book` | the spans, checkpoints and counts in those answers | P9, P10, P13, P15, P20, P23, P26 |
//! | `apart` | records of answers, and what callers are told of them | P50 |
//! | `effects`, `answers` | when effects begin, and what callers are told | I2, I4, I7, I8, I10, I11, P12, P33, P34 |
//!
//! ```
//! let outcome = semel_testkit::simulation::run(1, None);
//! assert!(outcome.breaches.is_empty());
//! assert_eq!(outcome.digest, semel_testkit::simulation::run(1, None).digest);
//! ```

mod answers;
mod apart;
mod book;
mod callers;
mod clocks;
mod director;
mod effects;
mod job;
mod ledger;
mod nodes;
mod op;
mod plan;
mod run;
mod sched;
mod strikes;
mod tally;
mod wire;
mod world;

pub use run::{SimulationOutcome, run, run_apart, run_encrypted, run_flawed};
pub use tally::{Breach, RunTally};
pub use world::NodeFlaw;
