//! [`Key`]: the idempotency key, by which a caller marks requests as the same.

use std::borrow::Cow;
use std::fmt;

/// The longest key that any rules may allow, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// A caller's key, checked against [`KeyRules`]. Case-sensitive.
///
/// `Debug` shows the first characters only: a key may be a secret of the caller's.
///
/// ```
/// use semel_core::Key;
///
/// assert!(Key::parse("ord-123").is_ok());
/// assert!(Key::parse("pazar:proof:status_change:17").is_ok());
/// assert!(Key::parse("no spaces").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Box<str>);

impl Key {
    /// Checks `text` against the default rules: 1 to 255 of `A-Z a-z 0-9 _ - . :`.
    ///
    /// # Errors
    /// [`KeyError`] says which rule the text breaks.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        KeyRules::default().check(text)
    }

    /// The whole key. Not for logs, labels, spans or errors: use [`Key::hint`] there.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first characters of the key, for people to recognise it by.
    #[must_use]
    pub fn hint(&self) -> KeyHint {
        KeyHint::cut(&self.0, self.0.len() / 2)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.hint())
    }
}

/// The first characters of a key: at most eight bytes, and never more than half of the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct KeyHint {
    length: u8,
    bytes: [u8; Self::MAX_BYTES],
}

impl KeyHint {
    /// The longest hint, in bytes.
    pub const MAX_BYTES: usize = 8;

    /// A hint that was stored before. Cut if it is longer than a hint may be.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self::cut(text, Self::MAX_BYTES)
    }

    /// At most `most` bytes from the start of `text`, ending between characters.
    pub(crate) fn cut(text: &str, most: usize) -> Self {
        let most = most.min(Self::MAX_BYTES);
        let end = (0..=most)
            .rev()
            .find(|&i| text.is_char_boundary(i))
            .unwrap_or(0);
        let mut bytes = [0; Self::MAX_BYTES];
        bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
        Self {
            length: u8::try_from(end).unwrap_or(0),
            bytes,
        }
    }

    /// The characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or("")
    }
}

impl fmt::Debug for KeyHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", self.as_str())
    }
}

/// What a key may look like.
///
/// ```
/// use semel_core::KeyRules;
///
/// let rules = KeyRules::default().with_max_bytes(64).with_extra("/+=");
/// assert!(rules.check("a/b+c=").is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyRules {
    /// The longest key allowed, in bytes; at most [`MAX_KEY_BYTES`].
    pub max_bytes: usize,
    /// Characters allowed besides `A-Z a-z 0-9 _ - .`.
    pub extra: Cow<'static, str>,
}

impl Default for KeyRules {
    fn default() -> Self {
        Self {
            max_bytes: 255,
            extra: ":".into(),
        }
    }
}

impl KeyRules {
    /// Checks `text` and makes it a [`Key`].
    ///
    /// # Errors
    /// [`KeyError`] says which rule the text breaks.
    pub fn check(&self, text: &str) -> Result<Key, KeyError> {
        let most = self.max_bytes.min(MAX_KEY_BYTES);
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if text.len() > most {
            return Err(KeyError::TooLong {
                most,
                was: text.len(),
            });
        }
        // Most keys have none of the further characters: their bytes need no decoding.
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if text.bytes().all(usual) {
            return Ok(Key(text.into()));
        }
        let allowed = |c: char| u8::try_from(c).is_ok_and(usual) || self.extra.contains(c);
        match text.char_indices().find(|&(_, c)| !allowed(c)) {
            Some((at, _)) => Err(KeyError::Character {
                at,
                extra: self.extra.clone(),
            }),
            None => Ok(Key(text.into())),
        }
    }

    /// Sets [`max_bytes`](Self::max_bytes).
    #[must_use]
    pub const fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Sets [`extra`](Self::extra).
    #[must_use]
    pub fn with_extra(mut self, extra: impl Into<Cow<'static, str>>) -> Self {
        self.extra = extra.into();
        self
    }
}

/// Why a text is not a key. Never repeats the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text has no characters.
    #[error("the key is empty; send 1 or more characters, for example a UUID")]
    Empty,
    /// The text is longer than the rules allow.
    #[error("the key has {was} bytes; at most {most} are allowed")]
    TooLong {
        /// The most bytes allowed.
        most: usize,
        /// The number of bytes given.
        was: usize,
    },
    /// The text has a character that the rules don't allow.
    #[error(
        "the key has a character that is not allowed, at byte {at}; use A-Z a-z 0-9 _ - . {extra}"
    )]
    Character {
        /// Byte offset of the first such character.
        at: usize,
        /// Which characters are allowed besides letters, digits and `_ - .`.
        extra: Cow<'static, str>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_shown_whole() {
        let key = Key::parse("sk_live_4242424242").unwrap();
        assert_eq!(format!("{key:?}"), "Key(sk_live_…)");
        assert_eq!(Key::parse("abc").unwrap().hint().as_str(), "a");
        assert_eq!(Key::parse("a").unwrap().hint().as_str(), "");
    }

    #[test]
    fn a_hint_never_cuts_a_character() {
        let rules = KeyRules {
            extra: "äöü".into(),
            ..KeyRules::default()
        };
        assert_eq!(rules.check("aäöü").unwrap().hint().as_str(), "aä");
    }

    #[test]
    fn rules_cannot_lift_the_hard_limit() {
        let rules = KeyRules {
            max_bytes: usize::MAX,
            extra: "".into(),
        };
        let error = rules.check(&"k".repeat(MAX_KEY_BYTES + 1)).unwrap_err();
        assert_eq!(
            error,
            KeyError::TooLong {
                most: MAX_KEY_BYTES,
                was: MAX_KEY_BYTES + 1
            }
        );
    }
}
