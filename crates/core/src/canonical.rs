//! Canonical JSON (RFC 8785), strict: two texts with one meaning become the same bytes, and what
//! could be read in two ways is refused.
//!
//! A plain text is scanned by `plain_json`. For all others, serde_json parses, and this module
//! sorts and writes. Refused beyond what isn't JSON: a member name given twice, a number that a
//! double can't hold exactly or whose size is past 2^53−1 (a reader may round it, so two different
//! payloads could look alike), and more than [`MAX_DEPTH`] levels.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};

use crate::{decimal, plain_json};

/// The deepest nesting taken.
pub const MAX_DEPTH: usize = 64;

/// The largest number that every JSON reader keeps exactly.
const MAX_EXACT: u64 = (1 << 53) - 1;

/// The member name under which serde_json gives a number by its digits if any crate of the build
/// enables its `arbitrary_precision` feature. Fingerprints must not depend on that (P3).
const DIGITS: &str = "$serde_json::private::Number";

/// Why a text has no canonical form. Says where; never repeats the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the payload can't be fingerprinted as JSON: {} (line {line}, column {column})", .kind.reason())]
#[non_exhaustive]
pub struct CanonicalError {
    /// What is wrong.
    pub kind: CanonicalErrorKind,
    /// Where, from 1.
    pub line: usize,
    /// Where, from 1.
    pub column: usize,
}

/// What is wrong with a text that has no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CanonicalErrorKind {
    /// A member name is given twice.
    Duplicate,
    /// A number's size is past 2^53−1, or it has digits that a double can't hold.
    Number,
    /// It nests deeper than [`MAX_DEPTH`].
    Depth,
    /// It isn't JSON.
    Syntax,
}

impl CanonicalErrorKind {
    const fn reason(self) -> &'static str {
        match self {
            Self::Duplicate => "a member name is given twice",
            Self::Number => "a number is past 2^53-1 or has too many digits; send it as a string",
            Self::Depth => "it nests deeper than 64 levels",
            Self::Syntax => "it isn't valid JSON",
        }
    }
}

const DUPLICATE: &str = CanonicalErrorKind::Duplicate.reason();
const NUMBER: &str = CanonicalErrorKind::Number.reason();
const DEPTH: &str = CanonicalErrorKind::Depth.reason();
const SYNTAX: &str = CanonicalErrorKind::Syntax.reason();

/// The canonical form of a JSON text.
///
/// ```
/// let canonical = semel_core::canonicalize(br#"{ "b": 1.0, "a": "\u0041" }"#)?;
/// assert_eq!(canonical, br#"{"a":"A","b":1}"#);
/// # Ok::<(), semel_core::CanonicalError>(())
/// ```
///
/// # Errors
/// [`CanonicalError`], see the module's first lines.
pub fn canonicalize(text: &[u8]) -> Result<Vec<u8>, CanonicalError> {
    let mut out = Vec::with_capacity(text.len());
    append(&mut out, text)?;
    Ok(out)
}

/// Appends the canonical form of a JSON text to `out`. After an error, discard what was appended.
pub(crate) fn append(out: &mut Vec<u8>, text: &[u8]) -> Result<(), CanonicalError> {
    match plain_json::append(out, text) {
        Some(()) => Ok(()),
        None => parse(out, text),
    }
}

/// [`append`] for any text, plain or not.
pub(crate) fn parse(out: &mut Vec<u8>, text: &[u8]) -> Result<(), CanonicalError> {
    // Checked as a whole, which is quicker than string by string. Invalid UTF-8 fails below, with
    // its position.
    match std::str::from_utf8(text) {
        Ok(text) => write(out, serde_json::Deserializer::from_str(text)),
        Err(_) => write(out, serde_json::Deserializer::from_slice(text)),
    }?;
    match decimal::find_inexact(text) {
        None => Ok(()),
        Some(at) => Err(CanonicalError::at(text, at)),
    }
}

impl CanonicalError {
    /// The error for a number at this offset of the text.
    fn at(text: &[u8], at: usize) -> Self {
        let before = &text[..at];
        let start = before.iter().rposition(|byte| *byte == b'\n');
        Self {
            kind: CanonicalErrorKind::Number,
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            column: at - start.map_or(0, |start| start + 1) + 1,
        }
    }
}

fn write<'de, R: serde_json::de::Read<'de>>(
    out: &mut Vec<u8>,
    mut reader: serde_json::Deserializer<R>,
) -> Result<(), CanonicalError> {
    let written = Writer::new(out, 0).deserialize(&mut reader);
    written
        .and_then(|()| reader.end())
        .map_err(|error| CanonicalError {
            kind: kind(&error),
            line: error.line(),
            column: error.column(),
        })
}

