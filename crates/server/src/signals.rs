//! Until a signal says otherwise: SIGHUP reads the configuration again, SIGTERM and SIGINT drain, a second one ends at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::server::{Drained, Server};

/// Serves until a signal ends it.
///
/// # Errors
/// Where signals can't be listened for.
pub async fn until_told(server: Server) -> std::io::Result<Drained> {
    let mut signals = Signals::new()?;
    loop {
        tokio::select! {
            _ = signals.hang_up.recv() => reload(&server),
            () = Signals::end(&mut signals.terminate, &mut signals.interrupt) => break,
        }
    }
    tracing::info!("draining: no more connections are taken, what has begun is finished");
    let drained = tokio::select! {
        drained = server.drain() => drained,
        () = Signals::end(&mut signals.terminate, &mut signals.interrupt) => {
            tracing::warn!("told twice: ending at once");
            Drained::CutOff
        }
    };
    match drained {
        Drained::Whole => tracing::info!("drained; everything that had begun was finished"),
        Drained::CutOff => tracing::warn!(
            "ending although something had not finished; its keys are settled by their crash policy"
        ),
    }
    Ok(drained)
}

fn reload(server: &Server) {
    match server.reload() {
        Ok(fixed) => {
            tracing::info!("the configuration was read again and holds for new requests");
            for setting in fixed {
                tracing::warn!(
                    "{} was changed, and can't while the process runs; restart it for that",
                    setting.replace('/', ".")
                );
            }
        }
        Err(error) => {
            tracing::error!("the new configuration is refused, the old one stays: {error}")
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

    async fn end(terminate: &mut Signal, interrupt: &mut Signal) {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}
