//! [`RetryState`]: the attempts of one call, with backoff, jitter, deadline and retry budget.

use std::time::Duration;

use rand::RngExt as _;
use tokio::time::Instant;

use crate::error::{Error, GiveUpReason};
use crate::policy::{RetryBudget, RetryPolicy};

/// The state of one call's retries.
pub(crate) struct RetryState<'a> {
    policy: &'a RetryPolicy,
    budget: &'a RetryBudget,
    end: Instant,
    counted: u32,
    pub(crate) attempts: u32,
    unknown: bool,
}

impl<'a> RetryState<'a> {
    /// Begins a call. `unknown` is whether an earlier process may have sent it.
    pub(crate) fn new(policy: &'a RetryPolicy, budget: &'a RetryBudget, unknown: bool) -> Self {
        budget.call();
        Self {
            policy,
            budget,
            end: Instant::now() + policy.total_timeout,
            counted: 0,
            attempts: 0,
            unknown,
        }
    }

    /// Begins an attempt, and returns its time limit.
    pub(crate) fn begin(&mut self) -> Duration {
        self.attempts += 1;
        let left = self.end.saturating_duration_since(Instant::now());
        self.policy.attempt_timeout.min(left)
    }

    /// Ends an attempt, and returns the pause before the next one, or why there is none.
    pub(crate) fn next(
        &mut self,
        after: Option<Duration>,
        counts: bool,
        nothing_done: bool,
    ) -> Result<Duration, Error> {
        self.unknown |= !nothing_done;
        self.counted += u32::from(counts);
        let bound = self
            .policy
            .base
            .saturating_mul(1 << (self.attempts - 1).min(20));
        let jitter = bound.min(self.policy.cap).mul_f64(rand::rng().random());
        // The jitter is added to the server's `Retry-After`, so that clients that got the same
        // value spread out.
        let pause = after.unwrap_or_default() + jitter;
        let reason = if counts && self.counted >= self.policy.max_attempts {
            GiveUpReason::Attempts
        } else if let Some(asked) = after.filter(|after| *after > self.policy.max_retry_after) {
            GiveUpReason::RetryAfter(asked)
        } else if Instant::now() + pause >= self.end {
            GiveUpReason::Time
        } else if counts && !self.budget.retry() {
            GiveUpReason::Budget
        } else {
            return Ok(pause);
        };
        Err(Error::GaveUp {
            attempts: self.attempts,
            reason,
            unknown: self.unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gave_up(result: Result<Duration, Error>) -> GiveUpReason {
        match result {
            Err(Error::GaveUp { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_have_full_jitter_below_a_doubling_bound() {
        let policy = RetryPolicy {
            max_attempts: 100,
            total_timeout: Duration::from_secs(10_000),
            ..RetryPolicy::default()
        };
        let mut most = [Duration::ZERO; 10];
        for _ in 0..300 {
            let budget = RetryBudget::default();
            let mut retries = RetryState::new(&policy, &budget, false);
            for (n, most) in most.iter_mut().enumerate() {
                retries.begin();
                let pause = retries.next(None, true, false).expect("another attempt");
                let bound = policy.cap.min(policy.base * (1 << n));
                assert!(pause <= bound, "{n}: {pause:?}");
                *most = pause.max(*most);
            }
        }
        // Full jitter: they come near their bounds.
        for (n, most) in most.into_iter().enumerate() {
            let bound = policy.cap.min(policy.base * (1 << n));
            assert!(most > bound.mul_f64(0.9), "{n}: {most:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn retries_end_by_attempts_time_retry_after_or_budget() {
        let policy = RetryPolicy::default();
        let budget = RetryBudget::default();
        let mut retries = RetryState::new(&policy, &budget, false);
        for _ in 1..policy.max_attempts {
            retries.begin();
            retries.next(None, true, true).expect("another attempt");
        }
        retries.begin();
        let last = retries.next(None, true, true);
        assert!(matches!(last, Err(Error::GaveUp { unknown: false, .. })));
        assert_eq!(gave_up(last), GiveUpReason::Attempts);

        let mut retries = RetryState::new(&policy, &budget, false);
        retries.begin();
        let asked = Duration::from_secs(61);
        assert_eq!(
            gave_up(retries.next(Some(asked), false, true)),
            GiveUpReason::RetryAfter(asked)
        );

        tokio::time::advance(Duration::from_secs(100)).await;
        let asked = Duration::from_secs(25);
        assert_eq!(
            gave_up(retries.next(Some(asked), false, false)),
            GiveUpReason::Time
        );

        let spent = RetryBudget::new(0, 0.0);
        let mut retries = RetryState::new(&policy, &spent, false);
        retries.begin();
        assert_eq!(
            gave_up(retries.next(None, true, false)),
            GiveUpReason::Budget
        );
        // Waiting for a run in progress costs no budget.
        retries.next(None, false, false).expect("another attempt");
    }

    #[tokio::test(start_paused = true)]
    async fn prior_attempt_keeps_outcome_unknown() {
        let policy = RetryPolicy {
            max_attempts: 1,
            ..RetryPolicy::default()
        };
        let budget = RetryBudget::default();
        for before in [false, true] {
            let mut retries = RetryState::new(&policy, &budget, before);
            retries.begin();
            let ended = retries.next(None, true, true);
            assert!(matches!(ended, Err(Error::GaveUp { unknown, .. }) if unknown == before));
        }
    }
}
