//! [`Identity`]: the digest of namespace and key under which a record is stored.

use std::fmt;

use crate::key::Key;
use crate::namespace::Namespace;
use crate::secret::Secret;

/// 256 bits that stand for one key in one namespace (P2).
///
/// Made over length-prefixed parts, so that no two different lists of parts give the same bytes.
/// The first half is the [address](Identity::address) under which a store keeps the record; the
/// second half, the [seal](Identity::seal), is written *inside* the record. It reveals a store that
/// returns another key's record (P24).
///
/// ```
/// use semel_core::{Identity, Key, Namespace, Secret};
///
/// let secret = Secret::none();
/// let a = Namespace::new("", "acme", "charge")?;
/// let b = Namespace::new("", "acm", "echarge")?;
/// let key = Key::parse("ord-1")?;
/// assert_ne!(Identity::new(&secret, &a, &key), Identity::new(&secret, &b, &key));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity([u8; 32]);

/// The half of an [`Identity`] that a store files the record under.
pub type Address = [u8; 16];

/// The half of an [`Identity`] that is sealed inside the record.
pub type Seal = [u8; 16];

impl Identity {
    /// The identity of `key` in `namespace`.
    #[must_use]
    pub fn new(secret: &Secret, namespace: &Namespace, key: &Key) -> Self {
        let parts = [
            namespace.environment(),
            namespace.tenant(),
            namespace.scope(),
            key.as_str(),
        ];
        let mut joined = Vec::with_capacity(160);
        for part in parts {
            push_part(&mut joined, part.as_bytes());
        }
        // A fifth part only if there is a principal, so that identities without one never change.
        if !namespace.principal().is_empty() {
            push_part(&mut joined, namespace.principal().as_bytes());
        }
        Self(*blake3::keyed_hash(secret.identity_key(), &joined).as_bytes())
    }

    /// The identity with these bytes, as read back from a listing.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Joins an address and the seal found under it.
    #[must_use]
    pub fn from_halves(address: &Address, seal: &Seal) -> Self {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(address);
        bytes[16..].copy_from_slice(seal);
        Self(bytes)
    }

    /// All 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The half that a store files the record under.
    #[must_use]
    pub fn address(&self) -> Address {
        let (address, _) = self.0.split_first_chunk().unwrap_or((&[0; 16], &[]));
        *address
    }

    /// The half that is sealed inside the record.
    #[must_use]
    pub fn seal(&self) -> Seal {
        let (_, seal) = self.0.split_last_chunk().unwrap_or((&[], &[0; 16]));
        *seal
    }

    /// An idempotency key for a downstream system: the same for this identity and `step` on every
    /// attempt, and different for everything else (P42).
    #[must_use]
    pub fn derive_key(&self, secret: &Secret, step: &str) -> String {
        let mut joined = Vec::with_capacity(64);
        push_part(&mut joined, &self.0);
        push_part(&mut joined, step.as_bytes());
        let digest = blake3::keyed_hash(secret.downstream_key(), &joined);
        format!("semel-{}", &digest.to_hex()[..32])
    }
}

/// An address as one number, which tables hash at less cost than its bytes. They look up several
/// times for each request.
pub(crate) const fn address_bits(address: &Address) -> u128 {
    u128::from_le_bytes(*address)
}

/// Appends the length of `part` as four little-endian bytes, then `part`.
fn push_part(joined: &mut Vec<u8>, part: &[u8]) {
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    joined.extend_from_slice(&length.to_le_bytes());
    joined.extend_from_slice(part);
}

/// Shows the first four bytes: enough to follow one key through a log, not enough to guess it by.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "#{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}
