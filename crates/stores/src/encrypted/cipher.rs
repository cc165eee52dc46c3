//! [`BoundField`]: encrypts one field with AES-256-GCM-SIV, bound to its record.
//!
//! The nonce is derived from the associated data, not random: a settlement that is sent again has
//! the same bytes, so that the store recognises it (P18). The cipher keeps its promise when a nonce
//! is used for two texts, as for two checkpoints of a lease: an observer only learns whether the
//! two are equal.

use aes_gcm_siv::{AeadInOut as _, Nonce, Tag};
use bytes::Bytes;
use semel_core::record::{DataKeyId, SEALED_HEADER_BYTES, SEALED_TAG_BYTES, SealedHeader};
use semel_core::{Fence, Identity, RecordError, State, Token};

use super::key::EncryptionKey;
use super::keyring::Keyring;

/// Fields, as the associated data names them.
pub(super) const CHECKPOINT: u8 = 1;
pub(super) const HEAD: u8 = 2;
pub(super) const BODY: u8 = 3;
pub(super) const DATA_KEY: u8 = 4;

/// Bytes of the associated data.
const ASSOCIATED_BYTES: usize = SEALED_HEADER_BYTES + 50;

/// The place that a field is bound to: another place can't decrypt it.
#[derive(Clone, Copy, Debug)]
pub struct BoundField<'a> {
    /// The key of the record.
    pub identity: &'a Identity,
    /// 1 checkpoint, 2 answer head, 3 answer body, 4 data key.
    pub field: u8,
    /// The state that it was written in.
    pub state: State,
    /// The owner that wrote it; 0 for a checkpoint, which later owners inherit.
    pub token: Token,
}

impl BoundField<'_> {
    fn associated(&self, header: &[u8; SEALED_HEADER_BYTES]) -> [u8; ASSOCIATED_BYTES] {
        let mut out = [0; ASSOCIATED_BYTES];
        let (first, rest) = out.split_at_mut(SEALED_HEADER_BYTES);
        first.copy_from_slice(header);
        rest[..32].copy_from_slice(self.identity.as_bytes());
        rest[32] = self.field;
        rest[33] = self.state as u8;
        rest[34..].copy_from_slice(&self.token.0.to_le_bytes());
        out
    }

    /// Encrypts `text` as a field with a header.
    ///
    /// # Errors
    /// [`RecordError::Malformed`] if it is too large for the cipher.
    pub fn seal(
        &self,
        key: &EncryptionKey,
        fence: Fence,
        text: &[u8],
    ) -> Result<Bytes, RecordError> {
        let name = key.data_key();
        let name = name.as_ref().map_or(&[][..], |name| &name.as_bytes()[..]);
        let total = SEALED_HEADER_BYTES + name.len() + text.len() + SEALED_TAG_BYTES;
        let header = SealedHeader {
            total_bytes: u32::try_from(total).map_err(|_| TOO_LARGE)?,
            key_id: key.id(),
            fence,
        };
        let header = header.to_bytes();
        let mut out = Vec::with_capacity(total);
        out.extend_from_slice(&header);
        out.extend_from_slice(name);
        self.append(key, &header, text, &mut out)?;
        Ok(out.into())
    }

    /// Encrypts `text` as a field without a header: the one of another field of the same record
    /// counts for it.
    pub(super) fn seal_beside(
        &self,
        key: &EncryptionKey,
        header: &[u8; SEALED_HEADER_BYTES],
        text: &[u8],
    ) -> Result<Bytes, RecordError> {
        let mut out = Vec::with_capacity(text.len() + SEALED_TAG_BYTES);
        self.append(key, header, text, &mut out)?;
        Ok(out.into())
    }

    fn append(
        &self,
        key: &EncryptionKey,
        header: &[u8; SEALED_HEADER_BYTES],
        text: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        let associated = self.associated(header);
        let begin = out.len();
        out.extend_from_slice(text);
        let nonce = nonce(key, &associated);
        let sealed =
            key.cipher
                .encrypt_inout_detached(&nonce, &associated, (&mut out[begin..]).into());
        out.extend_from_slice(&sealed.map_err(|_| TOO_LARGE)?);
        Ok(())
    }

    /// Decrypts a field with a header; `None` if it has none, so that it is plain text.
    ///
    /// # Errors
    /// [`RecordError::NoKey`], or [`RecordError::NotAuthentic`] if it was changed, moved, or
    /// written after `fence`.
    pub fn open(
        &self,
        keys: &impl DecryptionKeys,
        fence: Fence,
        field: &[u8],
    ) -> Result<Option<Bytes>, RecordError> {
        let Some(header) = SealedHeader::read(field)? else {
            return Ok(None);
        };
        if header.fence > fence {
            return Err(RecordError::NotAuthentic);
        }
        let key = keys.find(&header, field)?;
        let sealed = &field[header.text_at()..];
        self.open_beside(key, header, sealed).map(Some)
    }

    /// Decrypts a field without a header.
    pub(super) fn open_beside(
        &self,
        key: &EncryptionKey,
        header: SealedHeader,
        sealed: &[u8],
    ) -> Result<Bytes, RecordError> {
        let length = sealed.len().checked_sub(SEALED_TAG_BYTES);
        let (text, tag) = sealed.split_at(length.ok_or(RecordError::NotAuthentic)?);
        let tag = Tag::try_from(tag).map_err(|_| RecordError::NotAuthentic)?;
        let associated = self.associated(&header.to_bytes());
        let mut text = text.to_vec();
        key.cipher
            .decrypt_inout_detached(
                &nonce(key, &associated),
                &associated,
                text.as_mut_slice().into(),
                &tag,
            )
            .map_err(|_| RecordError::NotAuthentic)?;
        Ok(text.into())
    }
}

/// Keys to decrypt with.
pub trait DecryptionKeys {
    /// The key of `field`, which has this header.
    ///
    /// # Errors
    /// [`RecordError::NoKey`].
    fn find(&self, header: &SealedHeader, field: &[u8]) -> Result<&EncryptionKey, RecordError>;
}

impl DecryptionKeys for Keyring {
    fn find(&self, header: &SealedHeader, _: &[u8]) -> Result<&EncryptionKey, RecordError> {
        let id = header.key_id;
        self.get(id).ok_or(RecordError::NoKey(id))
    }
}

/// The keys of the process, and the data key of the record at hand.
pub(super) struct RecordKeys<'a> {
    pub(super) ring: &'a Keyring,
    pub(super) data: Option<&'a EncryptionKey>,
}

impl DecryptionKeys for RecordKeys<'_> {
    fn find(&self, header: &SealedHeader, field: &[u8]) -> Result<&EncryptionKey, RecordError> {
        match DataKeyId::read(field)? {
            Some(name) => self
                .data
                .filter(|key| key.data_key() == Some(name))
                .ok_or(RecordError::NoKey(header.key_id)),
            None => self.ring.find(header, field),
        }
    }
}

const TOO_LARGE: RecordError = RecordError::Malformed("too large to encrypt");

fn nonce(key: &EncryptionKey, associated: &[u8]) -> Nonce {
    let digest = blake3::keyed_hash(&key.nonce, associated);
    let mut nonce = Nonce::default();
    nonce.copy_from_slice(&digest.as_bytes()[..12]);
    nonce
}
