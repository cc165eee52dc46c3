//! [`PackedRecord`]: settles a record in its packed form. For stores whose leases carry the packed
//! record in their memo.

use bytes::BufMut as _;

use super::codec::{
    ENCRYPTED_VERSION, FORMAT_VERSION, HEADER_BYTES, KEY_BYTES, offset, put_answer, put_key,
    put_total,
};
use super::sealed::SealedHeader;
use super::{Answer, Fence, State, Token};
use crate::clock::Timestamp;
use crate::identity::Identity;

/// A running record in its packed form.
#[derive(Clone, Copy)]
pub struct PackedRecord<'a> {
    bytes: &'a [u8],
    label: &'a [u8],
}

impl<'a> PackedRecord<'a> {
    /// The running record of this identity, fence and token; `None` if `bytes` are anything else.
    #[must_use]
    pub fn running(
        bytes: &'a [u8],
        identity: &Identity,
        fence: Fence,
        token: Token,
    ) -> Option<Self> {
        let part = |at: usize, length: usize| bytes.get(at..at + length);
        let label: [u8; 2] = part(HEADER_BYTES - 2, 2)?.try_into().ok()?;
        let label_at = match *bytes.first()? {
            FORMAT_VERSION => HEADER_BYTES,
            ENCRYPTED_VERSION => HEADER_BYTES + KEY_BYTES,
            _ => return None,
        };
        let label = part(label_at, usize::from(u16::from_le_bytes(label)))?;
        let is_ours = *bytes.get(offset::STATE)? == State::Running as u8
            && part(offset::SEAL, 16)? == identity.seal()
            && part(offset::OWNER, 8)? == fence.0.to_le_bytes()
            && part(offset::OWNER + 8, 16)? == token.0.to_le_bytes();
        is_ours.then_some(Self { bytes, label })
    }

    /// How long the record lives after each write, in milliseconds.
    #[must_use]
    pub fn retention_millis(&self) -> u64 {
        self.number(offset::RETENTION)
    }

    /// The packed record after it is completed, failed or released at `now`, the same as by
    /// [`crate::protocol::settle`].
    #[must_use]
    pub fn settled(&self, state: State, answer: Option<&Answer>, now: Timestamp) -> Vec<u8> {
        let answered = answer.map_or(0, |answer| answer.head.len() + answer.body.held_bytes());
        let header = answer.and_then(|answer| SealedHeader::read(&answer.head).ok().flatten());
        let before = HEADER_BYTES + KEY_BYTES + self.label.len();
        let mut out = Vec::with_capacity(before + answered + 56);
        out.put_slice(&self.bytes[..HEADER_BYTES]);
        out[offset::VERSION] = header.map_or(FORMAT_VERSION, |_| ENCRYPTED_VERSION);
        if let Some(header) = header {
            put_key(&mut out, header.key_id);
        }
        out.put_slice(self.label);
        out[offset::STATE] = state as u8;
        let written = now.as_micros().max(self.number(offset::WRITTEN));
        out[offset::WRITTEN..offset::WRITTEN + 8].copy_from_slice(&written.to_le_bytes());
        if let Some(answer) = answer {
            put_answer(&mut out, answer);
        }
        if header.is_some() {
            put_total(&mut out);
        }
        out
    }

    fn number(&self, at: usize) -> u64 {
        let bytes = self.bytes[at..at + 8].try_into();
        bytes.map_or(0, u64::from_le_bytes)
    }
}

impl std::fmt::Debug for PackedRecord<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackedRecord({} bytes)", self.bytes.len())
    }
}
