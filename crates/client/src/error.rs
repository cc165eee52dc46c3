//! Why a call has no answer.

use std::time::Duration;

use http::StatusCode;

/// Why a call has no answer. Found in what `send` returns by [`Error::of`].
///
/// Shows no key and no payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key was used with another payload: a mistake of the caller's. Nothing was done for this one.
    #[error(
        "this key was used for another request before ({status}); nothing was done. Use a new key for a new request"
    )]
    Conflict {
        /// What the server answered.
        status: StatusCode,
    },
    /// Nobody knows whether an earlier attempt took effect. Asking again won't run it.
    #[error(
        "an earlier attempt may or may not have taken effect; whoever runs the service has to resolve it, asking again won't"
    )]
    InDoubt,
    /// No attempt got an answer.
    #[error("no answer after {attempts} attempts ({reason}); {}", may_be_done(*.unknown))]
    GaveUp {
        /// How many there were.
        attempts: u32,
        /// Why there is no further one.
        reason: GaveUp,
        /// Whether the operation may have been done. If not, nothing was.
        unknown: bool,
    },
    /// The request's body can be sent only once.
    #[error(
        "the request has a body that can be sent only once; give its bytes, or don't use a key"
    )]
    OneShot,
    /// The key can't be used.
    #[error("a key has 1 to 255 visible ASCII characters")]
    Key,
}

const fn may_be_done(unknown: bool) -> &'static str {
    match unknown {
        true => "it may be done. Ask again with the same key",
        false => "nothing was done. Ask again, best with the same key",
    }
}

/// Why there is no further attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GaveUp {
    /// There were as many as the policy allows.
    #[error("as many as the policy allows")]
    Attempts,
    /// The next would begin too late.
    #[error("the time is up")]
    Time,
    /// The server asks for a longer pause than the policy allows.
    #[error("the server asks to wait {} s", .0.as_secs())]
    Asked(Duration),
    /// The process has spent its retries.
    #[error("the retry budget is spent")]
    Budget,
}

impl Error {
    /// The reason why a call failed, where it is one of these.
    ///
    /// ```no_run
    /// # async fn example(client: reqwest_middleware::ClientWithMiddleware) {
    /// match client.post("http://127.0.0.1:8080/charges").send().await {
    ///     Err(error) => match semel_client::Error::of(&error) {
    ///         Some(semel_client::Error::Conflict { .. }) => { /* a bug on our side */ }
    ///         _ => { /* ask again later, with the same key */ }
    ///     },
    ///     Ok(answer) => { /* the answer, new or replayed */ }
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn of(error: &reqwest_middleware::Error) -> Option<&Self> {
        match error {
            reqwest_middleware::Error::Middleware(error) => error.downcast_ref(),
            reqwest_middleware::Error::Reqwest(_) => None,
        }
    }
}

impl From<Error> for reqwest_middleware::Error {
    fn from(error: Error) -> Self {
        Self::middleware(error)
    }
}
