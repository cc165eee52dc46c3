//! Shows that a store keeps Semel's promise, and helps users test what they build on it.
//!
//! For development only. What a store's author needs is [`conformance`]; what a user's test needs
//! is [`clock`] and [`faulty`].
//!
//! | module | what it is for |
//! |---|---|
//! | [`clock`] | time that stands still until a test moves it; seeded chance |
//! | [`conformance`] | one function per protocol rule, for any store |
//! | [`broken`] | stores with one bug each, which the suite must catch by name |
//! | [`faulty`] | a store wrapper that fails, delays, loses replies and repeats calls, from a seed |
//! | [`http_proxy`] | a way to an HTTP server that answers wrongly, at an exact request |
//! | [`history`] | records every call and checks the invariants afterwards |
//! | [`private`] | servers that belong to one test, to kill, pause and restart |
//! | [`proxy`] | a way to a server that can be cut at an exact point |
//! | [`reference`](mod@reference) | the protocol written a second time, simply, to compare stores with |
//! | [`simulation`] | the real engine in a world of faults, all of it from one seed |
//! | [`vectors`] | the language-neutral test vectors under `spec/vectors` |
//! | `model` | the protocol as a Stateright model (feature `model`) |

pub mod broken;
pub mod clock;
pub mod conformance;
pub mod faulty;
pub mod history;
pub mod http_proxy;
#[cfg(feature = "model")]
pub mod model;
pub mod private;
pub mod proxy;
pub mod reference;
pub mod simulation;
pub mod vectors;
