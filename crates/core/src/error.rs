//! [`StoreError`]: why a store call failed, and whether it may have changed something.

use std::fmt;
use std::sync::Arc;

use crate::code::Code;
use crate::record::RecordError;

/// What is known about the effect of a failed store call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// It changed nothing: it was rejected, or never sent.
    Definite,
    /// It may have changed something: it was sent, and no reply came.
    Unknown,
}

/// Why a store call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store can't be reached, or didn't answer in time. A retry may help.
    Unavailable,
    /// The store has no room for another record and doesn't evict live ones (P26).
    Full,
    /// The key has a record that this version of Semel can't use (P24, P25).
    Record,
    /// The key has a record, but its external body could not be loaded (P44). A retry may help; no
    /// effect may run.
    Body,
    /// The key has a record whose answer or checkpoint was erased (P49). It stays so, and no effect
    /// may run.
    Erased,
    /// The store rejected the call for a reason that only a change of configuration fixes.
    Rejected,
}

impl StoreErrorKind {
    /// The name of the kind in logs, metrics and problem documents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Full => "full",
            Self::Record => "record",
            Self::Body => "body",
            Self::Erased => "erased",
            Self::Rejected => "rejected",
        }
    }

    /// Whether a claim that failed with this kind is sent again. No effect has run yet, so the
    /// caller gets other errors at once.
    #[must_use]
    pub const fn is_retried_for_claim(self) -> bool {
        matches!(self, Self::Unavailable)
    }

    /// Whether a settlement that failed with this kind is sent again, for at most one lease. The
    /// effect has happened, and without a record it would happen again. So every failure is retried
    /// except a record that can't be read (P33), now or ever again.
    #[must_use]
    pub const fn is_retried_for_settle(self) -> bool {
        !matches!(self, Self::Record | Self::Erased)
    }
}

/// A store call that failed.
///
/// Busy, mismatch and a lost lease are answers, never errors.
#[derive(Clone, Debug, thiserror::Error)]
pub struct StoreError {
    /// The kind of failure.
    pub kind: StoreErrorKind,
    /// Whether the call may have changed something.
    pub certainty: Certainty,
    /// The error of the underlying client. Shared, because one failure may be the answer to many
    /// callers.
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

    /// The problem code for the caller.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self.kind {
            StoreErrorKind::Record => Code::RecordUnreadable,
            StoreErrorKind::Body => Code::BodyUnavailable,
            StoreErrorKind::Erased => Code::AnswerErased,
            _ => Code::StoreUnavailable,
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
            StoreErrorKind::Body => "the stored response body could not be loaded; try again later",
            StoreErrorKind::Erased => "what the record kept was erased; the key is not free",
            StoreErrorKind::Rejected => "the store rejected the call; check its configuration",
        })?;
        match self.certainty {
            Certainty::Definite => f.write_str(" (nothing was changed)"),
            Certainty::Unknown => f.write_str(" (it is not known whether anything was changed)"),
        }
    }
}

impl From<RecordError> for StoreError {
    fn from(error: RecordError) -> Self {
        let kind = match error {
            RecordError::Erased => StoreErrorKind::Erased,
            _ => StoreErrorKind::Record,
        };
        Self::new(kind, Certainty::Definite, error)
    }
}
