//! [`StoreError`]: a store call that did not answer, and what is known about it.

use std::fmt;
use std::sync::Arc;

use crate::record::RecordError;

/// What is known about a store call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// It changed nothing: it was refused, or never sent.
    Definite,
    /// It may or may not have changed something: sent, and the reply never came.
    Unknown,
}

/// Why a store call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store can't be reached, or didn't answer in time. Try again later.
    Unavailable,
    /// The store has no room for another record and won't forget a live one (P26).
    Full,
    /// The record is there, and this version of Semel can't use it (P24, P25).
    Record,
    /// The record is there, and its body, which is kept elsewhere, doesn't come (P44). Try again later; nothing may run.
    Body,
    /// The store refused for a reason that only a change of configuration mends.
    Rejected,
}

impl StoreErrorKind {
    /// The word for it in logs, metrics and problem documents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Full => "full",
            Self::Record => "record",
            Self::Body => "body",
            Self::Rejected => "rejected",
        }
    }

    /// Whether a claim that failed so is sent again. Nothing has happened yet, so the caller is told soon.
    #[must_use]
    pub const fn is_retried_for_claim(self) -> bool {
        matches!(self, Self::Unavailable)
    }

    /// Whether a settlement that failed so is sent again, for as long as one lease. The effect has happened, and without a
    /// record it would happen again, so every failure may pass but a record that can't be read (P33).
    #[must_use]
    pub const fn is_retried_for_settle(self) -> bool {
        !matches!(self, Self::Record)
    }
}

/// A store call that did not answer.
///
/// Losing (busy, mismatch, a lost lease) is an answer, never one of these.
#[derive(Clone, Debug, thiserror::Error)]
pub struct StoreError {
    /// Why.
    pub kind: StoreErrorKind,
    /// Whether it may have changed something.
    pub certainty: Certainty,
    /// What the underlying client said. Shared: one failure may be told to many.
    #[source]
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    /// An error whose cause is `source`.
    pub fn new(
        kind: StoreErrorKind,
        certainty: Certainty,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            kind,
            certainty,
            source: Some(Arc::from(source.into())),
        }
    }

    /// The store is full; nothing was written.
    #[must_use]
    pub fn full() -> Self {
        Self {
            kind: StoreErrorKind::Full,
            certainty: Certainty::Definite,
            source: None,
        }
    }

    /// The word that a caller is told, in problem documents.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self.kind {
            StoreErrorKind::Record => "idempotency_record_unreadable",
            StoreErrorKind::Body => "idempotency_body_unavailable",
            _ => "idempotency_store_unavailable",
        }
    }

    /// Whether sending the same call again may help.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        self.kind.is_retried_for_claim()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unavailable => "the store can't be reached; try again later",
            StoreErrorKind::Full => {
                "the store is full of live records; raise its capacity or shorten the retention"
            }
            StoreErrorKind::Record => "the stored record can't be used; the key is not free",
            StoreErrorKind::Body => {
                "the record is there, and the body of its answer doesn't come; try again later"
            }
            StoreErrorKind::Rejected => "the store refused the call; check its configuration",
        })?;
        match self.certainty {
            Certainty::Definite => f.write_str(" (nothing was changed)"),
            Certainty::Unknown => f.write_str(" (whether anything was changed is not known)"),
        }
    }
}

impl From<RecordError> for StoreError {
    fn from(error: RecordError) -> Self {
        Self::new(StoreErrorKind::Record, Certainty::Definite, error)
    }
}
