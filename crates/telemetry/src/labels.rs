//! Labels of values in events, for the audit trail and the log.

use semel_core::{Certainty, Fingerprint};

/// The first four bytes of the digest of a payload: enough to tell two payloads apart, too few to
/// guess one.
pub(crate) fn hash_prefix(fingerprint: &Fingerprint) -> String {
    semel_core::hex::hex(&fingerprint.as_bytes()[1..5])
}

/// Whether a store call without an answer may have changed something.
pub(crate) const fn changed(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Definite => "no",
        Certainty::Unknown => "unknown",
    }
}
