#![doc = include_str!("../README.md")]
//!
//! [`Telemetry`] counts and logs. Use [`Meter`] or [`EventLog`] for one of the two.

mod config;
mod event_log;
#[doc(hidden)]
pub mod labels;
mod meter;
mod refused_payloads;
mod series;
pub mod table;
mod telemetry;
mod upkeep;

pub use config::TelemetryConfig;
pub use event_log::EventLog;
pub use meter::Meter;
#[doc(hidden)]
pub use series::Registry;
pub use telemetry::Telemetry;

/// The guide's example, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/observability.md")]
struct Guide;
