//! What is known of a write when a later step of the same call fails.

use semel_core::{Certainty, StoreError};

/// What is known when an earlier sending may have been done: that the last one was not is no comfort (P28).
pub(crate) fn after(unknown: bool, mut error: StoreError) -> StoreError {
    if unknown {
        error.certainty = Certainty::Unknown;
    }
    error
}

/// What is known where a look failed that should have said what became of a write: one that matched nothing may have
/// met what an unanswered sending of it had written (P28).
pub(crate) fn unseen(sent: bool, error: StoreError) -> StoreError {
    after(sent && error.is_transient(), error)
}

#[cfg(test)]
mod tests {
    use semel_core::StoreErrorKind;

    use super::*;

    #[test]
    fn a_look_that_failed_after_a_write_says_nothing_of_the_write() {
        let error = |kind| StoreError::new(kind, Certainty::Definite, "a test");
        let certainty = |sent, kind| unseen(sent, error(kind)).certainty;
        let away = StoreErrorKind::Unavailable;
        assert_eq!(certainty(true, away), Certainty::Unknown);
        assert_eq!(certainty(false, away), Certainty::Definite);
        assert_eq!(certainty(true, StoreErrorKind::Record), Certainty::Definite);
    }
}
