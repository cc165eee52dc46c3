//! [`Secret`]: keys the digests, so that a reader of the store can't guess keys and payloads.

use std::fmt;

/// Key material shared by all nodes of an installation, with the id that records carry.
///
/// Without one, digests are still collision-resistant, but somebody who can read the store could
/// test guesses of a short key or payload against them. `Debug` shows the id only.
///
/// ```
/// use semel_core::Secret;
///
/// let secret = Secret::new(1, b"thirty-two bytes from a generator")?;
/// assert_eq!(format!("{secret:?}"), "Secret(#1)");
/// assert!(Secret::new(2, b"short").is_err());
/// # Ok::<(), semel_core::SecretError>(())
/// ```
#[derive(Clone)]
pub struct Secret {
    id: u16,
    identity: [u8; 32],
    fingerprint: [u8; 32],
    downstream: [u8; 32],
}

/// The fewest bytes of key material taken.
pub const MIN_SECRET_BYTES: usize = 16;

// One context per use, so that a digest made for one can never be passed off as another.
const IDENTITY: &str = "semel v1 identity";
const FINGERPRINT: &str = "semel v1 fingerprint";
const DOWNSTREAM: &str = "semel v1 downstream key";

impl Secret {
    /// A secret with its id (1 to 65,535), which records carry.
    ///
    /// # Errors
    /// [`SecretError`] if the material is shorter than [`MIN_SECRET_BYTES`] or the id is 0.
    pub fn new(id: u16, material: &[u8]) -> Result<Self, SecretError> {
        if id == 0 {
            return Err(SecretError::Id);
        }
        if material.len() < MIN_SECRET_BYTES {
            return Err(SecretError::Short {
                was: material.len(),
            });
        }
        Ok(Self::derive(id, material))
    }

    /// No secret: digests that anybody can compute. Its id is 0.
    #[must_use]
    pub fn none() -> Self {
        Self::derive(0, b"")
    }

    fn derive(id: u16, material: &[u8]) -> Self {
        Self {
            id,
            identity: blake3::derive_key(IDENTITY, material),
            fingerprint: blake3::derive_key(FINGERPRINT, material),
            downstream: blake3::derive_key(DOWNSTREAM, material),
        }
    }

    /// The id that records made with this secret carry.
    #[must_use]
    pub const fn id(&self) -> u16 {
        self.id
    }

    pub(crate) const fn identity_key(&self) -> &[u8; 32] {
        &self.identity
    }

    pub(crate) const fn fingerprint_key(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    pub(crate) const fn downstream_key(&self) -> &[u8; 32] {
        &self.downstream
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret(#{})", self.id)
    }
}

/// Why a secret was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// Id 0 stands for "no secret".
    #[error("secret id 0 is taken for \"no secret\"; number secrets from 1")]
    Id,
    /// Too little material.
    #[error("the secret has {was} bytes; give at least {MIN_SECRET_BYTES}, best 32 random ones")]
    Short {
        /// The bytes there were.
        was: usize,
    },
}
