//! Until a signal says otherwise: SIGHUP reads the configuration again, SIGTERM and SIGINT drain, a second one ends at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::server::{Drained, Server};
use crate::start::StartError;

/// Serves until a signal ends it.
///
/// # Errors
/// Where signals can't be listened for.
pub async fn until_told(server: Server) -> std::io::Result<Drained> {
    let mut signals = Signals::new()?;
    loop {
        tokio::select! {
            _ = signals.hang_up.recv() => say_reloaded(server.reload()),
            () = Signals::end(&mut signals.terminate, &mut signals.interrupt) => break,
        }
    }
    say("draining: no more connections are taken, what has begun is finished");
    let drained = tokio::select! {
        drained = server.drain() => drained,
        () = Signals::end(&mut signals.terminate, &mut signals.interrupt) => Drained::CutOff,
    };
    say(match drained {
        Drained::Whole => "drained: everything that had begun was finished",
        Drained::CutOff => {
            "ending although something had not finished: the crash policy of its keys decides"
        }
    });
    Ok(drained)
}

fn say(words: &str) {
    tracing::info!("{words}");
}

fn say_reloaded(reloaded: Result<Vec<&'static str>, StartError>) {
    let words = match reloaded {
        Ok(fixed) if fixed.is_empty() => {
            "the configuration was read again and holds for new requests".to_owned()
        }
        Ok(fixed) => format!(
            "the configuration was read again and holds for new requests, but for what can't change while the process runs: {}; \
             restart it for that",
            fixed.join(", ")
        ),
        Err(error) => {
            return tracing::error!("the new configuration is refused, the old one stays: {error}");
        }
    };
    say(&words);
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
