//! Maps errors of Redis and its client to store errors: what is known, and whether to retry.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use semel_core::{Certainty, StoreError, StoreErrorKind};

use crate::ServerError;

/// The errors of Redis and Valkey, and what they mean for a store call. The first row that matches
/// the code, or the code and the text after it, counts. A command that the server rejects has
/// changed nothing.
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

/// A state that ends by itself, or when an operator fixes the server.
const fn passing(code: &'static str, meaning: &'static str) -> ServerError {
    ServerError::new(
        code,
        StoreErrorKind::Unavailable,
        Certainty::Definite,
        meaning,
    )
}

/// A rejection that lasts until an operator changes a setting.
const fn lasting(code: &'static str, meaning: &'static str) -> ServerError {
    ServerError::new(code, StoreErrorKind::Rejected, Certainty::Definite, meaning)
}

/// Why a command got no answer, and whether it can have reached a server.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was not sent, because there was no connection.
    NotSent(RedisError),
    /// It was sent, and the server rejected it or gave no reply.
    Sent(RedisError),
    /// It was executed, but has not reached its durability level (see `durability`).
    Short,
}

impl Failure {
    /// The server's error, if the error came from the server.
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

/// An error reply means that nothing was changed. Without a reply, the outcome is unknown.
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

/// Looks up a server's error in the table.
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

/// The error for a reply that the command should never give.
pub(super) fn unexpected(what: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Rejected, Certainty::Unknown, what)
}
