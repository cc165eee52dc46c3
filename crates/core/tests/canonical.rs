//! Canonical JSON (P3): the cases of RFC 8785, an oracle, and what has to be refused.

use proptest::prelude::*;
use semel_core::canonicalize;
use serde_json::Value;

fn canonical(text: &str) -> String {
    let bytes = canonicalize(text.as_bytes()).expect("a text with a canonical form");
    String::from_utf8(bytes).expect("canonical JSON is UTF-8")
}

fn refusal(text: &[u8]) -> String {
    canonicalize(text)
        .expect_err("a text without a canonical form")
        .to_string()
}

const DUPLICATE: &str = "given twice";
const NUMBER: &str = "past 2^53-1";
const DEPTH: &str = "deeper than 64";
const SYNTAX: &str = "isn't valid JSON";

fn assert_refused(text: &[u8], reason: &str) {
    let error = refusal(text);
    let shown = String::from_utf8_lossy(text);
    assert!(
        error.contains(reason),
        "{shown:.60}: refused with {error:?}, not {reason:?}"
    );
}

#[test]
fn the_examples_of_rfc_8785() {
    // Section 3.2.2, its first number with the digits that a double holds.
    let input = r#"{
      "numbers": [333333333.3333333, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"#;
    let output = concat!(
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,4.5,0.002,1e-27],"#,
        r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
    );
    assert_eq!(canonical(input), output);

    // Section 3.2.3: names sort by their UTF-16 code units.
    let input = concat!(
        r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","#,
        r#""1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","#,
        r#""\u00f6":"Latin Small Letter O With Diaeresis"}"#
    );
    let output = concat!(
        r#"{"\r":"Carriage Return","1":"One","#,
        "\"\u{80}\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",",
        "\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",",
        "\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}"
    );
    assert_eq!(canonical(input), output);
}

