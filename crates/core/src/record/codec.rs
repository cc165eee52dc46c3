//! The packed form of a [`Record`]: a fixed header, the label, then tagged sections.
//!
//! Every record has exactly one packed form, and unpacking refuses any other, so that two stores
//! (or two languages) that agree on a record agree on its bytes. All numbers are little-endian. A
//! version that this build doesn't know fails closed: the record is there, so the key is not free
//! (P25).

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};

use super::{Answer, AnswerBody, CrashPolicy, Fence, Record, State, Token};
use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::key::KeyHint;
use crate::namespace::Namespace;

/// The version of a record without encrypted fields.
pub const FORMAT_VERSION: u8 = 1;

/// The version of a record with encrypted fields.
pub const ENCRYPTED_VERSION: u8 = 2;

/// Bytes before the label in version 1, and before length and key id in version 2.
pub const HEADER_BYTES: usize = 96;

/// Length and key id, which version 2 has between header and label.
pub(super) const KEY_BYTES: usize = 8;

/// Where header fields stand, for stores that compare them inside the server.
pub mod offset {
    /// The format version, one byte.
    pub const VERSION: usize = 0;
    /// The state, one byte.
    pub const STATE: usize = 1;
    /// The crash policy, one byte.
    pub const CRASH: usize = 2;
    /// The fingerprint, 17 bytes.
    pub const FINGERPRINT: usize = 3;
    /// The seal, 16 bytes.
    pub const SEAL: usize = 20;
    /// The fence, 8 bytes, followed by the token, 16 bytes: the owner.
    pub const OWNER: usize = 36;
    /// The lease in milliseconds, 4 bytes.
    pub const LEASE: usize = 60;
    /// The retention in milliseconds, 8 bytes.
    pub const RETENTION: usize = 64;
    /// When the key was first claimed, microseconds, 8 bytes.
    pub const CREATED: usize = 72;
    /// When the record was last written, microseconds, 8 bytes.
    pub const WRITTEN: usize = 80;
    /// The attempt, then the most attempts, 2 bytes each.
    pub const ATTEMPT: usize = 88;
}

/// Why bytes found in a store are not the record asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Written by a newer version of Semel.
    #[error("the record has format version {0}, which this version of semel doesn't read; upgrade")]
    UnknownVersion(u8),
    /// Has a section that this version doesn't know and may not skip.
    #[error(
        "the record has a section with tag {0}, which this version of semel doesn't read; upgrade"
    )]
    UnknownSection(u8),
    /// Not a packed record.
    #[error("the record is damaged: {0}")]
    Malformed(&'static str),
    /// Another key's record (P24).
    #[error("the store returned the record of another key")]
    Foreign,
    /// Encrypted with a key that this process doesn't have (P46).
    #[error("the record is encrypted with key {0}, which this process doesn't have")]
    NoKey(u32),
    /// Encrypted, but changed or moved since (P47).
    #[error("the record was changed or moved since it was encrypted")]
    NotAuthentic,
    /// Not encrypted, where only encrypted records are accepted.
    #[error("the record is not encrypted, and this process accepts only encrypted records")]
    Plain,
    /// Encrypted with a data key that was destroyed: its tenant or subject was erased (P49).
    #[error(
        "the content of the record was erased: the key that it was encrypted with is destroyed"
    )]
    Erased,
}

// Sections in the order in which they stand. From 128 on, a reader may skip what it doesn't know.
const CHECKPOINT: u8 = 1;
const HEAD: u8 = 2;
const BODY: u8 = 3;
const OMITTED: u8 = 4;
const EXTERNAL: u8 = 5;
const OPTIONAL: u8 = 128;

/// Bytes of the section of an external body: its length and its digest.
const EXTERNAL_BYTES: usize = 40;

