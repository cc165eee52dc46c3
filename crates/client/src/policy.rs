//! How often and how long: [`RetryPolicy`] for one call, [`RetryBudget`] for all of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How one call is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most attempts; being told to wait for a run under way doesn't count. 6.
    pub max_attempts: u32,
    /// The first pause is random between nothing and this; the bound doubles with each attempt. 0.2 s.
    pub base: Duration,
    /// The bound's bound. 10 s.
    pub cap: Duration,
    /// For one attempt, its answer's body included. Longer than a server waits for a run under way. 35 s.
    pub attempt_timeout: Duration,
    /// For all of them, pauses included. 2 minutes.
    pub total_timeout: Duration,
    /// A server that asks for a longer pause is not waited for. 1 minute.
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

/// How many retries a process may spend: a reserve, and a share of its calls.
///
/// When a server is down, every client that retries multiplies its load; the budget bounds that to a share.
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

    /// A first attempt: earns its share.
    pub fn call(&self) {
        let earn = |left: u64| Some((left + self.per_call).min(self.reserve));
        let _ = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, earn);
    }

    /// Whether one more retry may be spent.
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
