//! [`KeyForm`]: the forms of keys that routes may ask for, and the time that such keys carry.

use crate::{Key, Timestamp};

/// The form that a key must have, besides the rules for its characters.
///
/// ```
/// use semel_core::{Key, KeyForm};
///
/// let key = Key::parse("017F22E2-79B0-7CC3-98C4-DC0C0C07398F").unwrap();
/// assert!(KeyForm::UuidV7.fits(&key) && KeyForm::Uuid.fits(&key));
/// assert!(!KeyForm::Ulid.fits(&key));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyForm {
    /// Any key.
    #[default]
    Any,
    /// A UUID of any version (RFC 9562), in its text form of 36 characters.
    Uuid,
    /// A UUID of version 7 (RFC 9562), which carries the time of its creation.
    UuidV7,
    /// A ULID of 26 characters, which carries the time of its creation.
    Ulid,
}

impl KeyForm {
    /// Whether the key has this form.
    #[must_use]
    pub fn fits(self, key: &Key) -> bool {
        match self {
            Self::Any => true,
            Self::Uuid => uuid(key.as_str()).is_some(),
            Self::UuidV7 => uuid_v7_millis(key.as_str()).is_some(),
            Self::Ulid => ulid_millis(key.as_str()).is_some(),
        }
    }

    /// The name in configuration and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Uuid => "uuid",
            Self::UuidV7 => "uuidv7",
            Self::Ulid => "ulid",
        }
    }
}

impl Key {
    /// When the key was made, by its maker's clock, if it is a UUIDv7 or a ULID (P52).
    #[must_use]
    pub fn created_at(&self) -> Option<Timestamp> {
        let millis = uuid_v7_millis(self.as_str()).or_else(|| ulid_millis(self.as_str()))?;
        Some(Timestamp::from_micros(millis.checked_mul(1000)?))
    }
}

/// The 32 digits of a UUID.
fn uuid(text: &str) -> Option<u128> {
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    if text.len() != 36 {
        return None;
    }
    let mut number = 0;
    for (at, byte) in text.bytes().enumerate() {
        match (is_dash(at), byte) {
            (true, b'-') => {}
            (true, _) => return None,
            (false, _) => {
                number = number << 4 | u128::from(char::from(byte).to_digit(16)?);
            }
        }
    }
    Some(number)
}

/// The first 48 bits of a UUIDv7 are milliseconds since 1970 (RFC 9562, section 5.7).
fn uuid_v7_millis(text: &str) -> Option<u64> {
    let number = uuid(text)?;
    let (version, variant) = (number >> 76 & 0xf, number >> 62 & 0b11);
    if version != 7 || variant != 0b10 {
        return None;
    }
    u64::try_from(number >> 80).ok()
}

/// The first ten of 26 characters are milliseconds since 1970, in Crockford's base 32.
fn ulid_millis(text: &str) -> Option<u64> {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    if text.len() != 26 {
        return None;
    }
    let digit = |byte: u8| {
        let byte = byte.to_ascii_uppercase();
        DIGITS.iter().position(|known| *known == byte)
    };
    let mut millis: u64 = 0;
    for (at, byte) in text.bytes().enumerate() {
        let value = u64::try_from(digit(byte)?).ok()?;
        // 26 characters have 130 bits, a ULID has 128.
        if at == 0 && value > 7 {
            return None;
        }
        if at < 10 {
            millis = millis << 5 | value;
        }
    }
    Some(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::parse(text).unwrap()
    }

    #[test]
    fn uuid_v7_and_ulid_carry_their_time() {
        // The example of RFC 9562, appendix A.6, and the example of the ULID specification.
        for (text, millis) in [
            ("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", 1_645_557_742_000),
            ("017f22e2-79b0-7cc3-98c4-dc0c0c07398f", 1_645_557_742_000),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV", 1_469_922_850_259),
            ("01arz3ndektsv4rrffq69g5fav", 1_469_922_850_259),
        ] {
            let at = key(text).created_at().unwrap();
            assert_eq!(at.as_micros(), millis * 1000, "{text}");
        }
    }

    #[test]
    fn other_keys_carry_no_time() {
        for text in [
            "k-1",
            "0199b4a2-79b0-4cc3-98c4-dc0c0c07398f",
            "017F22E2-79B0-7CC3-C8C4-DC0C0C07398F",
            "017F22E279B07CC398C4DC0C0C07398F",
            "017F22E2-79B0-7CC3-98C4-DC0C0C07398G",
            "017F22E2:79B0-7CC3-98C4-DC0C0C07398F",
            "81ARZ3NDEKTSV4RRFFQ69G5FAV",
            "01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "01ARZ3NDEKTSV4RRFFQ69G5FA",
        ] {
            assert_eq!(key(text).created_at(), None, "{text}");
        }
    }

    #[test]
    fn forms_tell_keys_apart() {
        use KeyForm::{Any, Ulid, Uuid, UuidV7};
        for (text, fitting) in [
            ("k-1", &[Any][..]),
            ("0199b4a2-79b0-4cc3-98c4-dc0c0c07398f", &[Any, Uuid]),
            ("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", &[Any, Uuid, UuidV7]),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV", &[Any, Ulid]),
        ] {
            for form in [Any, Uuid, UuidV7, Ulid] {
                let fits = form.fits(&key(text));
                assert_eq!(fits, fitting.contains(&form), "{text} {}", form.name());
            }
        }
    }
}
