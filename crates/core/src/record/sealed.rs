//! The format of an encrypted field (record version 2), and who may read it. The cipher itself is
//! not here: this crate only has to know which records are encrypted, and under which key.
//!
//! An encrypted field is [`SEALED_MAGIC`], its total length (4 bytes), the id of its key (4), the
//! fence of the lease that wrote it (8), then the ciphertext and its tag. Numbers are
//! little-endian. Where the key is a data key, whose ids begin at
//! [`FIRST_DATA_KEY`], its name (16) stands before the ciphertext: see [`DataKeyId`].

use std::sync::Arc;

use bytes::Bytes;

use super::{Answer, AnswerBody, Fence, Record, RecordError};

/// The first bytes of an encrypted field. No UTF-8 text begins so.
pub const SEALED_MAGIC: [u8; 8] = *b"\xf5sealed\x02";

/// Bytes before the ciphertext.
pub const SEALED_HEADER_BYTES: usize = 24;

/// Bytes of the authentication tag at the end.
pub const SEALED_TAG_BYTES: usize = 16;

/// Ids of keys from here on are those of data keys (P48). The keys of a process have smaller ones.
pub const FIRST_DATA_KEY: u32 = 1 << 31;

/// The name of a data key: a keyed digest of whose data it encrypts (P48).
///
/// A field names its data key by these 16 bytes. The id in its header has the first of them, so
/// that a store can tell data keys apart, and a version that knows no data keys refuses the field
/// as one of a key that it doesn't have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataKeyId([u8; Self::BYTES]);

impl DataKeyId {
    /// Its length in a field.
    pub const BYTES: usize = 16;

    /// The name with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// All bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// The id for the header of a field.
    #[must_use]
    pub const fn key_id(&self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_le_bytes([a, b, c, d]) | FIRST_DATA_KEY
    }

    /// The data key of an encrypted field; `None` if it isn't encrypted with one.
    ///
    /// # Errors
    /// As [`SealedHeader::read`].
    pub fn read(field: &[u8]) -> Result<Option<Self>, RecordError> {
        let header = SealedHeader::read(field)?;
        Ok(header.and_then(|header| header.data_key(field)))
    }
}

/// Shows the first four bytes.
impl std::fmt::Debug for DataKeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}…")
    }
}

/// The header of an encrypted field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedHeader {
    /// The length of the whole field.
    pub total_bytes: u32,
    /// The id of the key; never 0.
    pub key_id: u32,
    /// The fence of the lease that wrote it.
    pub fence: Fence,
}

impl SealedHeader {
    /// The header in its stored form.
    #[must_use]
    pub fn to_bytes(self) -> [u8; SEALED_HEADER_BYTES] {
        let mut out = [0; SEALED_HEADER_BYTES];
        out[..8].copy_from_slice(&SEALED_MAGIC);
        out[8..12].copy_from_slice(&self.total_bytes.to_le_bytes());
        out[12..16].copy_from_slice(&self.key_id.to_le_bytes());
        out[16..].copy_from_slice(&self.fence.0.to_le_bytes());
        out
    }