// serde carries our reasons as text; matching on them keeps the payload out of the error.
fn kind(error: &serde_json::Error) -> CanonicalErrorKind {
    use CanonicalErrorKind::{Depth, Duplicate, Number, Syntax};
    let text = error.to_string();
    let ours = [Duplicate, Number, Depth]
        .into_iter()
        .find(|kind| text.starts_with(kind.reason()));
    match ours {
        Some(known) => known,
        None if text.starts_with("number out of range") => Number,
        None if text.starts_with("recursion limit") => Depth,
        None => Syntax,
    }
}

/// Writes one value, as serde_json visits it.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    depth: usize,
    /// Set to true if the value is a number's digits: its name is [`DIGITS`], and it comes first.
    digits: Option<&'a mut bool>,
}

impl<'a> Writer<'a> {
    const fn new(out: &'a mut Vec<u8>, depth: usize) -> Self {
        Self {
            out,
            depth,
            digits: None,
        }
    }

    fn deeper<E: de::Error>(&self) -> Result<usize, E> {
        if self.depth >= MAX_DEPTH {
            Err(E::custom(DEPTH))
        } else {
            Ok(self.depth + 1)
        }
    }
}

impl<'de> DeserializeSeed<'de> for Writer<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

fn write_string<E: de::Error>(out: &mut Vec<u8>, text: &str) -> Result<(), E> {
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return Ok(());
    }
    // serde_json escapes exactly what RFC 8785 says: the two-letter escapes, \u00xx in lower case.
    serde_json::to_writer(out, text).map_err(|_| E::custom(SYNTAX))
}

impl<'de> Visitor<'de> for Writer<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.out
            .extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        if value > MAX_EXACT {
            return Err(E::custom(NUMBER));
        }
        serde_json::to_writer(self.out, &value).map_err(|_| E::custom(SYNTAX))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        if value.unsigned_abs() > MAX_EXACT {
            return Err(E::custom(NUMBER));
        }
        serde_json::to_writer(self.out, &value).map_err(|_| E::custom(SYNTAX))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        #[expect(clippy::cast_precision_loss, reason = "2^53-1 is exact as a double")]
        if value.abs() > MAX_EXACT as f64 {
            return Err(E::custom(NUMBER));
        }
        self.out
            .extend_from_slice(ryu_js::Buffer::new().format_finite(value).as_bytes());
        Ok(())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        write_string(self.out, text)
    }

    // Strings of the text are lent, never given: this one is serde_json's own. By that a caller's
    // object whose member has the name of [`DIGITS`] stays an object.
    fn visit_string<E: de::Error>(mut self, text: String) -> Result<(), E> {
        let Some(is_number) = self.digits.take() else {
            return write_string(self.out, &text);
        };
        *is_number = true;
        let value = text.parse().ok().filter(|value: &f64| value.is_finite());
        self.visit_f64(value.ok_or_else(|| E::custom(NUMBER))?)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let depth = self.deeper()?;
        self.out.push(b'[');
        let mut first = true;
        loop {
            let before = self.out.len();
            if !first {
                self.out.push(b',');
            }
            if items
                .next_element_seed(Writer::new(self.out, depth))?
                .is_none()
            {
                self.out.truncate(before);
                break;
            }
            first = false;
        }
        self.out.push(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut next = members.next_key();
        let mut may_be_number = matches!(&next, Ok(Some(Name(name))) if name == DIGITS);
        // A number is no level. All else is refused here, before the rest is read.
        if !may_be_number {
            self.deeper::<A::Error>()?;
        }
        self.out.push(b'{');
        let start = self.out.len();
        let mut found: Vec<Member<'de>> = Vec::with_capacity(8);
        while let Some(Name(name)) = next? {
            if !found.is_empty() {
                self.out.push(b',');
            }
            let from = self.out.len() - start;
            write_string(self.out, &name)?;
            self.out.push(b':');
            let (value, mut is_number) = (self.out.len(), false);
            members.next_value_seed(Writer {
                digits: may_be_number.then_some(&mut is_number),
                ..Writer::new(self.out, self.depth + 1)
            })?;
            if is_number {
                self.out.drain(start - 1..value);
                return Ok(());
            }
            if may_be_number {
                self.deeper::<A::Error>()?;
                may_be_number = false;
            }
            let to = self.out.len() - start;
            found.push(Member { name, from, to });
            next = members.next_key();
        }
        // Most writers send their members in one order, often this one: then nothing has to move.
        if !found.is_sorted_by(|a, b| order(a, b).is_lt()) {
            sort::<A::Error>(self.out, start, &mut found)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// RFC 8785 sorts by UTF-16 code units, which differs from UTF-8 order past U+FFFF.
fn order(a: &Member<'_>, b: &Member<'_>) -> Ordering {
    if a.name.is_ascii() && b.name.is_ascii() {
        return a.name.cmp(&b.name);
    }
    a.name.encode_utf16().cmp(b.name.encode_utf16())
}

/// Puts the members that stand after `start` in order.
fn sort<E: de::Error>(out: &mut Vec<u8>, start: usize, found: &mut [Member<'_>]) -> Result<(), E> {
    found.sort_by(order);
    if found.windows(2).any(|pair| pair[0].name == pair[1].name) {
        return Err(E::custom(DUPLICATE));
    }
    let unsorted = out.split_off(start);
    for (i, member) in found.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&unsorted[member.from..member.to]);
    }
    Ok(())
}

/// A member's name, borrowed from the text if it has no escapes.
struct Name<'de>(Cow<'de, str>);

impl<'de> de::Deserialize<'de> for Name<'de> {
    fn deserialize<D: de::Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_borrowed_str<E: de::Error>(self, name: &'de str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }
}

/// A member of an object: its name, and where `"name":value` stands in the text as it came.
struct Member<'de> {
    name: Cow<'de, str>,
    from: usize,
    to: usize,
}

