//! [`Error`]: why a call has no answer, and whether it may have been done.

use std::time::Duration;

use http::StatusCode;

/// Why a call has no answer. Found in what `send` returns by [`Error::find_in`].
///
/// Shows no key and no payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key was used with another payload, which is a mistake of the caller. Nothing was done
    /// for this request.
    #[error(
        "this key was used for another request before ({status}); nothing was done. Use a new key for a new request"
    )]
    Conflict {
        /// The status of the response.
        status: StatusCode,
    },
    /// It is unknown whether an earlier attempt took effect. A retry won't run it.
    #[error(
        "an earlier attempt may or may not have taken effect; an operator of the service has to resolve it, a retry won't"
    )]
    InDoubt,
    /// No attempt got an answer.
    #[error("no answer after {attempts} attempts ({reason}); {}", may_be_done(*.unknown))]
    GaveUp {
        /// The number of attempts.
        attempts: u32,
        /// Why there is no further attempt.
        reason: GiveUpReason,
        /// Whether the operation may have been done. If false, nothing was done.
        unknown: bool,
    },
    /// The request's body can be sent only once.
    #[error(
        "the request has a streaming body, which can be sent only once; give its bytes, or don't use a key"
    )]
    OneShot,
    /// The key can't be used.
    #[error("a key has 1 to 255 visible ASCII characters")]
    Key,
}

const fn may_be_done(unknown: bool) -> &'static str {
    match unknown {
        true => "it may be done. Retry with the same key",
        false => "nothing was done. Retry, preferably with the same key",
    }
}

/// Why there is no further attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GiveUpReason {
    /// The policy allows no more attempts.
    #[error("the policy allows no more")]
    Attempts,
    /// The next attempt would begin after the total timeout.
    #[error("the time is up")]
    Time,
    /// The server asks for a longer pause than the policy allows.
    #[error("the server asks to wait {} s", .0.as_secs())]
    RetryAfter(Duration),
    /// The process has spent its retry budget.
    #[error("the retry budget is spent")]
    Budget,
}

impl Error {
    /// Finds this error in what `send` returned, if the call failed for one of these reasons.
    ///
    /// ```no_run
    /// # async fn example(client: reqwest_middleware::ClientWithMiddleware) {
    /// match client.post("http://127.0.0.1:8080/charges").send().await {
    ///     Err(error) => match semel_client::Error::find_in(&error) {
    ///         Some(semel_client::Error::Conflict { .. }) => { /* a bug on our side */ }
    ///         _ => { /* retry later, with the same key */ }
    ///     },
    ///     Ok(answer) => { /* the answer, new or replayed */ }
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn find_in(error: &reqwest_middleware::Error) -> Option<&Self> {
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