    /// The header of `field`; `None` if it isn't encrypted.
    ///
    /// # Errors
    /// [`RecordError::Malformed`] if it begins as an encrypted field and isn't a whole one.
    pub fn read(field: &[u8]) -> Result<Option<Self>, RecordError> {
        if !field.starts_with(&SEALED_MAGIC) {
            return Ok(None);
        }
        let number = |at: usize| {
            let bytes = field.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_le_bytes(bytes))
        };
        let fence = field.get(16..24).and_then(|bytes| bytes.try_into().ok());
        let (Some(total_bytes), Some(key_id), Some(fence)) = (number(8), number(12), fence) else {
            return Err(RecordError::Malformed("encrypted field cut short"));
        };
        let is_whole = usize::try_from(total_bytes) == Ok(field.len())
            && field.len() >= SEALED_HEADER_BYTES + SEALED_TAG_BYTES;
        let header = Self {
            total_bytes,
            key_id,
            fence: Fence(u64::from_le_bytes(fence)),
        };
        let is_named = header.text_at() + SEALED_TAG_BYTES <= field.len()
            && header
                .data_key(field)
                .is_none_or(|name| name.key_id() == key_id);
        if !is_whole || !is_named || key_id == 0 {
            return Err(RecordError::Malformed("length of an encrypted field"));
        }
        Ok(Some(header))
    }

    /// Where the ciphertext begins.
    #[must_use]
    pub const fn text_at(&self) -> usize {
        match self.key_id >= FIRST_DATA_KEY {
            true => SEALED_HEADER_BYTES + DataKeyId::BYTES,
            false => SEALED_HEADER_BYTES,
        }
    }

    /// The data key of the field that this is the header of.
    fn data_key(self, field: &[u8]) -> Option<DataKeyId> {
        let name = field.get(SEALED_HEADER_BYTES..self.text_at())?;
        name.try_into().ok().map(DataKeyId)
    }
}

/// The most keys that one process has at a time.
pub const MAX_KEYS: usize = 8;

/// The most data keys of one claim: of its tenant or subject, and of the record that it finds.
pub const MAX_DATA_KEYS: usize = 2;

/// The keys of a claimant: which encrypted records it may take over or be answered from (P46). Ids
/// only, no key material.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadableKeys {
    ids: [u32; MAX_KEYS],
    data: [u32; MAX_DATA_KEYS],
    refuses_plain: bool,
}

impl ReadableKeys {
    /// The keys with these ids. Ids past [`MAX_KEYS`] are left out.
    #[must_use]
    pub fn new(ids: impl IntoIterator<Item = u32>, refuses_plain: bool) -> Self {
        let mut all = [0; MAX_KEYS];
        for (place, id) in all.iter_mut().zip(ids) {
            *place = id;
        }
        Self {
            ids: all,
            data: [0; MAX_DATA_KEYS],
            refuses_plain,
        }
    }

    /// The same keys, and these data keys. Those past [`MAX_DATA_KEYS`] are left out.
    #[must_use]
    pub fn with_data_keys(mut self, names: impl IntoIterator<Item = DataKeyId>) -> Self {
        for (place, name) in self.data.iter_mut().zip(names) {
            *place = name.key_id();
        }
        self
    }

    /// Whether the key with this id is among them.
    #[must_use]
    pub fn has(&self, id: u32) -> bool {
        id != 0 && (self.ids.contains(&id) || self.data.contains(&id))
    }

    /// Whether a record may be used by a process with these keys.
    ///
    /// # Errors
    /// [`RecordError::NoKey`] if the record is encrypted under another key; [`RecordError::Plain`]
    /// if it is not encrypted and must be.
    pub fn check(&self, record: &Record) -> Result<(), RecordError> {
        match record.key_id()? {
            Some(id) if self.has(id) => Ok(()),
            Some(id) => Err(RecordError::NoKey(id)),
            None if self.refuses_plain && record.has_content() => Err(RecordError::Plain),
            None => Ok(()),
        }
    }
}

impl Record {
    /// The key under which answer or checkpoint are encrypted; `None` if neither is. A record with
    /// an encrypted field has format version 2.
    ///
    /// # Errors
    /// [`RecordError::Malformed`] if a field begins as an encrypted one and isn't one, and what
    /// [`Record::locked`] says of a record without its content.
    pub fn key_id(&self) -> Result<Option<u32>, RecordError> {
        if let Some(reason) = self.lock_reason() {
            return Err(reason);
        }
        for field in self.fields() {
            if let Some(header) = SealedHeader::read(field)? {
                return Ok(Some(header.key_id));
            }
        }
        Ok(None)
    }

