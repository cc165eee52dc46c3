//! [`DataSubject`]: whose data a run leaves, so that it can be erased.

use std::fmt;

/// A person, a customer or whoever else data is about, as the caller names them. Never the name
/// itself: a digest of it, which stores and logs see keyed only (P48).
///
/// ```
/// use semel_core::DataSubject;
///
/// let subject = DataSubject::new("customer-17")?;
/// assert_eq!(format!("{subject:?}"), "DataSubject(…)");
/// assert!(DataSubject::new("").is_err());
/// # Ok::<(), semel_core::DataSubjectError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DataSubject([u8; 32]);

const CONTEXT: &str = "semel v2 data subject";

impl DataSubject {
    /// The longest name, in characters.
    pub const MAX_CHARS: usize = 256;

    /// The subject with this name.
    ///
    /// # Errors
    /// [`DataSubjectError`] if the name is empty, too long or has control characters.
    pub fn new(name: &str) -> Result<Self, DataSubjectError> {
        match name.chars().count() {
            0 => return Err(DataSubjectError::Empty),
            1..=Self::MAX_CHARS => {}
            was => return Err(DataSubjectError::Long { was }),
        }
        if name.chars().any(char::is_control) {
            return Err(DataSubjectError::Control);
        }
        Ok(Self(blake3::derive_key(CONTEXT, name.as_bytes())))
    }

    /// The digest of the name. It is not keyed: it must not be stored or shown.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The subject with this digest.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Shows nothing of it.
impl fmt::Debug for DataSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataSubject(…)")
    }
}

/// Why the name of a subject was refused. Never contains the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DataSubjectError {
    /// There is no name.
    #[error("the subject is empty; name the person or customer, or leave the subject out")]
    Empty,
    /// The name is too long.
    #[error("the subject has {was} characters; at most {max} are allowed", max = DataSubject::MAX_CHARS)]
    Long {
        /// The characters there were.
        was: usize,
    },
    /// The name has control characters.
    #[error("the subject has a control character; use printable text")]
    Control,
}
