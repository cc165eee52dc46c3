//! Answers that live shorter than their records (P50).
//!
//! Such an answer lies in a record of its own, in the scope [`ANSWER_SCOPE`], with the shorter
//! retention; the key's record has a mark in its place. Every store removes that record as it
//! removes any expired one, and the mark stays: no effect runs again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Shared;
use super::request::{Request, Subject};
use super::store_call::decrypted;
use crate::claim::{Claim, ClaimTerms, Claimed, Settled, Settlement};
use crate::data_subject::DataSubject;
use crate::error::{Certainty, StoreError, StoreErrorKind};
use crate::event::StoreCall;
use crate::fingerprint::Fingerprint;
use crate::hex::hex;
use crate::identity::Identity;
use crate::key::Key;
use crate::namespace::Namespace;
use crate::policy::Policy;
use crate::record::{Answer, AnswerBody, CrashPolicy, Fence, Record, Token};
use crate::secret::Secret;
use crate::store::StoreResult;

/// The scope of the records that keep answers apart.
pub const ANSWER_SCOPE: &str = "semel.answers";

/// The first bytes of the head that stands in place of an answer. No UTF-8 text begins so.
const MARK: [u8; 8] = *b"\xf5apart\x00\x01";

/// The lease of the record of an answer, while it is written.
const LEASE: Duration = Duration::from_secs(10);

/// How long the answer of a run lives, where that is shorter than its record does.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerLife {
    keep_for: Duration,
    data_subject: Option<DataSubject>,
}

impl AnswerLife {
    /// `None` if the answer lives as long as the record.
    pub(super) fn from_policy(policy: &Policy) -> Option<Self> {
        let keep_for = policy.shorter_answer_retention()?;
        let data_subject = None;
        Some(Self {
            keep_for,
            data_subject,
        })
    }

    pub(super) fn from_request(request: &Request) -> Option<Self> {
        let data_subject = request.data_subject.as_deref().copied();
        let life = Self::from_policy(&request.policy)?;
        Some(Self {
            data_subject,
            ..life
        })
    }

    /// Writes the answer of `settlement` to a record of its own. Returns the settlement with a mark
    /// in its place, or `None` if there is nothing to keep apart.
    ///
    /// The mark follows from run and answer, so that a settlement sent again is recognised (P18).
    pub(super) async fn keep_apart(
        &self,
        engine: &Shared,
        subject: &Subject,
        fence: Fence,
        settlement: &Settlement,
    ) -> StoreResult<Option<Settlement>> {
        let make: fn(Arc<Answer>) -> Settlement = match settlement {
            Settlement::Complete(_) => Settlement::Complete,
            Settlement::Fail(_) => Settlement::Fail,
            Settlement::Release | Settlement::Doubt => return Ok(None),
        };
        let Some(answer) = settlement.answer().filter(|answer| has_content(answer)) else {
            return Ok(None);
        };
        let name = AnswerName::of_run(&engine.secret, &subject.identity, fence, settlement, answer);
        let Some(place) = name.place(&engine.secret, &subject.namespace) else {
            return Ok(None);
        };
        match self.write(engine, subject, &name, place, settlement).await {
            // Both are sent again.
            Err(error) if error.is_transient() => return Err(error),
            // The effect has happened, so it is recorded even if there is no room for its answer
            // (P26, P33).
            Ok(()) | Err(_) => {}
        }
        Ok(Some(make(name.mark(answer).into())))
    }

    async fn write(
        &self,
        engine: &Shared,
        subject: &Subject,
        name: &AnswerName,
        place: Place,
        settlement: &Settlement,
    ) -> StoreResult<()> {
        let claim = self.claim(engine, name, place)?;
        let call = engine.store.claim(&claim);
        let lease = match engine.call(subject, StoreCall::Claim, call).await? {
            Claimed::Won(lease) => lease,
            // Written by an earlier call.
            Claimed::Replay(_) => return Ok(()),
            Claimed::Busy(_) | Claimed::Mismatch(_) | Claimed::InDoubt(_) => return Err(lost()),
        };
        let call = engine.store.settle(&lease, settlement);
        match engine.call(subject, StoreCall::Settle, call).await? {
            Settled::Done => Ok(()),
            Settled::Lost => Err(lost()),
        }
    }

    fn claim(&self, engine: &Shared, name: &AnswerName, place: Place) -> StoreResult<Claim> {
        let lease = LEASE.min(self.keep_for);
        let terms = ClaimTerms::new(lease, self.keep_for, CrashPolicy::Takeover, u16::MAX);
        let terms = terms.map_err(|error| {
            StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, error)
        })?;
        Ok(Claim {
            identity: place.identity,
            fingerprint: name.0,
            token: name.token(),
            terms: match self.data_subject {
                Some(subject) => terms.with_data_subject(subject),
                None => terms,
            },
            secret_id: engine.secret.id(),
            hint: place.key.hint(),
            namespace: place.namespace,
            retry: false,
        })
    }
}

