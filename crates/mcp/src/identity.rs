//! [`IdentityRule`]: the arguments that identify a call, and [`Sketch`], by which a call is
//! compared with an earlier one that has the same identity.

use std::collections::BTreeMap;

use bytes::Bytes;
use semel::Secret;
use semel::core::{Fingerprint, canonicalize};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::pointer::{ArgumentPath, escape};

/// The most arguments that a sketch holds, and the longest pointer to one of them.
const MAX_ARGUMENTS: usize = 64;
const MAX_POINTER_BYTES: usize = 96;
/// How deep a sketch looks into objects and arrays.
const MAX_DEPTH: usize = 4;
/// The most pointers that a comparison names.
const MAX_NAMED: usize = 16;

/// Which arguments identify a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdentityRule<'a> {
    /// Only these.
    Only(&'a [ArgumentPath]),
    /// All but these.
    Except(&'a [ArgumentPath]),
}

impl IdentityRule<'_> {
    /// The identity in a canonical form; `None` if the call has none of the arguments that identify
    /// it, so that all must count.
    pub(crate) fn select(self, arguments: &Value) -> Option<Vec<u8>> {
        let chosen = match self {
            Self::Only(paths) => {
                let found = paths.iter().map(|path| {
                    let values = path.select(arguments).into_iter();
                    Value::Array(values.filter_map(normalize).collect())
                });
                let found: Vec<Value> = found.collect();
                let is_empty = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
                (!found.iter().all(is_empty)).then_some(Value::Array(found))
            }
            Self::Except(paths) => {
                let mut rest = arguments.clone();
                paths.iter().for_each(|path| path.clear(&mut rest));
                normalize(&rest)
            }
        };
        canonicalize(chosen?.to_string().as_bytes()).ok()
    }
}

/// A value without the differences that mean nothing when a model writes it twice; `None` for a
/// value that says no more than a missing one.
fn normalize(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Bool(_) => Some(value.clone()),
        Value::Number(number) => {
            Some(as_number(&number.to_string()).unwrap_or_else(|| value.clone()))
        }
        Value::String(text) => normalize_text(text),
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().filter_map(normalize).collect();
            if items.iter().all(Value::is_string) {
                items.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
            }
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(members) => {
            let members = members.iter();
            let members: Map<String, Value> = members
                .filter_map(|(name, member)| Some((name.clone(), normalize(member)?)))
                .collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
    }
}

fn normalize_text(text: &str) -> Option<Value> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    if text.is_empty() {
        return None;
    }
    if let Some(number) = as_number(&text) {
        return Some(number);
    }
    let is_address = words.len() == 1 && text.contains('@');
    Some(Value::String(match is_address {
        true => text.to_lowercase(),
        false => text,
    }))
}

/// The number that a text stands for: plain decimals that a float holds exactly enough.
fn as_number(text: &str) -> Option<Value> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_digits(whole) && is_digits(part) && (whole == "0" || !whole.starts_with('0'));
    if !is_plain || digits.len() > 15 {
        return None;
    }
    let number = Number::from_f64(text.parse().ok()?)?;
    Some(Value::Number(number))
}

/// What is kept of a call's arguments: a few bits of a keyed digest of each. It says which
/// arguments of two calls differ, and reveals no value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sketch {
    /// The digest of the caller's credentials, if it is known by nothing else.
    #[serde(default, rename = "c", skip_serializing_if = "String::is_empty")]
    credentials: String,
    /// The digests of the arguments, by their pointers.
    #[serde(rename = "a")]
    arguments: BTreeMap<String, u16>,
}

impl Sketch {
    pub(crate) fn new(arguments: &Value, credentials: &str, secret: &Secret) -> Self {
        let mut leaves = Vec::new();
        collect_leaves(arguments, String::new(), MAX_DEPTH, &mut leaves);
        if leaves.len() > MAX_ARGUMENTS {
            leaves.clear();
            collect_leaves(arguments, String::new(), 1, &mut leaves);
        }
        let leaves = leaves.into_iter();
        let kept = leaves.filter(|(pointer, _)| pointer.len() <= MAX_POINTER_BYTES);
        Self {
            credentials: credentials.chars().take(32).collect(),
            arguments: kept
                .take(MAX_ARGUMENTS)
                .map(|(pointer, value)| {
                    let few = few_bits(&pointer, value, secret);
                    (pointer, few)
                })
                .collect(),
        }
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Whether both calls have the same credentials, or are known by their principal.
    pub(crate) fn has_credentials_of(&self, other: &Self) -> bool {
        self.credentials == other.credentials
    }

    /// The number of arguments.
    pub(crate) fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Pointers to the arguments that differ, in order; at most 16.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let missing = |pointer: &&String| !self.arguments.contains_key(*pointer);
        let added = other.arguments.keys().filter(missing);
        let changed = self.arguments.iter();
        let changed = changed.filter(|(pointer, few)| other.arguments.get(*pointer) != Some(*few));
        let changed = changed.map(|(pointer, _)| pointer);
        let mut all: Vec<String> = changed.chain(added).cloned().collect();
        all.sort();
        all.truncate(MAX_NAMED);
        all
    }
}

