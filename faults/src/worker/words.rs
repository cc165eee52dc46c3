//! Translates the results of calls into the vocabulary of a history.

use std::sync::Arc;

use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::engine::Problem;
use semel::core::{Answer, Identity, Key, Namespace, Secret};
use semel::{Error, Resolution};
use semel_testkit::history::answer_mark;
use semel_testkit::history::callers::CallerOutcome;

use super::ENVIRONMENT;

/// The scope of all keys.
pub(super) const SCOPE: &str = "charge";

pub(super) fn outcome(error: &Error) -> CallerOutcome {
    match error {
        Error::Problem(Problem::Mismatch) => CallerOutcome::Mismatch,
        Error::Problem(Problem::InDoubt(_)) | Error::InDoubt(_) => CallerOutcome::InDoubt,
        Error::Problem(Problem::Busy { .. }) => CallerOutcome::Busy,
        Error::Problem(Problem::Unavailable { .. } | Problem::Late) => CallerOutcome::NotStarted,
        _ => CallerOutcome::AskAgain,
    }
}

pub(super) fn mark(value: &impl serde::Serialize) -> u64 {
    answer_mark(&stored(value))
}

pub(crate) fn stored(value: &impl serde::Serialize) -> Answer {
    Answer::from_body(serde_json::to_vec(value).expect("plain text"))
}

pub(super) fn identity_of(key: &str) -> Identity {
    let namespace = Namespace::new(ENVIRONMENT, "", SCOPE).expect("plain text");
    let key = Key::parse(key).expect("plain text");
    Identity::new(&Secret::none(), &namespace, &key)
}

/// How somebody who looked into a doubt ends it.
pub(super) fn resolution(rng: &mut StdRng, answer: Answer) -> Resolution {
    let answer = Arc::new(answer);
    match rng.random_range(0..3) {
        0 => Resolution::Complete(answer),
        1 => Resolution::Fail(answer),
        _ => Resolution::Release,
    }
}
