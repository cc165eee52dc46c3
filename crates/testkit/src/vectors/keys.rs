//! `keys.json`: which texts are keys (P1).

use semel_core::{KeyError, KeyRules};
use serde::Serialize;

use super::{File, Text};

#[derive(Serialize)]
pub(super) struct Case {
    text: Text,
    max_bytes: usize,
    extra: &'static str,
    ok: bool,
    error: Option<&'static str>,
}

pub(super) fn file() -> File<Case> {
    let usual = |text| case(text, 255, ":");
    let plain = |text| usual(Text::Plain(text));
    let mut cases: Vec<Case> = [
        "a",
        "ord-123",
        "A-Z_a-z.0-9:x",
        "8e03978e-40d5-43e8-bc93-6894a57f9324",
        "pazar:proof:status_change:17",
        ".",
        "",
        " ",
        "no spaces",
        "trailing ",
        "a/b",
        "a+b=",
        "a#b",
        "a?b",
        "a&b",
        "a%b",
        "a\nb",
        "a\u{0}b",
        "a\u{7f}b",
        "\"quoted\"",
        "ключ",
        "é",
        "😀",
    ]
    .into_iter()
    .map(plain)
    .collect();
    cases.extend([
        usual(Text::repeated(&[("k", 255)])),
        usual(Text::repeated(&[("k", 256)])),
        // Too long is said first, whatever the characters are.
        usual(Text::repeated(&[(" ", 256)])),
        case(Text::Plain("a:b"), 255, ""),
        case(Text::Plain("a/b+c="), 64, "/+="),
        case(Text::Plain("a:b"), 64, "/+="),
        case(Text::Plain("aäöü"), 255, "äöü"),
        case(Text::Plain("ää"), 3, "ä"),
        case(Text::Plain("abc"), 3, ""),
        case(Text::Plain("abcd"), 3, ""),
        case(Text::repeated(&[("k", 1024)]), 1024, ""),
        case(Text::repeated(&[("k", 1025)]), 1025, ""),
        case(Text::repeated(&[("k", 1025)]), 1_000_000, ""),
    ]);
    File {
        about: "P1: a text is a key under rules (most bytes, characters besides A-Z a-z 0-9 _ - .), \
                or is refused as empty, too_long or character. No rules take more than 1024 bytes.",
        cases,
    }
}

fn case(text: Text, max_bytes: usize, extra: &'static str) -> Case {
    let rules = KeyRules::default()
        .with_max_bytes(max_bytes)
        .with_extra(extra);
    let error = rules
        .check(&text.written_out())
        .err()
        .map(|error| match error {
            KeyError::Empty => "empty",
            KeyError::TooLong { .. } => "too_long",
            KeyError::Character { .. } => "character",
            _ => "unknown",
        });
    Case {
        text,
        max_bytes,
        extra,
        ok: error.is_none(),
        error,
    }
}
