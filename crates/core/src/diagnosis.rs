//! Findings of a backend's health check, each with what to do about it.

use std::time::Duration;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The name of the check, in a word or two: `eviction`, `clock`.
    pub check: &'static str,
    /// How serious it is.
    pub severity: Severity,
    /// What was found.
    pub found: String,
    /// What to do about it, if anything.
    pub fix: Option<String>,
}

/// How serious a finding is, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Good,
    /// A choice with a cost that the operator should know.
    Note,
    /// Will cause trouble later.
    Warning,
    /// Breaks a guarantee now.
    Broken,
}

impl Finding {
    /// A check that passed.
    #[must_use]
    pub fn good(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            severity: Severity::Good,
            found: found.into(),
            fix: None,
        }
    }

    /// Something that the operator should know or fix.
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

    /// The clock skew between this host and the store. No guarantee depends on it (P23), but people
    /// compare logs and records, and a wrong clock harms other software on the host.
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
        /// The round trip takes time, so a smaller difference can't be measured.
        const NEAR: Duration = Duration::from_secs(1);
        let found = format!(
            "this host and the store are {} apart (asking took {})",
            millis(apart),
            millis(round_trip)
        );
        if apart <= NEAR + round_trip {
            return Self::good("clock", found);
        }
        let fix = "no guarantee depends on it, because only the store's clock counts; but times in logs and records \
                   won't agree: run a time service such as chrony on both hosts";
        Self::bad("clock", Severity::Warning, found, fix)
    }
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}
