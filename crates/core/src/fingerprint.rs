//! [`Fingerprint`]: a keyed digest of the payload, to tell a retry from a reused key.

use std::fmt;

use crate::canonical::{self, CanonicalError};
use crate::secret::Secret;

/// The version of the fingerprint form made here: what is hashed, and how.
const VERSION: u8 = 1;

/// A digest of what the caller asked for (P3).
///
/// A version byte, then 128 bits of keyed BLAKE3 over length-prefixed parts. Fingerprints of
/// different versions never compare equal, so a change of form is a mismatch, never a wrong replay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; Self::BYTES]);

impl Fingerprint {
    /// Length in a record.
    pub const BYTES: usize = 17;

    /// Starts a fingerprint.
    pub fn builder(secret: &Secret) -> FingerprintBuilder {
        FingerprintBuilder {
            key: *secret.fingerprint_key(),
            joined: Vec::with_capacity(512),
        }
    }

    /// The fingerprint with these bytes, as found in a record.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Version byte and digest.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

/// Shows the first four bytes of the digest.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [version, a, b, c, d, ..] = self.0;
        write!(f, "v{version}:{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

/// Takes the parts of a payload, in order.
///
/// ```
/// use semel_core::{Fingerprint, Secret};
///
/// let secret = Secret::none();
/// let of = |json: &str| {
///     let builder = Fingerprint::builder(&secret).part(b"POST").json(json.as_bytes());
///     Ok::<_, semel_core::CanonicalError>(builder?.finish())
/// };
/// assert_eq!(of(r#"{"a":1,"b":2}"#)?, of(r#"{ "b": 2.0, "a": 1 }"#)?);
/// assert_ne!(of(r#"{"a":1,"b":2}"#)?, of(r#"{"a":1,"b":3}"#)?);
/// # Ok::<(), semel_core::CanonicalError>(())
/// ```
#[must_use = "a fingerprint is made by `finish`"]
pub struct FingerprintBuilder {
    key: [u8; 32],
    // The parts joined, to be hashed in one go: most payloads are small, and a streaming hasher is
    // 2 KB to move about.
    joined: Vec<u8>,
}

// What kind of part follows, so that the text of a JSON part never equals the same bytes as a raw
// one.
const RAW: u8 = 0;
const JSON: u8 = 1;

impl FingerprintBuilder {
    /// Adds bytes as they are.
    pub fn part(self, bytes: &[u8]) -> Self {
        self.push(RAW, bytes)
    }

    /// Adds a JSON text in canonical form (RFC 8785): member order and white space don't count.
    ///
    /// # Errors
    /// [`CanonicalError`] if the text isn't JSON, repeats a member name, has a number past
    /// 2^53−1, or nests too deep.
    pub fn json(mut self, text: &[u8]) -> Result<Self, CanonicalError> {
        // Written in place: its length is known afterwards.
        self.joined.push(JSON);
        let at = self.joined.len();
        self.joined.extend_from_slice(&[0; 8]);
        canonical::append(&mut self.joined, text)?;
        let length = (self.joined.len() - at - 8) as u64;
        self.joined[at..at + 8].copy_from_slice(&length.to_le_bytes());
        Ok(self)
    }

    fn push(mut self, kind: u8, bytes: &[u8]) -> Self {
        self.joined.push(kind);
        self.joined
            .extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.joined.extend_from_slice(bytes);
        self
    }

    /// The fingerprint of the parts given so far.
    #[must_use]
    pub fn finish(self) -> Fingerprint {
        let digest = blake3::keyed_hash(&self.key, &self.joined);
        let mut bytes = [VERSION; Fingerprint::BYTES];
        bytes[1..].copy_from_slice(&digest.as_bytes()[..16]);
        Fingerprint(bytes)
    }
}
