//! [`Request`]: what a door hands the engine, once it has read key and fingerprint.

use std::sync::Arc;

use bytes::Bytes;

use super::Engine;
use crate::claim::{Claim, InDoubt, Resolution, TermsError};
use crate::env::BoxFuture;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::key::{Key, KeyHint};
use crate::namespace::Namespace;
use crate::policy::Policy;
use crate::record::Token;
use crate::secret::Secret;

/// One request: whose key, which payload, treated how.
#[derive(Clone)]
pub struct Request {
    pub(super) subject: Subject,
    pub(super) fingerprint: Fingerprint,
    pub(super) policy: Arc<Policy>,
    pub(super) recover: Option<Recover>,
    pub(super) retry: bool,
    pub(super) keeps_failures: bool,
    // Boxed: few requests bring one, and every request is moved about.
    pub(super) token: Option<Box<Token>>,
}

/// Which key, for events and records.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) namespace: Namespace,
    pub(super) hint: KeyHint,
    pub(super) identity: Identity,
    pub(super) actor: Option<Arc<str>>,
}

impl Request {
    /// A request for `key` in `namespace`, with the payload's `fingerprint`.
    ///
    /// `engine` gives the secret that the identity is made with.
    #[must_use]
    pub fn new(
        engine: &Engine,
        namespace: Namespace,
        key: &Key,
        fingerprint: Fingerprint,
        policy: Arc<Policy>,
    ) -> Self {
        let identity = Identity::of(engine.secret(), &namespace, key);
        let subject = Subject {
            namespace,
            hint: key.hint(),
            identity,
            actor: None,
        };
        Self {
            subject,
            fingerprint,
            policy,
            recover: None,
            retry: false,
            keeps_failures: true,
            token: None,
        }
    }

    /// Who asks, for the audit trail alone: no part of the identity, and never kept in a record.
    #[must_use]
    pub fn asked_by(mut self, actor: impl Into<Arc<str>>) -> Self {
        self.subject.actor = Some(actor.into());
        self
    }

    /// Claims under a token of the caller's, so that the caller may send the same claim again after a lost
    /// reply and gets the same lease (P6). It must be random, and used for one claim only.
    #[must_use]
    pub fn with_token(mut self, token: Token) -> Self {
        self.token = Some(Box::new(token));
        self
    }

    /// Says that the caller has asked before, which spares the store a write that would lose.
    #[must_use]
    pub const fn asked_before(mut self, asked: bool) -> Self {
        self.retry = asked;
        self
    }

    /// Says that a failure of this key may be taken back, as a dead letter's may that gets another chance. The store is then
    /// asked every time: a local copy (P38) would tell of a failure that is none any more.
    #[must_use]
    pub const fn failures_may_change(mut self) -> Self {
        self.keeps_failures = false;
        self
    }

    /// Asks `recover` what happened when the key turns out to be in doubt (P40).
    #[must_use]
    pub fn recover_with(mut self, recover: Recover) -> Self {
        self.recover = Some(recover);
        self
    }

    /// The key's hash.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.subject.identity
    }

    pub(super) fn claim(&self, secret: &Secret, token: Token) -> Result<Claim, TermsError> {
        Ok(Claim {
            identity: self.subject.identity,
            fingerprint: self.fingerprint,
            token,
            terms: self.policy.terms()?,
            secret_id: secret.id(),
            namespace: self.subject.namespace.clone(),
            hint: self.subject.hint,
            retry: self.retry,
        })
    }
}

/// Finds out what became of a run in doubt, for example by asking the payment provider.
pub type Recover = Arc<dyn Fn(Doubt) -> BoxFuture<'static, Option<Resolution>> + Send + Sync>;

/// A run in doubt, as a recover hook sees it. The hook answers with what happened, or `None` where it
/// can't tell.
#[derive(Clone, Debug)]
pub struct Doubt {
    pub(super) identity: Identity,
    pub(super) secret: Secret,
    pub(super) doubt: InDoubt,
}

impl Doubt {
    /// The same key that [`super::Lease::derive_key`] gave the run: what to look for down the road.
    #[must_use]
    pub fn derive_key(&self, step: &str) -> String {
        self.identity.derive_key(&self.secret, step)
    }

    /// Runs begun.
    #[must_use]
    pub const fn attempt(&self) -> u16 {
        self.doubt.attempt
    }

    /// What the last owner kept, if anything.
    #[must_use]
    pub fn last_checkpoint(&self) -> Option<&Bytes> {
        (!self.doubt.checkpoint.is_empty()).then_some(&self.doubt.checkpoint)
    }
}
