//! Telemetry of the real program: metrics, log lines, alerts; and that it reveals no secrets.

mod alerts;
mod breaker;
mod files;
mod log_form;
mod pool;
mod runbooks;
mod script;
mod support;
mod traces;
