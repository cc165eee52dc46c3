//! Signals: SIGHUP reloads the configuration, SIGTERM and SIGINT drain, and a second one ends at
//! once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::server::{DrainOutcome, Server};
use crate::start::StartError;

/// Serves until a signal ends the process.
///
/// # Errors
/// If the process cannot listen for signals.
pub async fn serve_until_signal(server: Server) -> std::io::Result<DrainOutcome> {
    let mut signals = Signals::new()?;
    loop {
        tokio::select! {
            _ = signals.hang_up.recv() => {
                log_reload(server.reload());
                // A key management service may take its time; the end doesn't wait for it.
                tokio::select! {
                    reloaded = server.reload_keys() => log_keys(reloaded),
                    () = Signals::wait_for_end(&mut signals.terminate, &mut signals.interrupt) => {
                        break;
                    }
                }
            }
            () = Signals::wait_for_end(&mut signals.terminate, &mut signals.interrupt) => break,
        }
    }
    log("draining: no new connections are accepted, running requests finish");
    let outcome = tokio::select! {
        outcome = server.drain() => outcome,
        () = Signals::wait_for_end(&mut signals.terminate, &mut signals.interrupt) => {
            DrainOutcome::CutOff
        }
    };
    log(match outcome {
        DrainOutcome::Complete => "drained: all running requests have finished",
        DrainOutcome::CutOff => {
            "ending with unfinished requests: the crash policy of their keys applies"
        }
    });
    Ok(outcome)
}

fn log(message: &str) {
    tracing::info!("{message}");
}

fn log_reload(reloaded: Result<Vec<&'static str>, StartError>) {
    match reloaded {
        Ok(ignored) if ignored.is_empty() => {
            log("the configuration was reloaded and applies to new requests");
        }
        Ok(ignored) => log(&format!(
            "the configuration was reloaded and applies to new requests, except settings that \
             need a restart: {}",
            ignored.join(", ")
        )),
        Err(error) => {
            tracing::error!("the new configuration is invalid, and the old one stays: {error}");
        }
    }
}

/// Logs the outcome of a reload of encryption keys.
pub fn log_keys(reloaded: Result<bool, StartError>) {
    match reloaded {
        Ok(true) => log("the encryption keys were loaded again"),
        Ok(false) => {}
        Err(error) => {
            tracing::error!(
                "the encryption keys were not loaded again, and the old ones stay: {error}"
            );
        }
    }
}

struct Signals {
    hang_up: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            hang_up: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn wait_for_end(terminate: &mut Signal, interrupt: &mut Signal) {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}
