//! Answers, checkpoints and whole records, encrypted and decrypted.
//!
//! What is encrypted of an answer: its head, after the kind and the length of its body; and the
//! body itself, beside it. A body that is not in the record has nothing to encrypt here: a blob
//! store gets what this module has encrypted.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes};
use semel_core::record::{SEALED_HEADER_BYTES, SealedHeader};
use semel_core::{Answer, AnswerBody, Fence, Identity, Record, RecordError, State, Token};

use super::cipher::{BODY, BoundField, CHECKPOINT, DecryptionKeys, HEAD};
use super::key::EncryptionKey;
use super::keyring::Keyring;

/// How much larger an answer may become.
pub(super) const MAX_OVERHEAD_BYTES: usize = 128;

// Kinds of bodies, in the encrypted head.
const KEPT: u8 = 1;
const OMITTED: u8 = 2;
const EXTERNAL: u8 = 3;

/// Bytes of kind and length before the head.
const PREFIX_BYTES: usize = 9;
const DIGEST_BYTES: usize = 32;

/// Where bodies of answers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bodies {
    /// In their records.
    InRecord,
    /// Large ones in a blob store, which may have lost some.
    Elsewhere,
}

/// The run that wrote an answer.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) identity: &'a Identity,
    pub(super) state: State,
    pub(super) fence: Fence,
    pub(super) token: Token,
}

impl<'a> Run<'a> {
    pub(super) const fn of_record(identity: &'a Identity, record: &Record) -> Self {
        Self {
            identity,
            state: record.state,
            fence: record.fence,
            token: record.token,
        }
    }

    const fn field(&self, field: u8) -> BoundField<'a> {
        BoundField {
            identity: self.identity,
            field,
            state: self.state,
            token: self.token,
        }
    }
}

/// A checkpoint is bound to its key and to the fences up to now: the next owner inherits it.
const fn checkpoint_field(identity: &Identity) -> BoundField<'_> {
    BoundField {
        identity,
        field: CHECKPOINT,
        state: State::Running,
        token: Token(0),
    }
}

pub(super) fn seal_checkpoint(
    key: &EncryptionKey,
    identity: &Identity,
    fence: Fence,
    checkpoint: &Bytes,
) -> Result<Bytes, RecordError> {
    if checkpoint.is_empty() {
        return Ok(Bytes::new());
    }
    seal_even_empty(key, identity, fence, checkpoint)
}

/// An encrypted checkpoint, even an empty one: it then only says under which key the rest of the
/// run is encrypted.
pub(super) fn seal_even_empty(
    key: &EncryptionKey,
    identity: &Identity,
    fence: Fence,
    checkpoint: &Bytes,
) -> Result<Bytes, RecordError> {
    checkpoint_field(identity).seal(key, fence, checkpoint)
}

pub(super) fn open_checkpoint(
    keys: &impl DecryptionKeys,
    identity: &Identity,
    fence: Fence,
    checkpoint: &Bytes,
) -> Result<Bytes, RecordError> {
    let opened = checkpoint_field(identity).open(keys, fence, checkpoint)?;
    Ok(opened.unwrap_or_else(|| checkpoint.clone()))
}

pub(super) fn seal_answer(
    key: &EncryptionKey,
    run: &Run<'_>,
    answer: &Answer,
) -> Result<Arc<Answer>, RecordError> {
    let mut text = Vec::with_capacity(PREFIX_BYTES + DIGEST_BYTES + answer.head.len());
    match &answer.body {
        AnswerBody::Kept(body) => {
            text.put_u8(KEPT);
            text.put_u64_le(body.len() as u64);
        }
        AnswerBody::Omitted { bytes } => {
            text.put_u8(OMITTED);
            text.put_u64_le(*bytes);
        }
        AnswerBody::External { bytes, digest } => {
            text.put_u8(EXTERNAL);
            text.put_u64_le(*bytes);
            text.put_slice(digest);
        }
    }
    text.put_slice(&answer.head);
    let head = run.field(HEAD).seal(key, run.fence, &text)?;
    let body = match &answer.body {
        AnswerBody::Kept(body) => {
            let mut header = [0; SEALED_HEADER_BYTES];
            header.copy_from_slice(&head[..SEALED_HEADER_BYTES]);
            AnswerBody::Kept(run.field(BODY).seal_beside(key, &header, body)?)
        }
        other => other.clone(),
    };
    Ok(Arc::new(Answer { head, body }))
}

