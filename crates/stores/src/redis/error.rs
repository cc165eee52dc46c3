//! What a Redis client says, as a store error: what is known, and whether to try again.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use semel_core::{Certainty, StoreError, StoreErrorKind};

/// A command that did not answer, and whether it can have reached a server.
#[derive(Debug)]
pub(super) enum Failure {
    /// There was no connection to send it on.
    NotSent(RedisError),
    /// It was sent; a server said no, or nothing.
    Sent(RedisError),
    /// It was done, and has not spread as far as it has to (see `durability`).
    Short,
}

impl Failure {
    /// What the server said, if it was the server that spoke.
    pub(super) fn server_kind(&self) -> Option<ServerErrorKind> {
        match self {
            Self::Sent(error) => match error.kind() {
                ErrorKind::Server(kind) => Some(kind),
                _ => None,
            },
            Self::NotSent(_) | Self::Short => None,
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotSent(error) => {
                let (kind, _) = classify(&error);
                Self::new(kind, Certainty::Definite, error)
            }
            Failure::Sent(error) => {
                let (kind, certainty) = classify(&error);
                Self::new(kind, certainty, error)
            }
            Failure::Short => {
                let said = "too few copies confirmed it in time";
                Self::new(StoreErrorKind::Unavailable, Certainty::Unknown, said)
            }
        }
    }
}

/// A reply from the server means that nothing was changed; silence means that nobody knows.
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

/// Another was quicker every time. Nothing was written, and the next try may do better.
pub(super) fn overtaken() -> StoreError {
    let said = "overtaken too often";
    StoreError::new(StoreErrorKind::Unavailable, Certainty::Definite, said)
}

/// A reply that no command of ours gives.
pub(super) fn unexpected(what: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Rejected, Certainty::Unknown, what)
}