fn has_content(answer: &Answer) -> bool {
    let is_elsewhere = matches!(answer.body, AnswerBody::External { .. });
    is_elsewhere || !answer.head.is_empty() || answer.body.held_bytes() > 0
}

fn lost() -> StoreError {
    let reason = "the record of the answer belongs to another owner";
    StoreError::new(StoreErrorKind::Unavailable, Certainty::Unknown, reason)
}

/// The name of an answer that is kept apart: a keyed digest of the run and of the answer itself.
#[derive(Clone, Copy)]
struct AnswerName(Fingerprint);

/// Where such an answer is.
struct Place {
    namespace: Namespace,
    key: Key,
    identity: Identity,
}

impl AnswerName {
    fn of_run(
        secret: &Secret,
        identity: &Identity,
        fence: Fence,
        settlement: &Settlement,
        answer: &Answer,
    ) -> Self {
        let parts = Fingerprint::builder(secret)
            .part(ANSWER_SCOPE.as_bytes())
            .part(identity.as_bytes())
            .part(&fence.0.to_le_bytes())
            .part(&[settlement.state() as u8])
            .part(&answer.head);
        let parts = match &answer.body {
            AnswerBody::Kept(body) => parts.part(body),
            AnswerBody::Omitted { bytes } => parts.part(&bytes.to_le_bytes()).part(b"omitted"),
            AnswerBody::External { digest, .. } => parts.part(digest).part(b"external"),
        };
        Self(parts.finish())
    }

    /// The name in a mark; `None` for any other answer.
    fn read(answer: &Answer) -> Option<Self> {
        let name = answer.head.strip_prefix(&MARK)?;
        Some(Self(Fingerprint::from_bytes(name.try_into().ok()?)))
    }

    /// What stands in place of the answer: its name and its size.
    fn mark(&self, answer: &Answer) -> Answer {
        let bytes = match &answer.body {
            AnswerBody::Kept(body) => body.len() as u64,
            AnswerBody::Omitted { bytes } | AnswerBody::External { bytes, .. } => *bytes,
        };
        Answer {
            head: [&MARK[..], self.0.as_bytes()].concat().into(),
            body: AnswerBody::Omitted { bytes },
        }
    }

    /// The same for everybody who writes this answer (P6).
    fn token(&self) -> Token {
        let (_, digest) = self
            .0
            .as_bytes()
            .split_last_chunk()
            .unwrap_or((&[], &[0; 16]));
        Token(u128::from_le_bytes(*digest))
    }

    fn place(&self, secret: &Secret, of: &Namespace) -> Option<Place> {
        let namespace = Namespace::new(of.environment(), of.tenant(), ANSWER_SCOPE).ok()?;
        let key = Key::parse(&hex(self.0.as_bytes())).ok()?;
        let identity = Identity::new(secret, &namespace, &key);
        Some(Place {
            namespace,
            key,
            identity,
        })
    }
}

/// An answer as a record has it.
pub(super) enum FoundAnswer {
    /// The answer, from the record or from a record of its own.
    Kept(Arc<Answer>),
    /// Only the mark is left.
    Gone,
}

/// Whether the answer is kept apart.
pub(super) fn is_apart(answer: &Answer) -> bool {
    AnswerName::read(answer).is_some()
}

/// Where the answer of a record is kept apart; `None` if it isn't.
pub(super) fn place_of(secret: &Secret, record: &Record) -> Option<Identity> {
    let name = AnswerName::read(record.answer.as_deref()?)?;
    Some(name.place(secret, &record.namespace)?.identity)
}

/// The answer that `answer` stands for: itself, unless it is a mark.
pub(super) async fn find(
    engine: &Shared,
    subject: &Subject,
    answer: &Arc<Answer>,
) -> StoreResult<FoundAnswer> {
    let Some(name) = AnswerName::read(answer) else {
        return Ok(FoundAnswer::Kept(Arc::clone(answer)));
    };
    let Some(place) = name.place(&engine.secret, &subject.namespace) else {
        return Ok(FoundAnswer::Gone);
    };
    let call = engine.store.read(&place.identity);
    let found = engine.call(subject, StoreCall::Read, call).await;
    let found = found.and_then(decrypted)?;
    let answer = found.and_then(|record| record.answer);
    Ok(answer.map_or(FoundAnswer::Gone, FoundAnswer::Kept))
}

/// The record with its answer in it. Where that is gone, it has an answer without head and body;
/// for an operator, also where it can't be read.
pub(super) async fn join(
    engine: &Shared,
    subject: &Subject,
    record: Record,
    is_for_operator: bool,
) -> StoreResult<Record> {
    let Some(marked) = record.answer.as_ref().filter(|answer| is_apart(answer)) else {
        return Ok(record);
    };
    let found = match find(engine, subject, marked).await {
        Err(error) if is_for_operator && !error.is_transient() => FoundAnswer::Gone,
        other => other?,
    };
    let answer = Some(match found {
        FoundAnswer::Kept(answer) => answer,
        FoundAnswer::Gone => Arc::new(Answer {
            head: Bytes::new(),
            body: marked.body.clone(),
        }),
    });
    Ok(Record { answer, ..record })
}