    /// The data key under which answer or checkpoint are encrypted; `None` if neither is encrypted
    /// with one.
    ///
    /// # Errors
    /// As [`Record::key_id`].
    pub fn data_key(&self) -> Result<Option<DataKeyId>, RecordError> {
        for field in self.fields() {
            if let Some(name) = DataKeyId::read(field)? {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// The fields that may be encrypted.
    fn fields(&self) -> impl Iterator<Item = &Bytes> {
        let head = self.answer.as_ref().map(|answer| &answer.head);
        head.into_iter().chain([&self.checkpoint])
    }

    /// Whether it keeps anything of the caller's or the effect's. An answer without a head or a
    /// body says that the effect happened.
    fn has_content(&self) -> bool {
        !self.checkpoint.is_empty() || self.answer.is_some()
    }

    /// The record without its content, for operators: `reason` says why this process can't read or
    /// accept it, and the sizes stay. [`Record::locked`] tells such a record; it is never stored.
    #[must_use]
    pub fn lock(self, reason: &RecordError) -> Self {
        let mark = lock_mark(reason);
        let checkpoint = match self.checkpoint.is_empty() && self.answer.is_some() {
            true => Bytes::new(),
            false => mark.clone(),
        };
        let answer = self.answer.as_ref().map(|answer| {
            let bytes = match &answer.body {
                AnswerBody::Kept(body) => body.len().saturating_sub(SEALED_TAG_BYTES) as u64,
                AnswerBody::Omitted { bytes } | AnswerBody::External { bytes, .. } => *bytes,
            };
            Arc::new(Answer {
                head: mark.clone(),
                body: AnswerBody::Omitted { bytes },
            })
        });
        Self {
            checkpoint,
            answer,
            ..self
        }
    }

    /// Why the content of this record can't be used: its key is missing, or it isn't accepted.
    /// `None` if it can.
    #[must_use]
    pub fn locked(&self) -> Option<RecordError> {
        match self.key_id() {
            Ok(None) => None,
            Ok(Some(id)) => Some(RecordError::NoKey(id)),
            Err(reason) => Some(reason),
        }
    }

    fn lock_reason(&self) -> Option<RecordError> {
        let marked = self.fields().find(|field| field.starts_with(&LOCKED_MAGIC));
        marked.map(|field| lock_reason(&field[LOCKED_MAGIC.len()..]))
    }

    /// This record, if its content can be used: it is neither encrypted nor without its content.
    ///
    /// # Errors
    /// [`RecordError::NoKey`], or what [`Record::locked`] says.
    pub fn into_readable(self) -> Result<Self, RecordError> {
        match self.locked() {
            Some(reason) => Err(reason),
            None => Ok(self),
        }
    }
}

/// The first bytes of what stands in place of content that can't be read. No UTF-8 text begins so.
const LOCKED_MAGIC: [u8; 8] = *b"\xf5locked\x02";

const NO_KEY: u8 = 1;
const NOT_AUTHENTIC: u8 = 2;
const PLAIN: u8 = 3;
const ERASED: u8 = 4;

fn lock_mark(reason: &RecordError) -> Bytes {
    let (kind, id) = match reason {
        RecordError::NoKey(id) => (NO_KEY, *id),
        RecordError::NotAuthentic => (NOT_AUTHENTIC, 0),
        RecordError::Plain => (PLAIN, 0),
        RecordError::Erased => (ERASED, 0),
        _ => (0, 0),
    };
    [&LOCKED_MAGIC[..], &[kind], &id.to_le_bytes()]
        .concat()
        .into()
}

fn lock_reason(mark: &[u8]) -> RecordError {
    let id = mark.get(1..5).and_then(|id| id.try_into().ok());
    match (mark.first(), id) {
        (Some(&NO_KEY), Some(id)) => RecordError::NoKey(u32::from_le_bytes(id)),
        (Some(&NOT_AUTHENTIC), _) => RecordError::NotAuthentic,
        (Some(&PLAIN), _) => RecordError::Plain,
        (Some(&ERASED), _) => RecordError::Erased,
        _ => RecordError::Malformed("an encrypted field"),
    }
}