impl Record {
    /// The packed form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + KEY_BYTES + self.variable_bytes());
        // A field that only begins as an encrypted one stays in version 1, where the reader refuses
        // it.
        let key_id = self.key_id().ok().flatten();
        out.put_u8(key_id.map_or(FORMAT_VERSION, |_| ENCRYPTED_VERSION));
        out.put_u8(self.state as u8);
        out.put_u8(self.crash as u8);
        out.put_slice(self.fingerprint.as_bytes());
        out.put_slice(&self.seal);
        out.put_u64_le(self.fence.0);
        out.put_u128_le(self.token.0);
        out.put_u32_le(u32::try_from(self.lease.as_millis()).unwrap_or(u32::MAX));
        out.put_u64_le(u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX));
        out.put_u64_le(self.created_at.as_micros());
        out.put_u64_le(self.written_at.as_micros());
        out.put_u16_le(self.attempt);
        out.put_u16_le(self.max_attempts);
        out.put_u16_le(self.secret_id);
        out.put_u16_le(u16::try_from(self.label_bytes()).unwrap_or(u16::MAX));
        debug_assert_eq!(out.len(), HEADER_BYTES);
        if let Some(key_id) = key_id {
            put_key(&mut out, key_id);
        }
        for part in self.label_parts() {
            out.put_u8(u8::try_from(part.len()).unwrap_or(u8::MAX));
            out.put_slice(part.as_bytes());
        }
        self.encode_sections(&mut out);
        if key_id.is_some() {
            put_total(&mut out);
        }
        out
    }

    fn encode_sections(&self, out: &mut Vec<u8>) {
        if !self.checkpoint.is_empty() {
            put_section(out, CHECKPOINT, &self.checkpoint);
        }
        if let Some(answer) = &self.answer {
            put_answer(out, answer);
        }
    }

    fn label_parts(&self) -> [&str; 4] {
        let namespace = &self.namespace;
        [
            namespace.environment(),
            namespace.tenant(),
            namespace.scope(),
            self.hint.as_str(),
        ]
    }

    fn label_bytes(&self) -> usize {
        self.label_parts().iter().map(|part| part.len() + 1).sum()
    }

    fn variable_bytes(&self) -> usize {
        let answer = self.answer.as_ref().map_or(0, |answer| {
            10 + answer.head.len() + answer.body.held_bytes().max(EXTERNAL_BYTES)
        });
        self.label_bytes() + self.checkpoint.len() + 5 + answer
    }

    /// Unpacks, without checking whose record it is: for listings.
    ///
    /// # Errors
    /// [`RecordError`] if the bytes are not a record that this version reads.
    pub fn decode(packed: &Bytes) -> Result<Self, RecordError> {
        let mut reader = Reader { packed, at: 0 };
        let version = reader.u8()?;
        if version != FORMAT_VERSION && version != ENCRYPTED_VERSION {
            return Err(RecordError::UnknownVersion(version));
        }
        let state = state(reader.u8()?)?;
        let crash = crash(reader.u8()?)?;
        let fingerprint = Fingerprint::from_bytes(reader.array()?);
        let seal = reader.array()?;
        let fence = Fence(u64::from_le_bytes(reader.array()?));
        let token = Token(u128::from_le_bytes(reader.array()?));
        let lease = Duration::from_millis(u32::from_le_bytes(reader.array()?).into());
        let retention = Duration::from_millis(u64::from_le_bytes(reader.array()?));
        let created_at = Timestamp::from_micros(u64::from_le_bytes(reader.array()?));
        let written_at = Timestamp::from_micros(u64::from_le_bytes(reader.array()?));
        let attempt = reader.u16()?;
        let max_attempts = reader.u16()?;
        let secret_id = reader.u16()?;
        let label_bytes = usize::from(reader.u16()?);
        let key = match version {
            ENCRYPTED_VERSION => Some((reader.u32()?, reader.u32()?)),
            _ => None,
        };
        let (namespace, hint) = label(&mut reader, label_bytes)?;
        let Sections {
            checkpoint,
            answer,
            end,
        } = sections(&mut reader)?;
        let settled = matches!(state, State::Completed | State::Failed);
        if settled != answer.is_some() {
            return Err(RecordError::Malformed("answer and state disagree"));
        }
        let record = Self {
            seal,
            state,
            crash,
            fence,
            token,
            attempt,
            max_attempts,
            fingerprint,
            secret_id,
            lease,
            retention,
            created_at,
            written_at,
            namespace,
            hint,
            checkpoint,
            answer,
        };
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        if record.key_id()?.map(|id| (end, id)) != key {
            return Err(RecordError::Malformed("length or key id"));
        }
        Ok(record)
    }

    /// Unpacks the record of `identity`, and no other (P24).
    ///
    /// # Errors
    /// [`RecordError`]; [`RecordError::Foreign`] if the bytes are another key's record.
    pub fn decode_for(identity: &Identity, packed: &Bytes) -> Result<Self, RecordError> {
        let record = Self::decode(packed)?;
        if record.belongs_to(identity) {
            Ok(record)
        } else {
            Err(RecordError::Foreign)
        }
    }
}

pub(super) fn put_answer(out: &mut Vec<u8>, answer: &Answer) {
    put_section(out, HEAD, &answer.head);
    match &answer.body {
        AnswerBody::Kept(body) => put_section(out, BODY, body),
        AnswerBody::Omitted { bytes } => put_section(out, OMITTED, &bytes.to_le_bytes()),
        AnswerBody::External { bytes, digest } => {
            let mut section = [0; EXTERNAL_BYTES];
            section[..8].copy_from_slice(&bytes.to_le_bytes());
            section[8..].copy_from_slice(digest);
            put_section(out, EXTERNAL, &section);
        }
    }
}

/// Length and key id of version 2. [`put_total`] writes the length.
pub(super) fn put_key(out: &mut Vec<u8>, key_id: u32) {
    out.put_u32_le(0);
    out.put_u32_le(key_id);
}

