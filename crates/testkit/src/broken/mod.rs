//! Stores with one bug each, which the conformance suite must catch by name.
//!
//! A suite that never fails proves nothing. [`BrokenStore`] is a small store that keeps every rule;
//! told to have a [`Bug`], it breaks one of them, the way stores in the wild do. For each bug
//! [`Bug::expected_check`] names the check that has to fail.
//!
//! ```
//! use semel_testkit::broken::Bug;
//! use semel_conformance::ConformanceCheck;
//!
//! for bug in Bug::ALL {
//!     assert!(ConformanceCheck::named(bug.expected_check()).is_some(), "{}", bug.name());
//! }
//! ```

mod admin;
mod bug;
mod claim;
mod claims;
mod damage;
mod restore;
mod settle;
mod store;
mod subject;

pub use bug::Bug;
pub use store::BrokenStore;
pub use subject::BrokenSubject;