pub(super) fn open_answer(
    keys: &impl DecryptionKeys,
    bodies: Bodies,
    run: &Run<'_>,
    answer: &Arc<Answer>,
) -> Result<Arc<Answer>, RecordError> {
    let Some(header) = SealedHeader::read(&answer.head)? else {
        return Ok(Arc::clone(answer));
    };
    let text = run.field(HEAD).open(keys, run.fence, &answer.head)?;
    let mut text = text.unwrap_or_default();
    if text.len() < PREFIX_BYTES {
        return Err(RecordError::NotAuthentic);
    }
    let prefix = text.split_to(PREFIX_BYTES);
    let bytes = prefix[1..].try_into().map_or(0, u64::from_le_bytes);
    let body = match (prefix[0], &answer.body) {
        (KEPT, AnswerBody::Kept(sealed)) => {
            let key = keys.find(&header, &answer.head)?;
            let body = run.field(BODY).open_beside(key, header, sealed)?;
            if body.len() as u64 != bytes {
                return Err(RecordError::NotAuthentic);
            }
            AnswerBody::Kept(body)
        }
        // A blob store has it, or has lost it (P44).
        (KEPT, AnswerBody::External { digest, .. }) if bodies == Bodies::Elsewhere => {
            AnswerBody::External {
                bytes,
                digest: *digest,
            }
        }
        (KEPT, AnswerBody::Omitted { .. }) if bodies == Bodies::Elsewhere => {
            AnswerBody::Omitted { bytes }
        }
        (OMITTED, AnswerBody::Omitted { .. }) => AnswerBody::Omitted { bytes },
        (EXTERNAL, AnswerBody::External { .. } | AnswerBody::Omitted { .. })
            if text.len() >= DIGEST_BYTES =>
        {
            let digest = text.split_to(DIGEST_BYTES);
            match &answer.body {
                AnswerBody::External { .. } => AnswerBody::external(bytes, &digest)?,
                _ => AnswerBody::Omitted { bytes },
            }
        }
        _ => return Err(RecordError::NotAuthentic),
    };
    Ok(Arc::new(Answer { head: text, body }))
}

pub(super) fn seal_record(
    key: &EncryptionKey,
    identity: &Identity,
    record: &Record,
) -> Result<Record, RecordError> {
    let run = Run::of_record(identity, record);
    let answer = record.answer.as_deref();
    let answer = answer.map(|answer| seal_answer(key, &run, answer));
    Ok(Record {
        checkpoint: seal_checkpoint(key, identity, record.fence, &record.checkpoint)?,
        answer: answer.transpose()?,
        ..record.clone()
    })
}

pub(super) fn open_record(
    keys: &impl DecryptionKeys,
    bodies: Bodies,
    identity: &Identity,
    record: &Record,
) -> Result<Record, RecordError> {
    let run = Run::of_record(identity, record);
    let answer = record.answer.as_ref();
    let answer = answer.map(|answer| open_answer(keys, bodies, &run, answer));
    Ok(Record {
        checkpoint: open_checkpoint(keys, identity, record.fence, &record.checkpoint)?,
        answer: answer.transpose()?,
        ..record.clone()
    })
}

/// The answer of a record as a store has it, encrypted or not, with the run that it is bound to.
pub(crate) struct StoredAnswer<'a> {
    run: Run<'a>,
    answer: Option<&'a Arc<Answer>>,
}

impl<'a> StoredAnswer<'a> {
    pub(crate) fn of(identity: &'a Identity, record: &'a Record) -> Self {
        Self {
            run: Run::of_record(identity, record),
            answer: record.answer.as_ref(),
        }
    }

    fn open(&self, keys: &Keyring) -> Result<Option<Arc<Answer>>, RecordError> {
        let open = |answer| open_answer(keys, Bodies::Elsewhere, &self.run, answer);
        self.answer.map(open).transpose()
    }

    fn header(&self) -> Result<Option<SealedHeader>, RecordError> {
        self.answer
            .map_or(Ok(None), |answer| SealedHeader::read(&answer.head))
    }

    /// Whether both say the same. A body that a blob store has is encrypted there, differently for
    /// each store's record: of such bodies the lengths are compared.
    pub(crate) fn says_the_same(&self, other: &Self, keys: &Keyring) -> Result<bool, RecordError> {
        let is_sealed = self.header()?.is_some() || other.header()?.is_some();
        let both = (self.open(keys)?, other.open(keys)?);
        let (Some(one), Some(other)) = both else {
            return Ok(false);
        };
        let same_body = match (&one.body, &other.body) {
            (
                AnswerBody::External { bytes, .. },
                AnswerBody::External {
                    bytes: other_bytes, ..
                },
            ) if is_sealed => bytes == other_bytes,
            (one, other) => one == other,
        };
        Ok(one.head == other.head && same_body)
    }

    /// The same answer for a record of the same run with another fence. `None` if that needs the
    /// body, which a blob store has.
    pub(crate) fn under(
        &self,
        record: &Record,
        keys: &Keyring,
    ) -> Result<Option<Arc<Answer>>, RecordError> {
        let Some(header) = self.header()?.filter(|header| header.fence > record.fence) else {
            return Ok(self.answer.cloned());
        };
        let key = keys.get(header.key_id);
        let key = key.ok_or(RecordError::NoKey(header.key_id))?;
        let Some(answer) = self.open(keys)? else {
            return Ok(None);
        };
        if let AnswerBody::External { .. } = answer.body {
            return Ok(None);
        }
        let run = Run {
            fence: record.fence,
            ..self.run
        };
        seal_answer(key, &run, &answer).map(Some)
    }
}
