//! The table of a server's errors, one for each store: what each code means for a call.
//!
//! The store looks up errors in it. `docs/stores/errors.md` is generated from it, and a test
//! injects every row into a run and expects that an effect that ran is settled in the end.

use semel_core::{Certainty, StoreErrorKind};

/// One error of a server, and what it means for a store call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerError {
    /// The code as the server writes it: `BUSY`, `57P01`, `1213`. With `*` at its end it stands for
    /// a prefix.
    pub code: &'static str,
    /// When a server gives this error.
    pub meaning: &'static str,
    /// The kind of the error, which decides whether the call is retried.
    pub kind: StoreErrorKind,
    /// Whether the call may have changed something.
    pub certainty: Certainty,
}

impl ServerError {
    /// One row.
    #[must_use]
    pub const fn new(
        code: &'static str,
        kind: StoreErrorKind,
        certainty: Certainty,
        meaning: &'static str,
    ) -> Self {
        Self {
            code,
            meaning,
            kind,
            certainty,
        }
    }

    /// Whether the row is about `code`.
    #[must_use]
    pub fn covers(&self, code: &str) -> bool {
        match self.code.strip_suffix('*') {
            Some(beginning) => code.starts_with(beginning),
            None => self.code == code,
        }
    }

    /// The first row of `table` about `code`.
    #[must_use]
    pub fn find<'a>(table: &'a [Self], code: &str) -> Option<&'a Self> {
        table.iter().find(|row| row.covers(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_matching_row_counts() {
        use Certainty::{Definite, Unknown};
        use StoreErrorKind::{Full, Unavailable};
        let table = [
            ServerError::new("53100", Full, Definite, "disk full"),
            ServerError::new("53*", Unavailable, Definite, "out of resources"),
            ServerError::new("08*", Unavailable, Unknown, "connection"),
        ];
        let kind = |code| ServerError::find(&table, code).map(|row| row.kind);
        assert_eq!(kind("53100"), Some(Full));
        assert_eq!(kind("53300"), Some(Unavailable));
        assert_eq!(kind("42P01"), None);
    }
}
