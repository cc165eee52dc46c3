//! Values that checks send: tokens, claims, answers, settlements.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::env::{Entropy as _, SystemEntropy};
use semel_core::{
    Answer, AnswerBody, Claim, ClaimTerms, CrashPolicy, Fingerprint, Identity, Key, Namespace,
    Secret, Settlement, Token,
};

/// 128 bits that no other check has.
pub(super) fn chance() -> u128 {
    SystemEntropy.next_u128()
}

/// A new token.
pub(super) fn token() -> Token {
    Token(chance())
}

/// ClaimTerms, checked.
pub(super) fn terms(
    lease: Duration,
    retention: Duration,
    crash: CrashPolicy,
    attempts: u16,
) -> anyhow::Result<ClaimTerms> {
    Ok(ClaimTerms::new(lease, retention, crash, attempts)?)
}

/// A claim of `key` in `namespace`.
pub(super) fn claim_in(
    namespace: Namespace,
    key: &str,
    terms: ClaimTerms,
) -> anyhow::Result<Claim> {
    let secret = Secret::none();
    let key = Key::parse(key)?;
    Ok(Claim {
        retry: false,
        identity: Identity::new(&secret, &namespace, &key),
        fingerprint: Fingerprint::builder(&secret).part(b"the payload").finish(),
        token: token(),
        terms,
        secret_id: secret.id(),
        namespace,
        hint: key.hint(),
    })
}

/// What another caller sends for the same request: all the same, but the token.
///
/// Half of them say that they are retries, which must not make a difference.
pub(super) fn again(claim: &Claim) -> Claim {
    let token = token();
    Claim {
        token,
        retry: token.0 & 1 == 1,
        ..claim.clone()
    }
}

/// What another caller sends with the same key and another payload.
pub(super) fn other_payload(claim: &Claim) -> Claim {
    let fingerprint = Fingerprint::builder(&Secret::none())
        .part(b"another payload")
        .finish();
    Claim {
        fingerprint,
        ..again(claim)
    }
}

/// The same request from a caller that is configured otherwise.
pub(super) fn under(claim: &Claim, terms: ClaimTerms) -> Claim {
    Claim {
        terms,
        ..again(claim)
    }
}

/// An answer with a head and this body.
pub(super) fn answer(body: &str) -> Arc<Answer> {
    let body = AnswerBody::Kept(Bytes::copy_from_slice(body.as_bytes()));
    Arc::new(Answer {
        head: Bytes::from_static(b"201 created"),
        body,
    })
}

/// Completes with an answer that has this body.
pub(super) fn complete(body: &str) -> Settlement {
    Settlement::Complete(answer(body))
}

/// Every way to settle.
pub(super) fn settlements() -> [Settlement; 4] {
    let failure = Settlement::Fail(answer("the failure"));
    [
        complete("the answer"),
        failure,
        Settlement::Release,
        Settlement::Doubt,
    ]
}
