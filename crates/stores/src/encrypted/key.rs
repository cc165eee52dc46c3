//! [`EncryptionKey`]: one key, and what is derived from it.

use std::fmt;

use aes_gcm_siv::{Aes256GcmSiv, KeyInit as _};
use semel_core::record::{DataKeyId, FIRST_DATA_KEY};
use semel_core::{Fingerprint, Secret};
use zeroize::Zeroizing;

// One context per use, so that no derived key serves two.
const ENCRYPTION: &str = "semel v2 record encryption";
const NONCE: &str = "semel v2 record nonce";
const CHECK: &str = "semel v2 key check";

/// A key of 256 bits with its id. `Debug` shows the id only; the material is erased from memory
/// when it is dropped.
pub struct EncryptionKey {
    id: u32,
    /// The name of a data key, which its fields carry.
    data: Option<DataKeyId>,
    pub(super) cipher: Aes256GcmSiv,
    pub(super) nonce: Zeroizing<[u8; 32]>,
    check: [u8; 32],
}

/// Why keys can't be used. Never contains key material.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncryptionKeyError {
    /// A line isn't a key.
    #[error(
        "{place}: line {line} is not a key; write ID:KEY, an id from 1 to 2147483647 and 64 hex digits, as `semel encryption-key` prints it"
    )]
    Line {
        /// The file, variable or command.
        place: String,
        /// The number of the line, from 1.
        line: usize,
    },
    /// Two keys have the same id.
    #[error("two encryption keys have the id {0}; give every key an id of its own")]
    Twice(u32),
    /// Too many keys.
    #[error("there are {0} encryption keys; keep at most {max}, and remove those no record needs", max = semel_core::record::MAX_KEYS)]
    Many(usize),
    /// The key to write with isn't there.
    #[error("the key to write with, {0}, is not among the encryption keys")]
    NoWriteKey(u32),
    /// There is no key.
    #[error("{0} has no encryption key")]
    Empty(String),
    /// The keys could not be read.
    #[error("{place}: {reason}")]
    Unreadable {
        /// The file, variable or command.
        place: String,
        /// What went wrong.
        reason: String,
    },
}

impl EncryptionKey {
    /// A key of 32 random bytes; `None` if the id is 0, or that of a data key.
    #[must_use]
    pub fn new(id: u32, material: &[u8; 32]) -> Option<Self> {
        let is_taken = id == 0 || id >= FIRST_DATA_KEY;
        Self::derive(id, None, material).filter(|_| !is_taken)
    }

    /// The data key with this name (P48).
    #[must_use]
    pub fn for_data(name: DataKeyId, material: &[u8; 32]) -> Option<Self> {
        Self::derive(name.key_id(), Some(name), material)
    }

    fn derive(id: u32, data: Option<DataKeyId>, material: &[u8; 32]) -> Option<Self> {
        let encryption = Zeroizing::new(blake3::derive_key(ENCRYPTION, material));
        let cipher = Aes256GcmSiv::new_from_slice(&*encryption).ok()?;
        Some(Self {
            id,
            data,
            cipher,
            nonce: Zeroizing::new(blake3::derive_key(NONCE, material)),
            check: blake3::derive_key(CHECK, material),
        })
    }

    /// Parses the lines `ID:KEY` of a file, a variable or a command's output. Empty lines and lines
    /// that begin with `#` are skipped. `place` names the source in errors.
    ///
    /// # Errors
    /// [`EncryptionKeyError::Line`] or [`EncryptionKeyError::Empty`].
    pub fn parse_all(text: &str, place: &str) -> Result<Vec<Self>, EncryptionKeyError> {
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = parse(line).ok_or_else(|| EncryptionKeyError::Line {
                place: place.to_owned(),
                line: index + 1,
            })?;
            keys.push(key);
        }
        if keys.is_empty() {
            return Err(EncryptionKeyError::Empty(place.to_owned()));
        }
        Ok(keys)
    }

    /// The line of a key file for this key material.
    #[must_use]
    pub fn line(id: u32, material: &[u8; 32]) -> Zeroizing<String> {
        let mut line = Zeroizing::new(String::with_capacity(80));
        line.push_str(&format!("{id}:"));
        for byte in material {
            line.push(char::from(DIGITS[usize::from(byte >> 4)]));
            line.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        line
    }

    /// The id that encrypted fields carry.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// The name of a data key; `None` for a key of the process.
    #[must_use]
    pub const fn data_key(&self) -> Option<DataKeyId> {
        self.data
    }

    /// A digest of the key, for the canary. The key can't be derived from it.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let secret = Secret::new(1, &self.check).unwrap_or_else(|_| Secret::none());
        Fingerprint::builder(&secret)
            .part(b"encryption key")
            .finish()
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn parse(line: &str) -> Option<EncryptionKey> {
    let (id, digits) = line.split_once(':')?;
    let digits = digits.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let digit = |at: usize| char::from(digits[at]).to_digit(16);
    let mut material = Zeroizing::new([0; 32]);
    for (index, byte) in material.iter_mut().enumerate() {
        let value = digit(2 * index)? * 16 + digit(2 * index + 1)?;
        *byte = u8::try_from(value).ok()?;
    }
    EncryptionKey::new(id.parse().ok()?, &material)
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncryptionKey(#{})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back() {
        let line = EncryptionKey::line(7, &[0xa5; 32]);
        let text = format!("# a comment\n\n{}\n", *line);
        let keys = EncryptionKey::parse_all(&text, "a file").expect("a key");
        assert_eq!(keys.len(), 1);
        assert_eq!(keys[0].id(), 7);
        let same = EncryptionKey::new(7, &[0xa5; 32]).expect("a key");
        assert_eq!(keys[0].fingerprint(), same.fingerprint());
    }

    #[test]
    fn errors_and_debug_show_no_key() {
        let secret = "deadbeef".repeat(8);
        for line in [
            format!("0:{secret}"),
            secret.clone(),
            format!("1:{secret}0"),
            format!("1:{}", secret.replace('d', "x")),
            format!("2147483648:{secret}"),
        ] {
            let refused = EncryptionKey::parse_all(&line, "keys.txt").expect_err("no key");
            let said = format!("{refused} {refused:?}");
            assert!(!said.contains("beef"), "{said}");
            assert!(said.contains("keys.txt") && said.contains("line 1"));
        }
        let keys = EncryptionKey::parse_all(&format!("1:{secret}"), "").expect("a key");
        assert_eq!(format!("{keys:?}"), "[EncryptionKey(#1)]");
    }
}
