//! [`Request`]: what a door hands to the engine after it has read key and fingerprint.

use std::sync::Arc;

use bytes::Bytes;

use super::Engine;
use super::response::Problem;
use crate::claim::{Claim, ClaimTermsError, InDoubt, Mismatch, Resolution};
use crate::data_subject::DataSubject;
use crate::env::BoxFuture;
use crate::event::Step;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::key::{Key, KeyHint};
use crate::namespace::Namespace;
use crate::policy::Policy;
use crate::record::{Record, Token};
use crate::secret::Secret;

/// One request: its key, the fingerprint of its payload, and its policy.
#[derive(Clone)]
pub struct Request {
    pub(super) subject: Subject,
    pub(super) fingerprint: Fingerprint,
    pub(super) policy: Arc<Policy>,
    pub(super) recover: Option<Recover>,
    pub(super) retry: bool,
    pub(super) keeps_failures: bool,
    pub(super) holds_variants: bool,
    /// Boxed, because few requests bring one and every request is moved several times.
    pub(super) token: Option<Box<Token>>,
    /// Boxed for the same reason.
    pub(super) data_subject: Option<Box<DataSubject>>,
}

/// The key that events and records are about.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) namespace: Namespace,
    pub(super) hint: KeyHint,
    pub(super) identity: Identity,
    /// One pointer, because every request is moved several times.
    pub(super) context: Option<Arc<EventContext>>,
}

/// What a door knows of a request beyond its key, for events.
#[derive(Clone, Debug, Default)]
pub(super) struct EventContext {
    pub(super) actor: Option<Arc<str>>,
    pub(super) operation: Option<Arc<str>>,
}

impl Subject {
    /// The key of a record that was read.
    pub(super) fn from_record(record: &Record, identity: Identity) -> Self {
        Self {
            namespace: record.namespace.clone(),
            hint: record.hint,
            identity,
            context: None,
        }
    }

    fn context_mut(&mut self) -> &mut EventContext {
        Arc::make_mut(self.context.get_or_insert_default())
    }

    /// A key of which only the identity is known.
    pub(super) fn unknown(identity: Identity) -> Self {
        Self {
            namespace: Namespace::unknown(),
            hint: KeyHint::default(),
            identity,
            context: None,
        }
    }
}

impl Request {
    /// A request for `key` in `namespace`, with the payload's `fingerprint`.
    ///
    /// `engine` provides the secret for the identity.
    #[must_use]
    pub fn new(
        engine: &Engine,
        namespace: Namespace,
        key: &Key,
        fingerprint: Fingerprint,
        policy: Arc<Policy>,
    ) -> Self {
        let identity = Identity::new(engine.secret(), &namespace, key);
        let subject = Subject {
            namespace,
            hint: key.hint(),
            identity,
            context: None,
        };
        Self {
            subject,
            fingerprint,
            policy,
            recover: None,
            retry: false,
            keeps_failures: true,
            holds_variants: false,
            token: None,
            data_subject: None,
        }
    }

    /// Names the caller for the audit trail. It isn't part of the identity, and never kept in a
    /// record.
    #[must_use]
    pub fn with_actor(mut self, actor: impl Into<Arc<str>>) -> Self {
        self.subject.context_mut().actor = Some(actor.into());
        self
    }

    /// Names the operation within the scope, for events and metrics: the name of a route or a tool,
    /// never a value that callers choose. It isn't part of the identity.
    #[must_use]
    pub fn with_operation(mut self, operation: impl Into<Arc<str>>) -> Self {
        self.subject.context_mut().operation = Some(operation.into());
        self
    }

    /// Claims under a token of the caller's. After a lost reply, the caller may send the same claim
    /// again and gets the same lease (P6). The token must be random, and used for one claim only.
    #[must_use]
    pub fn with_token(mut self, token: Token) -> Self {
        self.token = Some(Box::new(token));
        self
    }

    /// Says whose data the run leaves: with data keys per subject, its answer and checkpoints can
    /// be erased alone (P48). It isn't part of the identity, and a replay needs none.
    #[must_use]
    pub fn with_data_subject(mut self, subject: DataSubject) -> Self {
        self.data_subject = Some(Box::new(subject));
        self
    }

    /// Marks the request as a retry, which saves the store a write that would lose.
    #[must_use]
    pub const fn with_retry(mut self, is_retry: bool) -> Self {
        self.retry = is_retry;
        self
    }

    /// Excludes failures of this key from the local cache (P38), because they may be taken back: a
    /// dead letter may be retried, for example. The store is then asked every time.
    #[must_use]
    pub const fn failures_may_change(mut self) -> Self {
        self.keeps_failures = false;
        self
    }

    /// Says that the key was derived from a part of the payload. Another payload under the key is a
    /// variant of the first one, perhaps the same request in other words, so it is
    /// [held](crate::Code::Held) and not called a conflict. Nothing runs in either case (P7).
    #[must_use]
    pub const fn hold_variants(mut self) -> Self {
        self.holds_variants = true;
        self
    }

    /// Asks `recover` what happened if the key is in doubt (P40).
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

    /// What another payload under the key means: the event, and the problem for the caller (P7).
    pub(super) const fn refuse_other_payload(&self, original: Mismatch) -> (Step, Problem) {
        let asked = self.fingerprint;
        match self.holds_variants {
            true => (Step::Held { asked, original }, Problem::Held),
            false => (Step::Mismatched { asked, original }, Problem::Mismatch),
        }
    }

    #[inline]
    pub(super) fn claim(&self, secret: &Secret, token: Token) -> Result<Claim, ClaimTermsError> {
        let terms = self.policy.terms()?;
        Ok(Claim {
            identity: self.subject.identity,
            fingerprint: self.fingerprint,
            token,
            terms: match &self.data_subject {
                Some(subject) => terms.with_data_subject(**subject),
                None => terms,
            },
            secret_id: secret.id(),
            namespace: self.subject.namespace.clone(),
            hint: self.subject.hint,
            retry: self.retry,
        })
    }
}

/// A recover hook: finds out what happened to a run in doubt, for example by asking the payment
/// provider.
pub type Recover = Arc<dyn Fn(Doubt) -> BoxFuture<'static, Option<Resolution>> + Send + Sync>;

/// A run in doubt, as a recover hook sees it. The hook answers with what happened, or `None` if it
/// can't tell.
#[derive(Clone, Debug)]
pub struct Doubt {
    pub(super) identity: Identity,
    pub(super) secret: Secret,
    pub(super) doubt: InDoubt,
}

impl Doubt {
    /// The same key that [`super::Lease::derive_key`] gave the run, to look up in the downstream
    /// system.
    #[must_use]
    pub fn derive_key(&self, step: &str) -> String {
        self.identity.derive_key(&self.secret, step)
    }

    /// How many runs of the key have begun.
    #[must_use]
    pub const fn attempt(&self) -> u16 {
        self.doubt.attempt
    }

    /// The checkpoint that the last owner kept, if any.
    #[must_use]
    pub fn last_checkpoint(&self) -> Option<&Bytes> {
        (!self.doubt.checkpoint.is_empty()).then_some(&self.doubt.checkpoint)
    }
}
