//! Stores made of other stores.
//!
//! | type | is |
//! |---|---|
//! | [`Mirror`] | two stores with the same records, while a fleet moves from one to the other |
//! | [`Spill`] | a store whose large bodies are kept elsewhere |
//! | [`copy`] | one record, from the store that has it to the store that gets it |

pub mod copy;
mod mirror;
mod spill;

pub use mirror::Mirror;
pub use spill::{Bodies, Spill};
