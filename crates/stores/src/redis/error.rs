//! What a Redis client says, as a store error: what is known, and whether to try again.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use semel_core::{Certainty, StoreError, StoreErrorKind};

use crate::ServerError;

/// What Redis and Valkey answer in place of a result, and what it means for a call of ours: the first row that covers the
/// code, or the code and the text after it, counts. A server that says no has changed nothing.
pub const ERRORS: &[ServerError] = &[
    passing("LOADING", "the server has started and reads its data"),
    passing(
        "BUSY",
        "a script, a function or a module of somebody's takes long",
    ),
    passing(
        "ERR max number of clients*",
        "no more connections are let in",
    ),
    passing(
        "TRYAGAIN",
        "a slot of the cluster is on its way to another server",
    ),
    passing(
        "CLUSTERDOWN",
        "the cluster has no majority, or nobody has the slot",
    ),
    passing("MASTERDOWN", "a replica has lost its master"),
    passing("READONLY", "the server is a replica by now"),
    passing("MOVED", "another server of the cluster has the slot"),
    passing("ASK", "another server of the cluster has the key already"),
    passing("MISCONF", "the server can't write to its disk"),
    passing(
        "NOREPLICAS",
        "fewer replicas are there than the server was told to need",
    ),
    passing(
        "NOSCRIPT",
        "the server has forgotten a script; it is sent again",
    ),
    ServerError::new(
        "OOM",
        StoreErrorKind::Full,
        Certainty::Definite,
        "the server's memory is used up; only a new key needs room",
    ),
    lasting(
        "NOAUTH",
        "the server asks for a password, and the URL has none",
    ),
    lasting("WRONGPASS", "user or password are not the server's"),
    lasting(
        "NOPERM",
        "the user may not use a command, a key or a channel",
    ),
    lasting(
        "DENIED",
        "the server is in protected mode, and lets nobody in from elsewhere",
    ),
    lasting(
        "WRONGTYPE",
        "something else than a record is kept under the key",
    ),
    lasting(
        "CROSSSLOT",
        "a command names keys of several slots; none of ours does",
    ),
    lasting("EXECABORT", "a transaction was given up; we send none"),
    lasting("UNKILLABLE", "a script can't be ended; we end none"),
    lasting("NOTBUSY", "no script is there to be ended; we end none"),
    lasting(
        "NOPROTO",
        "the server doesn't speak this version of its protocol",
    ),
    lasting(
        "ERR",
        "the server doesn't know the command or its arguments",
    ),
    lasting("*", "anything else"),
];

/// A state that ends by itself, or when somebody mends the server.
const fn passing(code: &'static str, meaning: &'static str) -> ServerError {
    ServerError::new(
        code,
        StoreErrorKind::Unavailable,
        Certainty::Definite,
        meaning,
    )
}

/// A refusal that stays until somebody changes a setting.
const fn lasting(code: &'static str, meaning: &'static str) -> ServerError {
    ServerError::new(code, StoreErrorKind::Rejected, Certainty::Definite, meaning)
}

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
pub(super) fn classify(error: &RedisError) -> (StoreErrorKind, Certainty) {
    use StoreErrorKind::{Rejected, Unavailable};
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => look_up(error),
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

/// What the table says of a server's answer.
fn look_up(error: &RedisError) -> (StoreErrorKind, Certainty) {
    let code = error.code().unwrap_or_default();
    let line = format!("{code} {}", error.detail().unwrap_or_default());
    let row = ERRORS
        .iter()
        .find(|row| row.covers(code) || row.covers(&line));
    row.map_or((StoreErrorKind::Rejected, Certainty::Definite), |row| {
        (row.kind, row.certainty)
    })
}

/// A reply that no command of ours gives.
pub(super) fn unexpected(what: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Rejected, Certainty::Unknown, what)
}
