//! [`Policy`]: how one operation is to be treated. Every field has a default that is safe to keep.

use std::time::Duration;

use crate::claim::{Terms, TermsError};
use crate::record::CrashPolicy;

/// How one operation is to be treated.
///
/// ```
/// use semel_core::policy::{OnBusy, Policy};
/// use semel_core::CrashPolicy;
/// use std::time::Duration;
///
/// let policy = Policy {
///     crash: CrashPolicy::Hold,
///     on_busy: OnBusy::Refuse,
///     retention: Duration::from_secs(7 * 24 * 60 * 60),
///     ..Policy::default()
/// };
/// assert!(policy.terms().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long an owner may be silent before it counts as gone; renewed at every third. 30 s.
    pub lease: Duration,
    /// How long a record lives after it was last written. 24 h.
    pub retention: Duration,
    /// What becomes of a key whose owner vanished. Takeover.
    pub crash: CrashPolicy,
    /// The most runs begun before a vanished owner means "in doubt", also under takeover. 5.
    pub max_attempts: u16,
    /// What a caller does while another runs the same key. Wait up to 30 s.
    pub on_busy: OnBusy,
    /// The most callers of this process that wait for one key. 10.
    pub max_waiters_per_key: usize,
    /// The largest answer body kept; a larger one is left out, and its replay says so. 1 MiB.
    pub max_answer_bytes: usize,
    /// Whether to run unprotected when the store gives no answer. No: fail closed.
    pub store_down: StoreDown,
    /// Whether the answer decides anything. Enforce.
    pub mode: Mode,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            retention: Duration::from_secs(24 * 60 * 60),
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
    /// [`TermsError`] where a span is out of bounds.
    pub fn terms(&self) -> Result<Terms, TermsError> {
        Terms::new(self.lease, self.retention, self.crash, self.max_attempts)
    }
}

/// What a caller does while another runs the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBusy {
    /// Wait for its answer, at most so long (P34).
    Wait(Duration),
    /// Be told at once.
    Refuse,
}

/// What happens when the store gives no answer to a claim (P35).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreDown {
    /// No effect starts.
    Closed,
    /// The effect runs unprotected; that is reported.
    Open,
}

/// Whether the answer to a claim decides anything (P39).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Yes.
    Enforce,
    /// No: every effect runs, and what enforcing would have done is reported.
    Observe,
    /// No store is asked.
    Off,
}
