//! Bounds in time: how long to wait for a store call, and how long to pause before the next.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::clock::{Clock, Sleep};
use crate::env::BoxFuture;
use crate::error::{Certainty, StoreError, StoreErrorKind};
use crate::store::StoreResult;

/// The answer of a store call, or `Unknown` if none came within `limit`.
///
/// Costs no timer where the call answers at once.
pub(crate) async fn within<T>(
    clock: &dyn Clock,
    limit: Duration,
    mut call: BoxFuture<'_, StoreResult<T>>,
) -> StoreResult<T> {
    let mut timer: Option<Sleep> = None;
    poll_fn(|cx| {
        if let Poll::Ready(answer) = call.as_mut().poll(cx) {
            return Poll::Ready(answer);
        }
        let timer = timer.get_or_insert_with(|| clock.sleep(limit));
        timer.as_mut().poll(cx).map(|()| Err(no_answer(limit)))
    })
    .await
}

fn no_answer(limit: Duration) -> StoreError {
    let said = format!("no answer within {limit:?}");
    StoreError::new(StoreErrorKind::Unavailable, Certainty::Unknown, said)
}

/// Growing pauses: 50 ms, then half as much again each time, up to 1 s.
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
}
