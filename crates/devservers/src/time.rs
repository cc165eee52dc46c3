//! Real time, in one place.
//!
//! The rest of the workspace takes its time from a clock that it is handed. A tool that waits for
//! real servers and measures real builds has no such clock, so the exceptions are all here.

use std::time::{Duration, Instant};

/// A running stopwatch.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts one.
    #[must_use]
    pub fn start() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "measures real builds and real servers"
        )]
        Self(Instant::now())
    }

    /// The time since its start.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// The time since its start, in seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.elapsed().as_secs_f64()
    }
}

/// Blocks this thread. Callers poll another process.
pub fn pause(how_long: Duration) {
    #[expect(
        clippy::disallowed_methods,
        reason = "polls a process that cannot wake us"
    )]
    std::thread::sleep(how_long);
}

/// Polls `ask` until it answers, for at most `limit`.
///
/// # Errors
/// The last error when the time is over, so that the caller can say what was missing.
pub fn wait_until<T>(
    limit: Duration,
    step: Duration,
    mut ask: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let watch = Stopwatch::start();
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if watch.elapsed() >= limit => return Err(error),
            Err(_) => pause(step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_returns_the_first_answer() {
        let mut asked = 0;
        let answer = wait_until(Duration::from_secs(5), Duration::ZERO, || {
            asked += 1;
            anyhow::ensure!(asked == 3, "not yet");
            Ok(asked)
        });
        assert_eq!(answer.unwrap(), 3);
    }

    #[test]
    fn waiting_ends_with_the_last_reason() {
        let answer: anyhow::Result<()> = wait_until(Duration::ZERO, Duration::ZERO, || {
            anyhow::bail!("port closed")
        });
        assert_eq!(answer.unwrap_err().to_string(), "port closed");
    }
}
