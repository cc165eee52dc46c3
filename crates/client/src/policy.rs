//! [`RetryPolicy`] of one call, and [`RetryBudget`] of all calls of a process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How one call is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// The most attempts. A wait for a run in progress doesn't count. 6.
    pub max_attempts: u32,
    /// The first pause is random between zero and this. The bound doubles with each attempt. 0.2 s.
    pub base: Duration,
    /// The largest bound of a pause. 10 s.
    pub cap: Duration,
    /// The timeout of one attempt, including the body of its response. Longer than a server waits
    /// for a run in progress. 35 s.
    pub attempt_timeout: Duration,
    /// The timeout of the call, including all attempts and pauses. 2 minutes.
    pub total_timeout: Duration,
    /// The longest pause that a server may ask for; the call ends if it asks for more. 1 minute.
    pub max_retry_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 6,
            base: Duration::from_millis(200),
            cap: Duration::from_secs(10),
            attempt_timeout: Duration::from_secs(35),
            total_timeout: Duration::from_secs(120),
            max_retry_after: Duration::from_secs(60),
        }
    }
}

impl RetryPolicy {
    /// Sets [`max_attempts`](Self::max_attempts).
    #[must_use]
    pub const fn with_max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// Sets [`base`](Self::base).
    #[must_use]
    pub const fn with_base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// Sets [`cap`](Self::cap).
    #[must_use]
    pub const fn with_cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// Sets [`attempt_timeout`](Self::attempt_timeout).
    #[must_use]
    pub const fn with_attempt_timeout(mut self, attempt_timeout: Duration) -> Self {
        self.attempt_timeout = attempt_timeout;
        self
    }

    /// Sets [`total_timeout`](Self::total_timeout).
    #[must_use]
    pub const fn with_total_timeout(mut self, total_timeout: Duration) -> Self {
        self.total_timeout = total_timeout;
        self
    }

    /// Sets [`max_retry_after`](Self::max_retry_after).
    #[must_use]
    pub const fn with_max_retry_after(mut self, max_retry_after: Duration) -> Self {
        self.max_retry_after = max_retry_after;
        self
    }
}

/// The retry budget of a process: a reserve, and a share of its calls.
///
/// When a server is down, retries multiply its load. The budget bounds them to a share of the
/// calls.
///
/// ```
/// let budget = semel_client::RetryBudget::new(1, 0.5);
/// assert!(budget.retry());
/// assert!(!budget.retry(), "the reserve is spent");
/// budget.call();
/// budget.call();
/// assert!(budget.retry(), "two calls earned one");
/// ```
#[derive(Debug)]
pub struct RetryBudget {
    /// In thousandths of a retry.
    left: AtomicU64,
    reserve: u64,
    per_call: u64,
}

const WHOLE: u64 = 1_000;

impl RetryBudget {
    /// At most `reserve` retries at once, and `per_call` (0 to 1) of one for each call.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 1,000"
    )]
    pub fn new(reserve: u32, per_call: f64) -> Self {
        let reserve = u64::from(reserve) * WHOLE;
        Self {
            left: AtomicU64::new(reserve),
            reserve,
            per_call: (per_call.clamp(0.0, 1.0) * WHOLE as f64) as u64,
        }
    }

    /// Records a first attempt, which earns its share of a retry.
    pub fn call(&self) {
        let earn = |left: u64| Some((left + self.per_call).min(self.reserve));
        let _ = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, earn);
    }

    /// Spends one retry. Returns whether there was one.
    #[must_use]
    pub fn retry(&self) -> bool {
        let spend = |left: u64| left.checked_sub(WHOLE);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend)
            .is_ok()
    }
}

/// 100 retries, and one more for every five calls.
impl Default for RetryBudget {
    fn default() -> Self {
        Self::new(100, 0.2)
    }
}
