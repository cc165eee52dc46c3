//! Path normalization. Services differ about slashes, escapes, dots, parameters and case; a request
//! must not bypass the rules of its route because the service reads the path differently.

use std::borrow::Cow;

/// An unusual path above this length is treated as every possible path.
const MAX_ODD_BYTES: usize = 4096;

/// The path as most services read it: escapes of unreserved characters decoded (RFC 3986, 6.2.2.2),
/// no trailing slash.
pub(crate) fn soften(path: &str) -> Cow<'_, str> {
    let decoded = match path.contains('%') {
        true => Cow::Owned(decode(path, is_unreserved)),
        false => Cow::Borrowed(path),
    };
    match decoded {
        Cow::Borrowed(path) => Cow::Borrowed(without_last_slash(path)),
        Cow::Owned(path) => Cow::Owned(without_last_slash(&path).to_owned()),
    }
}

fn without_last_slash(path: &str) -> &str {
    match path.strip_suffix('/') {
        Some("") | None => path,
        Some(shorter) => shorter,
    }
}

/// The ways in which services read a path.
pub(crate) enum Readings {
    /// All services read it in the same way.
    Plain,
    /// Some services read it in these other ways.
    Odd(Vec<String>),
    /// It is too long to enumerate the ways.
    TooLong,
}

/// The other readings of a path.
pub(crate) fn readings(path: &str) -> Readings {
    let soft = match path.contains('%') {
        true => Cow::Owned(decode(path, is_unreserved)),
        false => Cow::Borrowed(path),
    };
    if !is_odd(&soft) {
        return Readings::Plain;
    }
    if path.len() > MAX_ODD_BYTES {
        return Readings::TooLong;
    }
    let mut found = Vec::new();
    let once = decode(path, |_| true);
    let twice = decode(&once, |_| true);
    for text in [soft.into_owned(), once, twice] {
        for text in [text.replace('\\', "/"), text] {
            for text in [without_parameters(&text), text] {
                for text in [cut_short(&text).to_owned(), text] {
                    let merged = merge_slashes(&text);
                    found.push(resolve_dots(&merge_slashes(&resolve_dots(&text))));
                    found.push(resolve_dots(&merged));
                    found.push(resolve_dots(&text));
                    found.push(merged);
                    found.push(text);
                }
            }
        }
    }
    for reading in &mut found {
        *reading = without_last_slash(reading).to_owned();
    }
    found.sort_unstable();
    found.dedup();
    Readings::Odd(found)
}

/// Whether any reading of the path has a `.` or `..` segment.
pub fn has_dot_segments(path: &str) -> bool {
    if !path.contains(['.', '%']) {
        return false;
    }
    let once = decode(path, |_| true);
    let twice = decode(&once, |_| true);
    [path.to_owned(), once, twice].iter().any(|text| {
        let mut segments = text.split(['/', '\\']);
        segments.any(|segment| {
            let name = segment.split(';').next().unwrap_or_default();
            name == "." || name == ".."
        })
    })
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether services may disagree about a path after its unreserved characters are decoded.
fn is_odd(path: &str) -> bool {
    let mut segments = path.split('/');
    path.contains("//")
        || path.contains([';', '\\', '?', '#'])
        || segments.any(|segment| segment == "." || segment == "..")
        || escapes(path).any(|escape| match escape {
            None => true,
            Some(byte) => byte.is_ascii_control() || b"/\\;%?#".contains(&byte),
        })
}

/// The bytes that the escapes of a text stand for; `None` for an invalid escape.
fn escapes(text: &str) -> impl Iterator<Item = Option<u8>> {
    let bytes = text.as_bytes();
    let signs = (0..bytes.len()).filter(|at| bytes[*at] == b'%');
    signs.map(|at| escaped(bytes, at))
}

fn escaped(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (high, low) = (digit(*bytes.get(at + 1)?)?, digit(*bytes.get(at + 2)?)?);
    u8::try_from(high * 16 + low).ok()
}

/// The text with its escapes decoded.
pub(crate) fn unescaped(text: &str) -> Cow<'_, str> {
    match text.contains('%') {
        true => Cow::Owned(decode(text, |_| true)),
        false => Cow::Borrowed(text),
    }
}

/// Decodes the escapes of bytes of this kind. Invalid UTF-8 is replaced.
fn decode(text: &str, of_kind: impl Fn(u8) -> bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let byte = (bytes[at] == b'%').then(|| escaped(bytes, at)).flatten();
        match byte.filter(|byte| of_kind(*byte)) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The path without the parameters after `;` in each segment.
fn without_parameters(path: &str) -> String {
    let segments = path.split('/');
    let names = segments.map(|segment| segment.split(';').next().unwrap_or_default());
    names.collect::<Vec<_>>().join("/")
}

/// The path up to an escaped `?`, `#` or NUL.
fn cut_short(path: &str) -> &str {
    path.split(['?', '#', '\0']).next().unwrap_or_default()
}

fn merge_slashes(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for character in path.chars() {
        if character != '/' || !out.ends_with('/') {
            out.push(character);
        }
    }
    out
}

/// Removes dot segments (RFC 3986, 5.2.4) from an absolute path.
fn resolve_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            _ => {
                kept.push(segment);
                continue;
            }
        }
        if is_last {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unambiguous_paths_are_plain() {
        for path in [
            "/",
            "/charges",
            "/charges/",
            "/Charges/7",
            "/%63harges",
            "/a%20b",
            "/caf%C3%A9",
            "/a.b/..c",
            "/a~b-c_d",
            "/$a&b=c,d:e@f",
        ] {
            assert!(matches!(readings(path), Readings::Plain), "{path}");
        }
    }

    #[test]
    fn odd_paths_have_a_reading_as_the_plain_one() {
        for path in [
            "//charges",
            "/charges//",
            "/./charges",
            "/x/../charges",
            "/%2e/charges",
            "/x/%2E%2e/charges",
            "/charges;a=1",
            "/;a/charges",
            "/%2Fcharges",
            "/%5Ccharges",
            "/\\charges",
            "/x%2F..%2Fcharges",
            "/x/..%2fcharges",
            "/x//../../charges",
            "/%252Fcharges",
            "/x/%252e%252e/charges",
            "/charges%00",
            "/charges%3Fx",
            "/charges%23x",
            "/charges%3Ba=1",
            "/x/..;/charges",
        ] {
            let Readings::Odd(found) = readings(path) else {
                panic!("{path} is plain");
            };
            assert!(
                found.iter().any(|one| one == "/charges"),
                "{path}: {found:?}"
            );
        }
        assert!(matches!(readings("/%zz"), Readings::Odd(_)));
        let long = format!("/{}", "/".repeat(MAX_ODD_BYTES));
        assert!(matches!(readings(&long), Readings::TooLong));
    }

    #[test]
    fn softened_path_is_equivalent() {
        for (path, soft) in [
            ("/", "/"),
            ("/charges/", "/charges"),
            ("/%63h%61rges", "/charges"),
            ("/a%2fb", "/a%2fb"),
            ("/%7Ea%2", "/~a%2"),
        ] {
            assert_eq!(soften(path), soft);
        }
    }

    #[test]
    fn dot_segments_are_seen_through_escapes() {
        for path in [
            "/../x",
            "/a/./b",
            "/%2e%2e/x",
            "/a/..%2fx",
            "/..%5cx",
            "/%252e%252e/x",
            "/..;/x",
        ] {
            assert!(has_dot_segments(path), "{path}");
        }
        for path in ["/a.b", "/...", "/%41..b", "/"] {
            assert!(!has_dot_segments(path), "{path}");
        }
    }
}
