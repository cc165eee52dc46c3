//! The attempts of one call: how many, how long, when the next.

use std::time::Duration;

use rand::RngExt as _;
use tokio::time::Instant;

use crate::error::{Error, GaveUp};
use crate::policy::{RetryBudget, RetryPolicy};

pub(crate) struct Course<'a> {
    policy: &'a RetryPolicy,
    budget: &'a RetryBudget,
    end: Instant,
    counted: u32,
    pub(crate) attempts: u32,
    unknown: bool,
}

impl<'a> Course<'a> {
    /// `unknown`: it may have been done before.
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

    /// Begins an attempt. → the time it may take
    pub(crate) fn begin(&mut self) -> Duration {
        self.attempts += 1;
        let left = self.end.saturating_duration_since(Instant::now());
        self.policy.attempt_timeout.min(left)
    }

    /// The pause before the next attempt.
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
        // What the server asks for is the least, and the jitter comes on top: all who were told the same come apart.
        let pause = after.unwrap_or_default() + jitter;
        let reason = if counts && self.counted >= self.policy.max_attempts {
            GaveUp::Attempts
        } else if let Some(asked) = after.filter(|after| *after > self.policy.max_retry_after) {
            GaveUp::Asked(asked)
        } else if Instant::now() + pause >= self.end {
            GaveUp::Time
        } else if counts && !self.budget.retry() {
            GaveUp::Budget
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

    fn gave_up(result: Result<Duration, Error>) -> GaveUp {
        match result {
            Err(Error::GaveUp { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_are_random_below_a_bound_that_doubles_up_to_the_cap() {
        let policy = RetryPolicy {
            max_attempts: 100,
            total_timeout: Duration::from_secs(10_000),
            ..RetryPolicy::default()
        };
        let mut most = [Duration::ZERO; 10];
        for _ in 0..300 {
            let budget = RetryBudget::default();
            let mut course = Course::new(&policy, &budget, false);
            for (n, most) in most.iter_mut().enumerate() {
                course.begin();
                let pause = course.next(None, true, false).expect("another attempt");
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
    async fn it_ends_by_attempts_by_time_by_what_is_asked_and_by_budget() {
        let policy = RetryPolicy::default();
        let budget = RetryBudget::default();
        let mut course = Course::new(&policy, &budget, false);
        for _ in 1..policy.max_attempts {
            course.begin();
            course.next(None, true, true).expect("another attempt");
        }
        course.begin();
        let last = course.next(None, true, true);
        assert!(matches!(last, Err(Error::GaveUp { unknown: false, .. })));
        assert_eq!(gave_up(last), GaveUp::Attempts);

        let mut course = Course::new(&policy, &budget, false);
        course.begin();
        let asked = Duration::from_secs(61);
        assert_eq!(
            gave_up(course.next(Some(asked), false, true)),
            GaveUp::Asked(asked)
        );

        tokio::time::advance(Duration::from_secs(100)).await;
        let asked = Duration::from_secs(25);
        assert_eq!(
            gave_up(course.next(Some(asked), false, false)),
            GaveUp::Time
        );

        let spent = RetryBudget::new(0, 0.0);
        let mut course = Course::new(&policy, &spent, false);
        course.begin();
        assert_eq!(gave_up(course.next(None, true, false)), GaveUp::Budget);
        // Patience costs no budget.
        course.next(None, false, false).expect("another attempt");
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_have_been_done_before_may_be_done_whatever_becomes_of_this() {
        let policy = RetryPolicy {
            max_attempts: 1,
            ..RetryPolicy::default()
        };
        let budget = RetryBudget::default();
        for before in [false, true] {
            let mut course = Course::new(&policy, &budget, before);
            course.begin();
            let ended = course.next(None, true, true);
            assert!(matches!(ended, Err(Error::GaveUp { unknown, .. }) if unknown == before));
        }
    }
}
