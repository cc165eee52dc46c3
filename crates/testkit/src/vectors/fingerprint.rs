//! `fingerprint.json`: the fingerprint of a payload, and which payloads have none (P3).

use semel_core::{CanonicalError, CanonicalErrorKind, Fingerprint, canonicalize};
use serde::Serialize;

use super::{File, Secret, Text, hex, secret};

#[derive(Serialize)]
pub(super) struct Case {
    name: &'static str,
    secret: Option<Secret>,
    parts: Vec<Part>,
    fingerprint: Option<String>,
    refused: Option<&'static str>,
}

#[derive(Serialize)]
struct Part {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    canonical: Option<String>,
}

/// A part as it is written in the tables.
#[derive(Clone)]
enum Input {
    Raw(&'static [u8]),
    Json(&'static str),
    Long(Text),
    NotText(&'static [u8]),
}

use Input::{Json, Long, NotText, Raw};

pub(super) fn file() -> File<Case> {
    let mut cases: Vec<Case> = Vec::new();
    cases.extend(
        parts()
            .into_iter()
            .map(|(name, at, parts)| case(name, at, &parts)),
    );
    cases.extend(
        JSON.iter()
            .map(|&(name, text)| case(name, 0, &[Json(text)])),
    );
    cases.extend(
        LIMITS
            .iter()
            .map(|&(name, text)| case(name, 1, &[Json(text)])),
    );
    cases.extend(
        nesting()
            .into_iter()
            .map(|(name, text)| case(name, 0, &[Long(text)])),
    );
    File {
        about: "P3: fingerprint = 01 and the first 16 bytes of BLAKE3-keyed(k, parts), each part after \
                its kind (00 raw, 01 json) and its length as 8 little-endian bytes; k = \
                BLAKE3-derive-key(\"semel v1 fingerprint\", material). A json part is hashed in its \
                canonical form, or refused: duplicate, number, depth or syntax.",
        cases,
    }
}

fn parts() -> Vec<(&'static str, usize, Vec<Input>)> {
    let order = r#"{"amount":10,"currency":"EUR"}"#;
    vec![
        ("no parts", 0, vec![]),
        ("one empty part", 0, vec![Raw(b"")]),
        ("two empty parts", 0, vec![Raw(b""), Raw(b"")]),
        ("raw text", 0, vec![Raw(b"POST")]),
        ("raw text with a secret", 1, vec![Raw(b"POST")]),
        ("raw text with another secret", 2, vec![Raw(b"POST")]),
        (
            "raw bytes that are not text",
            0,
            vec![Raw(&[0xff, 0x00, 0xfe])],
        ),
        ("parts cut here", 0, vec![Raw(b"ab"), Raw(b"c")]),
        ("parts cut there", 0, vec![Raw(b"a"), Raw(b"bc")]),
        (
            "a payload",
            2,
            vec![Raw(b"POST"), Raw(b"/orders"), Json(order)],
        ),
        (
            "a payload, the JSON as raw bytes",
            2,
            vec![Raw(b"POST"), Raw(b"/orders"), Raw(order.as_bytes())],
        ),
        (
            "a payload, other order and space",
            2,
            vec![
                Raw(b"POST"),
                Raw(b"/orders"),
                Json("{ \"currency\" : \"EUR\",\r\n\t\"amount\" : 1e1 }"),
            ],
        ),
        (
            "a good part after a refused one",
            0,
            vec![Json("{"), Raw(b"x")],
        ),
        ("text that is not UTF-8", 0, vec![NotText(b"\"\xff\"")]),
        ("a byte order mark", 0, vec![NotText(b"\xef\xbb\xbf{}")]),
    ]
}

const JSON: &[(&str, &str)] = &[
    (
        "RFC 8785, 3.2.2, with digits that a double holds",
        concat!(
            r#"{"numbers": [333333333.3333333, 4.50, 2e-3, 0.000000000000000000000000001], "#,
            r#""string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"#,
        ),
    ),
    (
        "RFC 8785, 3.2.3",
        concat!(
            r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","#,
            r#""1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","#,
            r#""\u00f6":"Latin Small Letter O With Diaeresis"}"#,
        ),
    ),
    (
        "UTF-16 order is not UTF-8 order",
        r#"{"\uffff":1,"\ud800\udc00":2}"#,
    ),
    (
        "members in order at every level",
        r#"{"b":{"z":1,"y":[{"d":1,"c":2}]},"a":0,"":1}"#,
    ),
    (
        "composed and decomposed are two names",
        r#"{"\u00e9":1,"e\u0301":2}"#,
    ),
    ("escapes that stay", r#""\u0000\u001f\b\t\n\f\r\"\\""#),
    ("escapes that go", r#""\u007f\u0080\/\u2028\u2029""#),
    ("a lone value", " true "),
    ("an empty object", "{ }"),
    ("a name given twice", r#"{"a":1,"a":1}"#),
    ("a name given twice, apart", r#"{"a":1,"b":2,"a":3}"#),
    (
        "a name given twice, deep inside",
        r#"{"x":[0,{"y":{"a":1,"a":2}}]}"#,
    ),
    ("a name given twice, once escaped", r#"{"a":1,"\u0061":2}"#),
    (
        "a name given twice, once as a pair",
        r#"{"\ud83d\ude00":1,"😀":2}"#,
    ),
    ("a lone high surrogate", r#""\ud800""#),
    ("a lone low surrogate", r#""\udc00""#),
    ("a high surrogate and a letter", r#""\ud800\u0041""#),
    ("nothing", ""),
    ("trailing text", "{} x"),
    ("two values", "1 2"),
    ("a trailing comma", "[1,]"),
    ("a comment", "// c\n1"),
    ("single quotes", "{'a':1}"),
    ("a leading zero", "[01]"),
    ("not a number", "NaN"),
    ("a line break in a string", "\"\n\""),
    ("an unfinished string", "\"a"),
];

const LIMITS: &[(&str, &str)] = &[
    ("2^53-1", "9007199254740991"),
    ("-(2^53-1)", "-9007199254740991"),
    ("2^53-1 with a fraction", "9007199254740991.0"),
    ("2^53", "9007199254740992"),
    ("-2^53", "-9007199254740992"),
    ("2^53 after rounding", "9007199254740991.5"),
    ("2^64", "18446744073709551616"),
    ("1e16", "1e16"),
    ("1e400", "1e400"),
    ("a large number inside", r#"[1,{"a":9007199254740993}]"#),
    ("minus zero", "-0"),
    ("minus zero with a fraction", "-0.0"),
    ("the smallest double", "5e-324"),
    ("one ten-millionth", "0.0000001"),
    ("one millionth", "0.000001"),
    (
        "more digits than a double has",
        "0.1000000000000000055511151231257827",
    ),
    ("digits that a double rounds", "[0.100000000000000001]"),
    ("the digits of a sum of doubles", "0.30000000000000004"),
    ("a number that a double takes for zero", "1e-400"),
    ("zero with a large power", "0e400"),
    ("a whole number with a fraction", "[1.0,1e2,10]"),
];

fn nesting() -> Vec<(&'static str, Text)> {
    vec![
        (
            "64 levels of arrays",
            Text::repeated(&[("[", 64), ("]", 64)]),
        ),
        (
            "65 levels of arrays",
            Text::repeated(&[("[", 65), ("]", 65)]),
        ),
        (
            "64 levels of objects",
            Text::repeated(&[("{\"a\":", 64), ("1", 1), ("}", 64)]),
        ),
        (
            "65 levels of objects",
            Text::repeated(&[("{\"a\":", 65), ("1", 1), ("}", 65)]),
        ),
        ("a depth bomb", Text::repeated(&[("[", 1_000_000)])),
    ]
}

fn case(name: &'static str, at: usize, inputs: &[Input]) -> Case {
    let (shown, secret) = secret(at);
    let mut builder = Ok(Fingerprint::builder(&secret));
    for input in inputs {
        builder = builder.and_then(|builder| match input {
            Raw(bytes) => Ok(builder.part(bytes)),
            Json(text) => builder.json(text.as_bytes()),
            Long(text) => builder.json(text.written_out().as_bytes()),
            NotText(bytes) => builder.json(bytes),
        });
    }
    let refused = builder.as_ref().err().map(reason);
    let fingerprint = builder.ok().map(|builder| hex(builder.finish().as_bytes()));
    Case {
        name,
        secret: shown,
        parts: inputs.iter().map(part).collect(),
        fingerprint,
        refused,
    }
}

fn part(input: &Input) -> Part {
    let json = |text: Option<Text>, hex: Option<String>, bytes: &[u8]| {
        let canonical = canonicalize(bytes).ok();
        let canonical =
            canonical.map(|bytes| String::from_utf8(bytes).expect("canonical is UTF-8"));
        // Where the text repeats, its canonical form is long, too, and the same.
        let canonical = canonical.filter(|_| !matches!(text, Some(Text::Repeated(_))));
        Part {
            kind: "json",
            text,
            hex,
            canonical,
        }
    };
    match input {
        Raw(bytes) => Part {
            kind: "raw",
            text: None,
            hex: Some(hex(bytes)),
            canonical: None,
        },
        Json(text) => json(Some(Text::Plain(text)), None, text.as_bytes()),
        Long(text) => json(Some(text.clone()), None, text.written_out().as_bytes()),
        NotText(bytes) => json(None, Some(hex(bytes)), bytes),
    }
}

/// The word for why a payload has no canonical form.
const fn reason(error: &CanonicalError) -> &'static str {
    match error.kind {
        CanonicalErrorKind::Duplicate => "duplicate",
        CanonicalErrorKind::Number => "number",
        CanonicalErrorKind::Depth => "depth",
        _ => "syntax",
    }
}
