//! The files under `spec/vectors` are what the code makes, and hold when read back as another
//! language would; some outputs are also written down here, from another implementation.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use semel_core::{
    AnswerBody, CrashPolicy, Fingerprint, Identity, KeyError, KeyRules, Namespace, Record,
    RecordError, Secret, canonicalize,
};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors")
}

fn read(name: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(name)).expect("a vector file");
    serde_json::from_str(&text).expect("JSON")
}

fn cases(file: &Value, list: &str) -> Vec<Value> {
    let cases = file[list].as_array().expect("a list").clone();
    assert!(!cases.is_empty());
    cases
}

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field]
        .as_str()
        .unwrap_or_else(|| panic!("{field} of {case} is text"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// A text, or pieces that repeat.
fn written_out(text: &Value) -> String {
    let piece = |piece: &Value| {
        let times = usize::try_from(piece["times"].as_u64()?).ok()?;
        Some(piece["repeat"].as_str()?.repeat(times))
    };
    match text {
        Value::String(text) => text.clone(),
        Value::Array(pieces) => pieces.iter().map(|p| piece(p).expect("a piece")).collect(),
        other => panic!("{other} is no text"),
    }
}

fn secret(case: &Value) -> Secret {
    if case["secret"].is_null() {
        return Secret::none();
    }
    let id = number(&case["secret"], "id");
    Secret::new(id, &unhex(text(&case["secret"], "material"))).expect("a secret")
}

fn number<T: TryFrom<u64>>(case: &Value, field: &str) -> T {
    let number = case[field]
        .as_u64()
        .and_then(|number| T::try_from(number).ok());
    number.unwrap_or_else(|| panic!("{field} of {case} is a fitting number"))
}

#[test]
fn the_files_are_what_the_code_makes() {
    let made = semel_testkit::vectors::all();
    for (name, expected) in &made {
        let found = std::fs::read_to_string(folder().join(name)).unwrap_or_default();
        assert!(
            found == *expected,
            "spec/vectors/{name} differs from semel_testkit::vectors"
        );
    }
    let mut made: BTreeSet<String> = made.iter().map(|(name, _)| (*name).to_owned()).collect();
    // Written by hand: the rules of HTTP, of agents' tools and of webhooks are none of this
    // crate's. `semel-http` and the SDKs read them.
    made.extend(["credentials.json", "tools.json", "webhooks.json"].map(str::to_owned));
    let found = std::fs::read_dir(folder())
        .expect("the folder")
        .filter_map(|entry| {
            let name = entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("UTF-8");
            name.ends_with(".json").then_some(name)
        });
    assert_eq!(
        found.collect::<BTreeSet<_>>(),
        made,
        "a file that nobody makes, or none"
    );
}

#[test]
fn keys_hold() {
    let mut refusals = BTreeSet::new();
    for case in cases(&read("keys.json"), "cases") {
        let extra = text(&case, "extra").to_owned();
        let rules = KeyRules::default()
            .with_max_bytes(number(&case, "max_bytes"))
            .with_extra(extra);
        let input = written_out(&case["text"]);
        let found = rules.check(&input);
        let error = match &found {
            Ok(key) => {
                assert_eq!(key.as_str(), input);
                None
            }
            Err(KeyError::Empty) => Some("empty"),
            Err(KeyError::TooLong { .. }) => Some("too_long"),
            Err(KeyError::Character { .. }) => Some("character"),
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(case["error"].as_str(), error, "{case}");
        assert_eq!(case["ok"], found.is_ok(), "{case}");
        refusals.extend(error);
    }
    assert_eq!(refusals, BTreeSet::from(["character", "empty", "too_long"]));
}

#[test]
fn identities_hold() {
    let mut seen = BTreeSet::new();
    for case in cases(&read("identity.json"), "cases") {
        let part = |field| text(&case, field);
        let [environment, tenant, scope] = ["environment", "tenant", "scope"].map(part);
        let namespace = Namespace::with_principal(environment, tenant, scope, part("principal"));
        let rules = KeyRules::default().with_extra("é\u{301}");
        let key = rules.check(part("key")).expect("a key");
        let identity = Identity::new(&secret(&case), &namespace.expect("a namespace"), &key);
        assert_eq!(hex(identity.as_bytes()), part("identity"), "{case}");
        assert_eq!(hex(&identity.address()), part("address"), "{case}");
        assert_eq!(hex(&identity.seal()), part("seal"), "{case}");
        assert_eq!(part("identity"), [part("address"), part("seal")].concat());
        assert!(
            seen.insert(identity),
            "two inputs with one identity: {case}"
        );
    }
}

#[test]
fn downstream_keys_hold() {
    for case in cases(&read("downstream.json"), "cases") {
        let bytes: [u8; 32] = unhex(text(&case, "identity")).try_into().expect("32 bytes");
        let key = Identity::from_bytes(bytes).derive_key(&secret(&case), text(&case, "step"));
        assert_eq!(key, text(&case, "key"), "{case}");
    }
    // As another implementation gave it.
    let zero = Identity::from_bytes([0; 32]);
    let key = zero.derive_key(&Secret::none(), "psp");
    assert_eq!(key, "semel-5afa677911253edc9e4100d0be7c70a7");
}

#[test]
fn fingerprints_hold() {
    let mut refusals = BTreeSet::new();
    for case in cases(&read("fingerprint.json"), "cases") {
        let mut builder = Ok(Fingerprint::builder(&secret(&case)));
        for part in case["parts"].as_array().expect("parts") {
            let bytes = match &part["hex"] {
                Value::String(hex) => unhex(hex),
                _ => written_out(&part["text"]).into_bytes(),
            };
            if let Value::String(canonical) = &part["canonical"] {
                assert_eq!(
                    canonicalize(&bytes).expect("canonical"),
                    canonical.as_bytes(),
                    "{case}"
                );
            }
            builder = match text(part, "kind") {
                "raw" => builder.map(|builder| builder.part(&bytes)),
                "json" => builder.and_then(|builder| builder.json(&bytes)),
                other => panic!("a part of kind {other}"),
            };
        }
        match builder {
            Ok(builder) => {
                assert_eq!(
                    hex(builder.finish().as_bytes()),
                    text(&case, "fingerprint"),
                    "{case}"
                );
                assert!(case["refused"].is_null(), "{case}");
            }
            Err(error) => {
                let why = text(&case, "refused");
                let words = match why {
                    "duplicate" => "given twice",
                    "number" => "past 2^53-1",
                    "depth" => "deeper than 64",
                    "syntax" => "isn't valid JSON",
                    other => panic!("refused as {other}"),
                };
                assert!(error.to_string().contains(words), "{case}: {error}");
                assert!(case["fingerprint"].is_null(), "{case}");
                refusals.insert(why.to_owned());
            }
        }
    }
    assert_eq!(refusals.len(), 4, "{refusals:?}");
}

fn assert_fields(record: &Record, fields: &Value) {
    let is = |field: &str, found: String| {
        let expected = &fields[field];
        let expected = expected
            .as_str()
            .map_or_else(|| expected.to_string(), str::to_owned);
        assert_eq!(found, expected, "{field} of {fields}");
    };
    is("state", record.state.as_str().into());
    is(
        "crash",
        if record.crash == CrashPolicy::Hold {
            "hold"
        } else {
            "takeover"
        }
        .into(),
    );
    is("fingerprint", hex(record.fingerprint.as_bytes()));
    is("seal", hex(&record.seal));
    is("fence", record.fence.to_string());
    is("token", hex(&record.token.0.to_le_bytes()));
    is("lease_ms", record.lease.as_millis().to_string());
    is("retention_ms", record.retention.as_millis().to_string());
    is("created_us", record.created_at.as_micros().to_string());
    is("written_us", record.written_at.as_micros().to_string());
    is("attempt", record.attempt.to_string());
    is("max_attempts", record.max_attempts.to_string());
    is("secret_id", record.secret_id.to_string());
    is("environment", record.namespace.environment().into());
    is("tenant", record.namespace.tenant().into());
    is("scope", record.namespace.scope().into());
    is("hint", record.hint.as_str().into());
    is("checkpoint", hex(&record.checkpoint));
    let answer = &fields["answer"];
    assert_eq!(record.answer.is_none(), answer.is_null(), "{fields}");
    if let Some(found) = &record.answer {
        assert_eq!(hex(&found.head), text(answer, "head"));
        match &found.body {
            AnswerBody::Kept(body) => assert_eq!(hex(body), text(answer, "body")),
            AnswerBody::Omitted { bytes } => {
                assert_eq!(bytes.to_string(), text(answer, "omitted_bytes"));
            }
            AnswerBody::External { bytes, digest } => {
                assert_eq!(bytes.to_string(), text(answer, "omitted_bytes"));
                assert_eq!(hex(digest), text(answer, "digest"));
            }
        }
    }
}

#[test]
fn records_hold() {
    let file = read("record.json");
    for case in cases(&file, "cases") {
        let packed = Bytes::from(unhex(text(&case, "packed")));
        let record = Record::decode(&packed).expect("a record");
        assert_fields(&record, &case["record"]);
        assert_eq!(record.encode(), packed, "{case}");
    }
    for case in cases(&file, "skipped") {
        let same = cases(&file, "cases")
            .into_iter()
            .find(|c| c["name"] == case["same_as"]);
        let record = Record::decode(&Bytes::from(unhex(text(&case, "packed")))).expect("a record");
        assert_eq!(
            hex(&record.encode()),
            text(&same.expect("that case"), "packed"),
            "{case}"
        );
    }
    let mut errors = BTreeSet::new();
    for case in cases(&file, "refused") {
        let seal = unhex(text(&case, "seal")).try_into().expect("16 bytes");
        let identity = Identity::from_halves(&[0; 16], &seal);
        let found = Record::decode_for(&identity, &Bytes::from(unhex(text(&case, "packed"))));
        let error = match found.expect_err(text(&case, "name")) {
            RecordError::UnknownVersion(_) => "unknown_version",
            RecordError::UnknownSection(_) => "unknown_section",
            RecordError::Malformed(_) => "malformed",
            RecordError::Foreign => "foreign",
            other => panic!("{other:?}"),
        };
        assert_eq!(error, text(&case, "error"), "{case}");
        errors.insert(error);
    }
    assert_eq!(errors.len(), 4, "{errors:?}");
}

/// Outputs of another implementation (Python's `blake3`, `rfc8785` and `struct`, from the words of
/// the specification), so that code and files can't drift together.
#[test]
fn outputs_that_another_implementation_gave() {
    let none = Secret::none();
    let strong = Secret::new(65_535, b"thirty-two bytes from a generator").expect("a secret");
    for (secret, [environment, tenant, scope], key, expected) in [
        (
            &none,
            ["", "", "charge"],
            "ord-1",
            "a120c94a6353086d913cbe0da39ff603cd5e330d800c60f7958221066f391fb1",
        ),
        (
            &none,
            ["", "acme", "charge"],
            "ord-1",
            "48b621a5698f1a7f364af80fa9a2ca65eaf6c7b9d06388bb6789edf85dea278f",
        ),
        (
            &none,
            ["", "acm", "echarge"],
            "ord-1",
            "c93124856a595b4844616e883c5c66e5d5fcb3277f88ac622674b4887d795a14",
        ),
        (
            &strong,
            ["production", "acme", "charge"],
            "ord-123",
            "301e0a8e46282a7e9ffa7bcff6cb9a068e3ed8526e278b70cde7514ce77d5975",
        ),
    ] {
        let namespace = Namespace::new(environment, tenant, scope).expect("a namespace");
        let key = KeyRules::default().check(key).expect("a key");
        let identity = Identity::new(secret, &namespace, &key);
        assert_eq!(hex(identity.as_bytes()), expected, "{namespace:?}");
    }

    let raw = Fingerprint::builder(&none).part(b"POST").finish();
    assert_eq!(hex(raw.as_bytes()), "015b2bea1918a291ca08da64337cc9054d");
    let payload = Fingerprint::builder(&strong).part(b"POST").part(b"/orders");
    let payload = payload
        .json(b"{ \"currency\" : \"EUR\", \"amount\" : 1e1 }")
        .expect("JSON");
    assert_eq!(
        hex(payload.finish().as_bytes()),
        "01f751a44c0432fa558810148303c1dbaf"
    );
    let members = br#"{"b":{"z":1,"y":[{"d":1,"c":2}]},"a":0,"":1}"#;
    let members = Fingerprint::builder(&none)
        .json(members)
        .expect("JSON")
        .finish();
    assert_eq!(
        hex(members.as_bytes()),
        "01ebf578d140757c309402c1607636d9d4"
    );

    let file = read("record.json");
    let running = cases(&file, "cases")
        .into_iter()
        .find(|case| case["name"] == "running");
    assert_eq!(
        text(&running.expect("a running record"), "packed"),
        concat!(
            "0101010166696e6765727072696e7466696e67657365616c7365616c7365616c7365616c",
            "00e025dafe5b0600000102030405060708090a0b0c0d0e0f30750000005c260500000000",
            "00e025dafe5b060001e025dafe5b06000100030001001c00",
            "0a70726f64756374696f6e0461636d6506636861726765046f72642d",
        )
    );
}
