//! Stores made of other stores.
//!
//! | type | is |
//! |---|---|
//! | [`Mirror`] | two stores with the same records, for a live migration |
//! | [`Spill`] | a store that spills large bodies to a blob store |
//! | [`copy`] | copies one record from one store to another |

pub mod copy;
mod mirror;
mod spill;

pub use mirror::Mirror;
pub use spill::{BodyStore, Spill};
