//! Backoff: how long to pause before the next store call.

use std::time::Duration;

/// Growing pauses: 50 ms, then 1.5 times as long each time, up to 1 s.
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) const fn new() -> Self {
        Self(Duration::from_millis(50))
    }

    pub(super) fn next_pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 3 / 2).min(Duration::from_secs(1));
        pause
    }
}

/// Limits how often a waiter reacts to wake-ups (P34).
///
/// A wake-up after which the key is still busy was spurious, and the next may follow at once: a
/// store wakes waiters of a record that it can't see running. The first spurious one costs no
/// pause, because another waiter may have been quicker. Each further one is followed by a pause.
pub(super) struct Pace {
    backoff: Backoff,
    was_woken: bool,
    has_been_spared: bool,
}

impl Pace {
    pub(super) const fn new() -> Self {
        Self {
            backoff: Backoff::new(),
            was_woken: false,
            has_been_spared: false,
        }
    }

    /// Records a wake-up.
    pub(super) const fn woken(&mut self) {
        self.was_woken = true;
    }

    /// How long to ignore wake-ups, given that the key is still busy.
    pub(super) fn pause_after_waking(&mut self) -> Option<Duration> {
        let was_woken = std::mem::take(&mut self.was_woken);
        let pauses = was_woken && std::mem::replace(&mut self.has_been_spared, true);
        pauses.then(|| self.backoff.next_pause())
    }

    /// How long to wait before the next poll if wake-ups may be missing.
    pub(super) fn pause_between_looks(&mut self) -> Duration {
        self.backoff.next_pause()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_by_half_up_to_a_second() {
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = (0..12).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(pauses[..4], [50, 75, 112, 168]);
        assert_eq!(pauses[11], 1000);
    }

    #[test]
    fn second_spurious_wake_up_is_followed_by_a_pause() {
        let mut pace = Pace::new();
        assert_eq!(pace.pause_after_waking(), None, "nobody was woken");
        pace.woken();
        assert_eq!(pace.pause_after_waking(), None, "the first is free");
        for pause in [50, 75, 112] {
            pace.woken();
            assert_eq!(
                pace.pause_after_waking().map(|pause| pause.as_millis()),
                Some(pause)
            );
            assert_eq!(pace.pause_after_waking(), None);
        }
    }
}
