//! Labels of values in events, for metrics, log, traces and the audit trail.

use semel_core::event::Ending;
use semel_core::{Certainty, Fingerprint};

/// The label of scopes and outcomes that have none of their own.
pub const OTHER: &str = "other";

/// The first four bytes of the digest of a payload: enough to tell two payloads apart, too few to
/// guess one.
#[must_use]
pub fn hash_prefix(fingerprint: &Fingerprint) -> String {
    semel_core::hex::hex(&fingerprint.as_bytes()[1..5])
}

/// Whether a store call without an answer may have changed something.
#[must_use]
pub const fn changed(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Definite => "no",
        Certainty::Unknown => "unknown",
    }
}

/// The label of a request's outcome.
#[must_use]
pub fn outcome(how: Ending) -> &'static str {
    match how {
        Ending::Ran { .. } => "ran",
        Ending::HandedOut => "handed_out",
        Ending::Replayed { .. } => "replayed",
        Ending::Unprotected => "unprotected",
        Ending::Problem(code) => {
            let word = code.as_str();
            word.strip_prefix("idempotency_").unwrap_or(word)
        }
        _ => OTHER,
    }
}
