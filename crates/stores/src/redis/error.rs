//! What a Redis client says, as a store error: what is known, and whether to try again.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use semel_core::{Certainty, StoreError, StoreErrorKind};

/// A reply from the server means that nothing was changed; silence means that nobody knows.
pub(super) fn store_error(error: RedisError) -> StoreError {
    let (kind, certainty) = classify(&error);
    StoreError::new(kind, certainty, error)
}

fn classify(error: &RedisError) -> (StoreErrorKind, Certainty) {
    use ServerErrorKind as Server;
    use StoreErrorKind::{Full, Rejected, Unavailable};
    match error.kind() {
        // Passing states of the server, said before anything was done.
        ErrorKind::Server(
            Server::BusyLoading
            | Server::TryAgain
            | Server::ClusterDown
            | Server::MasterDown
            | Server::ReadOnly
            | Server::Moved
            | Server::Ask,
        ) => (Unavailable, Certainty::Definite),
        ErrorKind::Server(_) | ErrorKind::Extension => match error.code() {
            Some("OOM") => (Full, Certainty::Definite),
            // The disk can't be written to, or too few replicas are there: both may pass.
            Some("MISCONF" | "NOREPLICAS") => (Unavailable, Certainty::Definite),
            _ => (Rejected, Certainty::Definite),
        },
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => {
            (Rejected, Certainty::Definite)
        }
        ErrorKind::MasterNameNotFoundBySentinel
        | ErrorKind::NoValidReplicasFoundBySentinel
        | ErrorKind::EmptySentinelList
        | ErrorKind::ClusterConnectionNotFound => (Unavailable, Certainty::Definite),
        _ => (Unavailable, Certainty::Unknown),
    }
}

/// A reply that no command of ours gives.
pub(super) fn unexpected(what: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Rejected, Certainty::Unknown, what)
}