#[cfg(test)]
mod tests {
    use serde::de::value::{MapDeserializer, SeqDeserializer};

    use super::*;

    /// A number as serde_json gives it if a crate of the build enables `arbitrary_precision`.
    struct Digits(&'static str);

    impl<'de> de::IntoDeserializer<'de, serde_json::Error> for Digits {
        type Deserializer =
            MapDeserializer<'de, std::iter::Once<(&'static str, String)>, serde_json::Error>;

        fn into_deserializer(self) -> Self::Deserializer {
            MapDeserializer::new(std::iter::once((DIGITS, self.0.to_owned())))
        }
    }

    fn written(digits: &'static str, depth: usize) -> Result<String, CanonicalErrorKind> {
        let mut out = Vec::new();
        let numbers = [Digits(digits), Digits(digits)].into_iter();
        Writer::new(&mut out, depth)
            .deserialize(SeqDeserializer::<_, serde_json::Error>::new(numbers))
            .map_err(|error| kind(&error))?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn p03_numbers_by_their_digits_are_the_same_numbers() {
        for text in ["1.5", "-0", "1.0", "1e2", "1e-7", "0.1", "-2.50E+1", "4.35"] {
            let pair = canonicalize(format!("[{text},{text}]").as_bytes()).unwrap();
            assert_eq!(written(text, 0).unwrap().as_bytes(), pair, "{text}");
        }
        for text in ["18446744073709551616", "-99999999999999999999", "1e400"] {
            let refused = canonicalize(text.as_bytes()).unwrap_err().kind;
            assert_eq!(written(text, 0), Err(refused), "{text}");
            assert_eq!(refused, CanonicalErrorKind::Number, "{text}");
        }
    }

    #[test]
    fn p03_numbers_by_their_digits_are_no_level() {
        assert_eq!(written("1.5", MAX_DEPTH - 1).unwrap(), "[1.5,1.5]");
        assert_eq!(written("1.5", MAX_DEPTH), Err(CanonicalErrorKind::Depth));
    }

    #[test]
    fn a_callers_object_with_serde_jsons_own_name_stays_an_object() {
        for text in [
            r#"{"$serde_json::private::Number":"1.5"}"#,
            r#"{"$serde_json::private::Number":2,"a":1}"#,
            r#"{"$serde_json::private::Number":{"$serde_json::private::Number":"1"}}"#,
            r#"{"$serde_json::private::Number":"\u0001"}"#,
        ] {
            assert_eq!(canonicalize(text.as_bytes()).unwrap(), text.as_bytes());
        }
        let deep = |levels| {
            let open = r#"{"$serde_json::private::Number":"#.repeat(levels);
            format!("{open}1{}", "}".repeat(levels))
        };
        assert!(canonicalize(deep(MAX_DEPTH).as_bytes()).is_ok());
        for levels in [MAX_DEPTH + 1, 1_000, 100_000] {
            let refused = canonicalize(deep(levels).as_bytes()).unwrap_err();
            assert_eq!(refused.kind, CanonicalErrorKind::Depth);
        }
    }
}
