//! Attacks on the real sidecar and the real gateway. Each of them once worked.

mod gateway;
mod hang_up;
mod readings;
mod sidecar;
mod support;
mod weak_settings;
