//! [`Policy`]: how the requests of one operation are treated. Every field has a default that is
//! safe to keep.

use std::time::Duration;

use crate::claim::{ClaimTerms, ClaimTermsError};
use crate::record::CrashPolicy;

/// How the requests of one operation are treated.
///
/// ```
/// use semel_core::policy::{OnBusy, Policy};
/// use semel_core::CrashPolicy;
/// use std::time::Duration;
///
/// let policy = Policy::default()
///     .with_crash(CrashPolicy::Hold)
///     .with_on_busy(OnBusy::Refuse)
///     .with_retention(Duration::from_secs(7 * 24 * 60 * 60));
/// assert!(policy.terms().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// How long an owner may be silent before it counts as gone. It renews the lease at each third
    /// of it. 30 s.
    pub lease: Duration,
    /// How long a record lives after its last write. 24 h.
    pub retention: Duration,
    /// How long an answer lives, if that is shorter than the record does. Later, a caller with the
    /// same key and payload gets [`Code::AnswerExpired`](crate::Code::AnswerExpired), and no effect
    /// runs (P50). At least 10 ms. As long as the record.
    pub answer_retention: Option<Duration>,
    /// What happens to a key whose owner crashed. Takeover.
    pub crash: CrashPolicy,
    /// The most runs begun before a crashed owner leaves the key in doubt, also under takeover. 5.
    pub max_attempts: u16,
    /// What a caller does while another request with its key runs. Wait up to 30 s.
    pub on_busy: OnBusy,
    /// The most callers of this process that wait for one key. 10.
    pub max_waiters_per_key: usize,
    /// The largest answer body kept. A larger one is left out, and its replay says so. 1 MiB.
    pub max_answer_bytes: usize,
    /// What happens when the store gives no answer. Fail closed.
    pub store_down: StoreDown,
    /// Whether duplicates are blocked, only reported, or not looked for. Enforce.
    pub mode: Mode,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            retention: Duration::from_secs(24 * 60 * 60),
            answer_retention: None,
            crash: CrashPolicy::Takeover,
            max_attempts: 5,
            on_busy: OnBusy::Wait(Duration::from_secs(30)),
            max_waiters_per_key: 10,
            max_answer_bytes: 1024 * 1024,
            store_down: StoreDown::Closed,
            mode: Mode::Enforce,
        }
    }
}

impl Policy {
    /// The part of the policy that is stored with the first claim.
    ///
    /// # Errors
    /// [`ClaimTermsError`] if a value is out of bounds.
    #[inline]
    pub fn terms(&self) -> Result<ClaimTerms, ClaimTermsError> {
        let shortest = ClaimTerms::MIN_LEASE;
        if self.answer_retention.is_some_and(|kept| kept < shortest) {
            return Err(ClaimTermsError::AnswerRetention);
        }
        ClaimTerms::new(self.lease, self.retention, self.crash, self.max_attempts)
    }

    /// Sets [`lease`](Self::lease).
    #[must_use]
    pub const fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets [`retention`](Self::retention).
    #[must_use]
    pub const fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets [`answer_retention`](Self::answer_retention).
    #[must_use]
    pub const fn with_answer_retention(mut self, answer_retention: Duration) -> Self {
        self.answer_retention = Some(answer_retention);
        self
    }

    /// How long an answer lives; `None` if as long as its record.
    pub(crate) fn shorter_answer_retention(&self) -> Option<Duration> {
        self.answer_retention.filter(|kept| *kept < self.retention)
    }

    /// Sets [`crash`](Self::crash).
    #[must_use]
    pub const fn with_crash(mut self, crash: CrashPolicy) -> Self {
        self.crash = crash;
        self
    }

    /// Sets [`max_attempts`](Self::max_attempts).
    #[must_use]
    pub const fn with_max_attempts(mut self, max_attempts: u16) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// Sets [`on_busy`](Self::on_busy).
    #[must_use]
    pub const fn with_on_busy(mut self, on_busy: OnBusy) -> Self {
        self.on_busy = on_busy;
        self
    }

    /// Sets [`max_waiters_per_key`](Self::max_waiters_per_key).
    #[must_use]
    pub const fn with_max_waiters_per_key(mut self, max_waiters_per_key: usize) -> Self {
        self.max_waiters_per_key = max_waiters_per_key;
        self
    }

    /// Sets [`max_answer_bytes`](Self::max_answer_bytes).
    #[must_use]
    pub const fn with_max_answer_bytes(mut self, max_answer_bytes: usize) -> Self {
        self.max_answer_bytes = max_answer_bytes;
        self
    }

    /// Sets [`store_down`](Self::store_down).
    #[must_use]
    pub const fn with_store_down(mut self, store_down: StoreDown) -> Self {
        self.store_down = store_down;
        self
    }

    /// Sets [`mode`](Self::mode).
    #[must_use]
    pub const fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }
}

/// What a caller does while another request with its key runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnBusy {
    /// Wait for the answer of that request, for at most this long (P34).
    Wait(Duration),
    /// Get the answer "busy" at once.
    Refuse,
}

/// What happens when the store gives no answer to a claim (P35).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreDown {
    /// No effect starts.
    Closed,
    /// The effect runs unprotected; that is reported.
    Open,
}

/// Whether duplicates are blocked, only reported, or not looked for (P39).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Duplicates are blocked or replayed.
    Enforce,
    /// Every effect runs, and what enforce mode would have done is reported (shadow mode).
    Observe,
    /// Every effect runs, and the store is not called.
    Off,
}