/// Too few bits to find a value by trying, and enough to tell most values apart.
fn few_bits(pointer: &str, value: &Value, secret: &Secret) -> u16 {
    let parts = Fingerprint::builder(secret).part(b"mcp-argument");
    let parts = parts.part(pointer.as_bytes());
    let digest = parts.part(value.to_string().as_bytes()).finish();
    let bytes = digest.as_bytes();
    u16::from_be_bytes([bytes[1], bytes[2]])
}

fn collect_leaves<'a>(
    value: &'a Value,
    pointer: String,
    depth: usize,
    leaves: &mut Vec<(String, &'a Value)>,
) {
    match value {
        Value::Object(members) if depth > 0 && !members.is_empty() => {
            for (name, member) in members {
                let pointer = format!("{pointer}/{}", escape(name));
                collect_leaves(member, pointer, depth - 1, leaves);
            }
        }
        Value::Array(items) if depth > 0 && !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                collect_leaves(item, format!("{pointer}/{at}"), depth - 1, leaves);
            }
        }
        _ => leaves.push((pointer, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn paths(texts: &[&str]) -> Vec<ArgumentPath> {
        let parse = |text: &&str| ArgumentPath::parse(text).unwrap();
        texts.iter().map(parse).collect()
    }

    #[test]
    fn identity_leaves_out_what_a_model_rewords() {
        let one = json!({"to": "Ann@x.org", "amount": 25, "note": "Rent for May"});
        let other = json!({"note": "may rent", "amount": "25.00", "to": " ann@x.org", "cc": null});
        let more = json!({"to": "ann@x.org", "amount": 26, "note": "Rent for May"});
        for rule in [
            IdentityRule::Only(&paths(&["/to", "/amount"])),
            IdentityRule::Except(&paths(&["/note"])),
        ] {
            assert_eq!(rule.select(&one), rule.select(&other), "{rule:?}");
            assert_ne!(rule.select(&one), rule.select(&more), "{rule:?}");
        }
    }

    #[test]
    fn call_without_identifying_arguments_has_no_identity() {
        let call = json!({"note": "x", "to": ""});
        assert_eq!(
            IdentityRule::Only(&paths(&["/to", "/cc"])).select(&call),
            None
        );
        assert_eq!(IdentityRule::Except(&paths(&["/note"])).select(&call), None);
    }

    #[test]
    fn texts_that_mean_different_things_stay_different() {
        let of = |value: Value| normalize(&value);
        for (one, other) in [
            (json!("007"), json!("7")),
            (json!("1e3"), json!(1000)),
            (json!("Ann"), json!("ann")),
            (json!("12345678901234567"), json!("12345678901234568")),
            (json!([1, 2]), json!([2, 1])),
            (json!(true), json!("true")),
            (json!("1.2.3"), json!("1.2")),
        ] {
            assert_ne!(of(one.clone()), of(other.clone()), "{one} {other}");
        }
        assert_eq!(of(json!(["b", "a"])), of(json!(["a", "b", ""])));
        assert_eq!(of(json!("-2.50")), of(json!(-2.5)));
    }

    #[test]
    fn sketch_names_differences_and_reveals_no_value() {
        let secret = Secret::none();
        let of = |value: &Value| Sketch::new(value, "", &secret);
        let one = json!({"to": "a", "note": "secret words", "items": [{"id": 1}, {"id": 2}]});
        let other =
            json!({"to": "a", "note": "other words", "items": [{"id": 1}, {"id": 3}], "cc": "b"});
        let kept = of(&one).to_bytes();
        assert!(
            !String::from_utf8_lossy(&kept).contains("secret"),
            "{kept:?}"
        );
        let kept = Sketch::parse(&kept).unwrap();
        assert_eq!(kept, of(&one));
        assert_eq!(
            kept.differences(&of(&other)),
            ["/cc", "/items/1/id", "/note"]
        );
        assert_eq!(kept.len(), 4);
    }

    #[test]
    fn sketch_of_large_arguments_is_bounded() {
        let many: Map<String, Value> = (0..1000).map(|n| (format!("a{n}"), json!([n]))).collect();
        let mut deep = json!("leaf");
        for _ in 0..50 {
            deep = json!([deep]);
        }
        let value = json!({"many": many, "deep": deep, "n".repeat(200): 1});
        let sketch = Sketch::new(&value, &"c".repeat(99), &Secret::none());
        assert!(sketch.len() <= MAX_ARGUMENTS);
        assert!(sketch.to_bytes().len() < 8192);
        assert!(Sketch::parse(b"{}").is_none());
    }
}
