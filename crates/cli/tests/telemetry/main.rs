//! What the real program shows of itself: metrics, log lines, alerts; and what it never shows.

mod alerts;
mod files;
mod script;
mod support;
mod traces;
