//! Logging: text on a terminal, JSON elsewhere.

use std::io::IsTerminal as _;

use semel_server::config::{Log, LogFormat};
use tracing_subscriber::EnvFilter;

/// Starts logging to standard error.
pub(crate) fn start(log: &Log) {
    let is_terminal = std::io::stderr().is_terminal();
    let filter = EnvFilter::try_new(&log.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal);
    let as_text = match log.format {
        LogFormat::Auto => is_terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let started = if as_text {
        builder.with_target(false).try_init()
    } else {
        builder.json().flatten_event(true).try_init()
    };
    if let Err(error) = started {
        eprintln!("semel: logging could not be started: {error}");
    }
}
