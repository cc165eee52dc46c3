//! [`Keyring`]: the keys of a process. It writes with one, and reads with all.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use semel_core::record::{MAX_KEYS, ReadableKeys};

use super::key::{EncryptionKey, EncryptionKeyError};

/// The key that new answers and checkpoints are encrypted with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteKey {
    /// The one with the highest id.
    #[default]
    Newest,
    /// The one with this id: for the first step of a rotation, until every node has the new key.
    Id(u32),
    /// None: new records are in plain text. For the first step of switching encryption on, until
    /// every node has a key.
    Nothing,
}

/// All keys of a process, and the one to write with.
pub struct Keyring {
    keys: Vec<EncryptionKey>,
    writes: Option<usize>,
}

impl Keyring {
    /// A ring of these keys.
    ///
    /// # Errors
    /// [`EncryptionKeyError`] if two keys have one id, there are more than [`MAX_KEYS`], or the key
    /// to write with is missing.
    pub fn new(mut keys: Vec<EncryptionKey>, write: WriteKey) -> Result<Self, EncryptionKeyError> {
        keys.sort_by_key(|key| std::cmp::Reverse(key.id()));
        if let Some(pair) = keys.windows(2).find(|pair| pair[0].id() == pair[1].id()) {
            return Err(EncryptionKeyError::Twice(pair[0].id()));
        }
        if keys.len() > MAX_KEYS {
            return Err(EncryptionKeyError::Many(keys.len()));
        }
        let writes = match write {
            WriteKey::Newest if keys.is_empty() => None,
            WriteKey::Newest => Some(0),
            WriteKey::Nothing => None,
            WriteKey::Id(id) => {
                let found = keys.iter().position(|key| key.id() == id);
                Some(found.ok_or(EncryptionKeyError::NoWriteKey(id))?)
            }
        };
        Ok(Self { keys, writes })
    }

    /// No keys: encrypted records are refused by name, and new ones are in plain text.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            keys: Vec::new(),
            writes: None,
        }
    }

    /// The keys, newest first.
    #[must_use]
    pub fn keys(&self) -> &[EncryptionKey] {
        &self.keys
    }

    /// The key to write with; `None` if new records are in plain text.
    #[must_use]
    pub fn write_key(&self) -> Option<&EncryptionKey> {
        self.writes.and_then(|index| self.keys.get(index))
    }

    pub(super) fn get(&self, id: u32) -> Option<&EncryptionKey> {
        self.keys.iter().find(|key| key.id() == id)
    }

    pub(super) fn readable(&self, refuses_plain: bool) -> ReadableKeys {
        ReadableKeys::new(self.keys.iter().map(EncryptionKey::id), refuses_plain)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = self.write_key().map(EncryptionKey::id);
        write!(f, "Keyring({:?}, writes with {write:?})", self.keys)
    }
}

/// A [`Keyring`] that can be replaced while the process serves. Cheap to clone; clones share the
/// keys.
#[derive(Clone)]
pub struct SharedKeyring(Arc<RwLock<Arc<Keyring>>>);

impl SharedKeyring {
    /// Starts with these keys.
    #[must_use]
    pub fn new(keys: Keyring) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(keys))))
    }

    /// The keys of this moment.
    #[must_use]
    pub fn current(&self) -> Arc<Keyring> {
        Arc::clone(&self.0.read())
    }

    /// Uses other keys from now on. Check them first with [`canary::check`](super::canary::check).
    pub fn replace(&self, keys: Keyring) {
        *self.0.write() = Arc::new(keys);
    }
}

impl fmt::Debug for SharedKeyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.current().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u32) -> EncryptionKey {
        EncryptionKey::new(id, &[9; 32]).expect("a key")
    }

    #[test]
    fn the_newest_key_writes_unless_another_is_named() {
        let ids = |write| {
            let ring = Keyring::new(vec![key(1), key(3), key(2)], write).expect("a ring");
            ring.write_key().map(EncryptionKey::id)
        };
        assert_eq!(ids(WriteKey::Newest), Some(3));
        assert_eq!(ids(WriteKey::Id(2)), Some(2));
        assert_eq!(ids(WriteKey::Nothing), None);
    }

    #[test]
    fn unusable_rings_are_refused() {
        let refused = |keys: Vec<u32>, write| {
            Keyring::new(keys.into_iter().map(key).collect(), write).expect_err("unusable")
        };
        assert_eq!(
            refused(vec![1, 1], WriteKey::Newest),
            EncryptionKeyError::Twice(1)
        );
        assert_eq!(
            refused((1..=9).collect(), WriteKey::Newest),
            EncryptionKeyError::Many(9)
        );
        assert_eq!(
            refused(vec![1], WriteKey::Id(2)),
            EncryptionKeyError::NoWriteKey(2)
        );
    }
}
