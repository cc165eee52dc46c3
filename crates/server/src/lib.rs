//! Semel as a process: the sidecar proxy, the protocol API and the admin API. The binary is `semel`.

pub mod admin;
pub mod api;
pub mod audit;
mod openapi;

pub use openapi::openapi;
