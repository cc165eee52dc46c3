//! What an operator should know of a backend before it hurts: each finding with what to do about it.

use std::time::Duration;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, in a word or two: `eviction`, `clock`.
    pub check: &'static str,
    /// How good it is.
    pub severity: Severity,
    /// What was found.
    pub found: String,
    /// What to do, where something should be done.
    pub fix: Option<String>,
}

/// How good a finding is, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Good,
    /// A choice whose price should be known.
    Note,
    /// Will hurt some day.
    Warning,
    /// Breaks a promise now.
    Broken,
}

impl Finding {
    /// As it should be.
    #[must_use]
    pub fn good(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            severity: Severity::Good,
            found: found.into(),
            fix: None,
        }
    }

    /// Something to know or to mend.
    #[must_use]
    pub fn bad(
        check: &'static str,
        severity: Severity,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            check,
            severity,
            found: found.into(),
            fix: Some(fix.into()),
        }
    }

    /// How far this host's clock is from the store's. No promise depends on it (P23), but people compare logs and
    /// records, and a clock that is far off is wrong for everything else on the host.
    ///
    /// ```
    /// use semel_core::diagnosis::{Finding, Severity};
    /// use std::time::Duration;
    ///
    /// let near = Finding::clock(Duration::from_millis(3), Duration::from_millis(1));
    /// assert_eq!(near.severity, Severity::Good);
    /// let far = Finding::clock(Duration::from_secs(40), Duration::from_millis(1));
    /// assert_eq!(far.severity, Severity::Warning);
    /// ```
    #[must_use]
    pub fn clock(apart: Duration, round_trip: Duration) -> Self {
        /// Asking takes time, so less than this can't be told from nothing.
        const NEAR: Duration = Duration::from_secs(1);
        let found = format!(
            "this host and the store are {} apart (asking took {})",
            millis(apart),
            millis(round_trip)
        );
        if apart <= NEAR + round_trip {
            return Self::good("clock", found);
        }
        let fix = "no promise depends on it, since only the store's clock counts; but times in logs and in records \
                   won't agree: run a time service such as chrony on both";
        Self::bad("clock", Severity::Warning, found, fix)
    }
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}
