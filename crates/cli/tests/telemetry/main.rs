//! Telemetry of the real program: metrics, log lines, alerts; and that it reveals no secrets.

mod alerts;
mod files;
mod script;
mod support;
mod traces;