#[test]
fn names_sort_by_utf16_where_utf8_would_differ() {
    // U+10000 is D800 DC00 in UTF-16, before U+FFFF; in UTF-8 (F0… against EF…) it comes after.
    assert_eq!(
        canonical("{\"\u{ffff}\":1,\"\u{10000}\":2}"),
        "{\"\u{10000}\":2,\"\u{ffff}\":1}"
    );
    assert_eq!(
        canonical(r#"{"b":{"z":1,"y":[{"d":1,"c":2}]},"a":0,"":1}"#),
        r#"{"":1,"a":0,"b":{"y":[{"c":2,"d":1}],"z":1}}"#
    );
}

#[test]
fn numbers_are_written_as_the_shortest_double() {
    for (text, written) in [
        ("9007199254740991", "9007199254740991"),
        ("-9007199254740991", "-9007199254740991"),
        ("9007199254740991.0", "9007199254740991"),
        ("9.007199254740991e15", "9007199254740991"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("0e9", "0"),
        ("1.0", "1"),
        ("10", "10"),
        ("1e2", "100"),
        ("1E-7", "1e-7"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1e-7"),
        ("5e-324", "5e-324"),
        ("2.2250738585072014e-308", "2.2250738585072014e-308"),
        ("0.1", "0.1"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("333333333.3333333", "333333333.3333333"),
        ("4.35", "4.35"),
    ] {
        assert_eq!(canonical(text), written, "{text}");
    }
}

#[test]
fn a_number_that_a_reader_may_round_is_refused() {
    for text in [
        "9007199254740992",
        "-9007199254740992",
        "9007199254740992.0",
        "9007199254740991.5", // rounds up to 2^53
        "1e16",
        "-1e16",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
        "1e308",
        "1e309",
        "-1e999999",
        "[1,{\"a\":9007199254740993}]",
        "0.100000000000000001",
        "0.1000000000000000055511151231257827",
        "333333333.33333329",
        "4.9406564584124654e-324",
        "9007199254740990.6",
        "{\"wei\":1e-400}",
    ] {
        assert_refused(text.as_bytes(), NUMBER);
    }
}

#[test]
fn a_member_name_given_twice_is_refused_at_every_depth() {
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"b":2,"a":3}"#,
        r#"{"":1,"":2}"#,
        r#"[[{"x":{"a":1,"a":2}}]]"#,
        r#"{"a":{"b":{"c":[0,{"d":1,"d":2}]}}}"#,
        // Equal only after unescaping.
        r#"{"a":1,"\u0061":2}"#,
        r#"{"\u00e9":1,"é":2}"#,
        r#"{"\ud83d\ude00":1,"😀":2}"#,
        r#"{"\/":1,"/":2}"#,
        r#"{"\n":1,"\u000a":2}"#,
    ] {
        assert_refused(text.as_bytes(), DUPLICATE);
    }
    for depth in 1..=63 {
        let text = format!(
            "{}{}{}",
            "[".repeat(depth),
            r#"{"k":1,"k":1}"#,
            "]".repeat(depth)
        );
        assert_refused(text.as_bytes(), DUPLICATE);
    }
    // The same name in two objects, or once composed and once decomposed, is not the same member.
    assert_eq!(
        canonical(r#"[{"a":1},{"a":{"a":2}}]"#),
        r#"[{"a":1},{"a":{"a":2}}]"#
    );
    assert_eq!(
        canonical("{\"\u{e9}\":1,\"e\u{301}\":2}"),
        "{\"e\u{301}\":2,\"\u{e9}\":1}"
    );
}

#[test]
fn sixty_four_levels_are_taken_and_no_more() {
    let nested = |open: &str, inner: &str, close: &str, times: usize| {
        format!("{}{inner}{}", open.repeat(times), close.repeat(times))
    };
    for (open, inner, close) in [("[", "", "]"), ("[", "1", "]"), ("{\"a\":", "null", "}")] {
        let deepest = nested(open, inner, close, 64);
        assert_eq!(canonical(&deepest), deepest);
        assert_refused(nested(open, inner, close, 65).as_bytes(), DEPTH);
    }
    // 32 pairs of an array and an object are 64 levels.
    let pairs = nested("[{\"a\":", "0", "}]", 32);
    assert_eq!(canonical(&pairs), pairs);
    assert_refused(nested("[{\"a\":", "[]", "}]", 32).as_bytes(), DEPTH);
}

#[test]
fn a_depth_bomb_is_refused_where_it_passes_the_limit() {
    for open in ["[", "{\"a\":"] {
        let bomb = open.repeat((1 << 20) / open.len());
        assert_refused(bomb.as_bytes(), DEPTH);
        // Refused at the 65th level, not after reading a megabyte.
        let column = refusal(bomb.as_bytes())
            .rsplit("column ")
            .next()
            .map(str::to_owned);
        let column: usize = column
            .and_then(|c| c.trim_end_matches(')').parse().ok())
            .expect("a column");
        assert!(column <= 65 * open.len(), "read on to column {column}");
    }
}

#[test]
fn invalid_json_is_refused() {
    for text in [
        &b""[..],
        b" ",
        b"nul",
        b"tru e",
        b"{} x",
        b"1 2",
        b"[1],",
        b"{}\0",
        b"[1,]",
        b"{\"a\":1,}",
        b"{\"a\"}",
        b"{a:1}",
        b"{'a':1}",
        b"{1:1}",
        b"[01]",
        b"+1",
        b".5",
        b"1.",
        b"1e",
        b"0x10",
        b"NaN",
        b"Infinity",
        b"-",
        b"// c\n1",
        b"\"a",
        b"\"\n\"",
        b"\"\\x41\"",
        b"\xef\xbb\xbf{}",
        b"\"\xff\"",
        b"\"\xed\xa0\x80\"",
        b"\"\\ud800\"",
        b"\"\\udc00\"",
        b"\"\\ud800\\u0041\"",
        b"\"\\udc00\\ud800\"",
        b"{\"\\ud800\":1}",
    ] {
        assert_refused(text, SYNTAX);
    }
}

#[test]
fn an_error_never_repeats_the_payload() {
    for text in [
        r#"{"sk_live_secret":1,"sk_live_secret":2}"#,
        r#"{"a":"sk_live_secret" sk_live_secret}"#,
        r#"["sk_live_secret", 99999999999999999999]"#,
        r#"{"sk_live_secret":[1,2,}"#,
        "\"sk_live_secret",
        "sk_live_secret",
        r#"{"a member name is given twice":sk_live_secret}"#,
    ] {
        let error = canonicalize(text.as_bytes()).expect_err("refused");
        for shown in [
            format!("{error}"),
            format!("{error:?}"),
            format!("{error:#?}"),
        ] {
            assert!(!shown.contains("sk_live"), "{shown}");
        }
        assert!(
            std::error::Error::source(&error).is_none(),
            "a source could repeat it"
        );
    }
    // Text that reads like one of our reasons is not taken for it.
    assert_refused(br#"{"a member name is given twice":x}"#, SYNTAX);
}

fn any_json() -> impl Strategy<Value = Value> {
    const EXACT: i64 = (1 << 53) - 1;
    let small = proptest::num::f64::POSITIVE
        | proptest::num::f64::NEGATIVE
        | proptest::num::f64::NORMAL
        | proptest::num::f64::SUBNORMAL
        | proptest::num::f64::ZERO;
    #[expect(clippy::cast_precision_loss, reason = "2^53-1 is exact as a double")]
    let small = small.prop_filter("in bounds", |value| value.abs() <= EXACT as f64);
    let text = || {
        prop_oneof![
            any::<String>(),
            "[\\x00-\\x1f\"\\\\/a-c]{0,4}",
            "[\u{d7ff}\u{e000}-\u{10000}\u{10ffff}]{0,2}"
        ]
    };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-EXACT..=EXACT).prop_map(Value::from),
        small.prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn agrees_with_another_implementation(value in any_json()) {
        let expected = serde_json_canonicalizer::to_vec(&value).expect("canonical");
        for text in [serde_json::to_vec(&value), serde_json::to_vec_pretty(&value)] {
            let found = canonicalize(&text.expect("JSON")).expect("canonical");
            prop_assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(&expected));
        }
    }

    #[test]
    fn canonicalizing_is_idempotent(value in any_json()) {
        let once = canonicalize(&serde_json::to_vec(&value).expect("JSON")).expect("canonical");
        prop_assert_eq!(&canonicalize(&once).expect("canonical"), &once);
        // Nothing was lost: numbers aside, which may be written in another way, it reads as before.
        let again: Value = serde_json::from_slice(&once).expect("JSON");
        prop_assert!(alike(&again, &value), "{} became {}", value, again);
    }

    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64), text in "[\\[\\]{}\",:0-9eE+.\\\\u\\-a ]{0,40}") {
        for input in [&bytes[..], text.as_bytes()] {
            // Whatever has a canonical form is JSON to others too.
            if let Ok(canonical) = canonicalize(input) {
                prop_assert!(serde_json::from_slice::<Value>(input).is_ok());
                prop_assert!(serde_json::from_slice::<Value>(&canonical).is_ok());
            }
        }
    }
}

fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, a)| b.get(name).is_some_and(|b| alike(a, b)))
        }
        (a, b) => a == b,
    }
}
