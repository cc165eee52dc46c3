//! The real sidecar and the real gateway, as strangers try them: every attack here once worked.

mod gateway;
mod lax;
mod readings;
mod sidecar;
mod support;