/// Writes the length of a record of version 2 into it.
pub(super) fn put_total(out: &mut [u8]) {
    let total = u32::try_from(out.len()).unwrap_or(u32::MAX);
    out[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&total.to_le_bytes());
}

fn put_section(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.put_u8(tag);
    out.put_u32_le(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.put_slice(bytes);
}

fn state(byte: u8) -> Result<State, RecordError> {
    use State::{Completed, Failed, InDoubt, Released, Running};
    let known = [Running, Completed, Failed, InDoubt, Released];
    let found = known.into_iter().find(|&state| state as u8 == byte);
    found.ok_or(RecordError::Malformed("state"))
}

fn crash(byte: u8) -> Result<CrashPolicy, RecordError> {
    let known = [CrashPolicy::Takeover, CrashPolicy::Hold];
    let found = known.into_iter().find(|&crash| crash as u8 == byte);
    found.ok_or(RecordError::Malformed("crash policy"))
}

fn label(reader: &mut Reader<'_>, length: usize) -> Result<(Namespace, KeyHint), RecordError> {
    const BAD: RecordError = RecordError::Malformed("label");
    let start = reader.at;
    let mut parts = [""; 4];
    for part in &mut parts {
        let bytes = usize::from(reader.u8()?);
        *part = std::str::from_utf8(reader.take(bytes)?).map_err(|_| BAD)?;
    }
    let [environment, tenant, scope, hint] = parts;
    if reader.at - start != length || hint.len() > KeyHint::MAX_BYTES {
        return Err(BAD);
    }
    let namespace = Namespace::new(environment, tenant, scope).map_err(|_| BAD)?;
    Ok((namespace, KeyHint::cut(hint, KeyHint::MAX_BYTES)))
}

struct Sections {
    checkpoint: Bytes,
    answer: Option<Arc<Answer>>,
    /// Where the last section ends that may not be skipped.
    end: usize,
}

fn sections(reader: &mut Reader<'_>) -> Result<Sections, RecordError> {
    let mut checkpoint = Bytes::new();
    let (mut head, mut body) = (None, None);
    let (mut last, mut end) = (0, reader.at);
    while reader.at < reader.packed.len() {
        let tag = reader.u8()?;
        if tag <= last {
            return Err(RecordError::Malformed("sections out of order"));
        }
        last = tag;
        let length = u32::from_le_bytes(reader.array()?);
        let bytes = reader.slice(usize::try_from(length).unwrap_or(usize::MAX))?;
        if tag < OPTIONAL {
            end = reader.at;
        }
        match tag {
            CHECKPOINT if bytes.is_empty() => return Err(RecordError::Malformed("checkpoint")),
            CHECKPOINT => checkpoint = bytes,
            HEAD => head = Some(bytes),
            BODY => body = Some(AnswerBody::Kept(bytes)),
            OMITTED | EXTERNAL if body.is_some() => {
                return Err(RecordError::Malformed("two bodies"));
            }
            OMITTED => {
                let length = bytes.as_ref().try_into();
                let length = length.map_err(|_| RecordError::Malformed("omitted body"))?;
                body = Some(AnswerBody::Omitted {
                    bytes: u64::from_le_bytes(length),
                });
            }
            EXTERNAL => body = Some(external_body(&bytes)?),
            OPTIONAL.. => {}
            _ => return Err(RecordError::UnknownSection(tag)),
        }
    }
    let answer = match (head, body) {
        (None, None) => None,
        (Some(head), Some(body)) => Some(Arc::new(Answer { head, body })),
        _ => return Err(RecordError::Malformed("half an answer")),
    };
    Ok(Sections {
        checkpoint,
        answer,
        end,
    })
}

fn external_body(section: &[u8]) -> Result<AnswerBody, RecordError> {
    let (bytes, digest) = section.split_at_checked(8).unwrap_or_default();
    let bytes = bytes.try_into().map_or(0, u64::from_le_bytes);
    AnswerBody::external(bytes, digest)
}

struct Reader<'a> {
    packed: &'a Bytes,
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], RecordError> {
        let end = self.at.checked_add(length);
        let bytes = end.and_then(|end| self.packed.get(self.at..end));
        let bytes = bytes.ok_or(RecordError::Malformed("cut short"))?;
        self.at += length;
        Ok(bytes)
    }

    /// Like `take`, sharing the packed bytes instead of borrowing them.
    fn slice(&mut self, length: usize) -> Result<Bytes, RecordError> {
        let bytes = self.take(length)?;
        Ok(self.packed.slice_ref(bytes))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        self.take(N)?
            .try_into()
            .map_err(|_| RecordError::Malformed("cut short"))
    }

    fn u8(&mut self) -> Result<u8, RecordError> {
        self.array::<1>().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, RecordError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, RecordError> {
        self.array().map(u32::from_le_bytes)
    }
}
