//! Selects parts of a JSON text by JSON pointers, in which `*` matches every member or element.

use std::borrow::Cow;

use semel_core::{CanonicalError, canonicalize};
use serde_json::Value;

/// Parses strictly, so that an ambiguous text is never edited.
fn parsed(body: &[u8]) -> Result<Value, CanonicalError> {
    let canonical = canonicalize(body)?;
    Ok(serde_json::from_slice(&canonical).unwrap_or(Value::Null))
}

/// The text without the selected parts.
pub(crate) fn except(body: &[u8], paths: &[Cow<'static, str>]) -> Result<Vec<u8>, CanonicalError> {
    let mut value = parsed(body)?;
    for path in paths {
        remove(&mut value, &steps(path));
    }
    Ok(value.to_string().into_bytes())
}

/// Only the selected parts, each with its position, or with a mark that it is absent.
pub(crate) fn only(body: &[u8], paths: &[Cow<'static, str>]) -> Result<Vec<u8>, CanonicalError> {
    let value = parsed(body)?;
    let chosen = paths.iter().map(|path| collect(&value, &steps(path)));
    Ok(Value::Array(chosen.collect()).to_string().into_bytes())
}

/// The text with null in place of the selected parts, in canonical form.
pub(crate) fn redacted(
    body: &[u8],
    paths: &[Cow<'static, str>],
) -> Result<Vec<u8>, CanonicalError> {
    let mut value = parsed(body)?;
    for path in paths {
        redact(&mut value, &steps(path));
    }
    Ok(value.to_string().into_bytes())
}

fn redact(value: &mut Value, steps: &[String]) {
    let [step, rest @ ..] = steps else {
        *value = Value::Null;
        return;
    };
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                if step == "*" || step == name {
                    redact(member, rest);
                }
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                if step == "*" || step.parse() == Ok(i) {
                    redact(item, rest);
                }
            }
        }
        _ => {}
    }
}

fn steps(path: &str) -> Vec<String> {
    let steps = path.split('/').skip(1);
    steps
        .map(|step| step.replace("~1", "/").replace("~0", "~"))
        .collect()
}

fn remove(value: &mut Value, steps: &[String]) {
    let [step, rest @ ..] = steps else { return };
    match value {
        Value::Object(members) if rest.is_empty() && step == "*" => members.clear(),
        Value::Object(members) if rest.is_empty() => {
            members.remove(step);
        }
        // Elements become null; removing them would shift the others.
        Value::Array(items) if rest.is_empty() => {
            for (i, item) in items.iter_mut().enumerate() {
                if step == "*" || step.parse() == Ok(i) {
                    *item = Value::Null;
                }
            }
        }
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                if step == "*" || step == name {
                    remove(member, rest);
                }
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                if step == "*" || step.parse() == Ok(i) {
                    remove(item, rest);
                }
            }
        }
        _ => {}
    }
}

/// The selected value in an unambiguous form: `[value]`, `[]` if there is no such member or
/// element, `[0, value]` if a scalar is in the way. For `*` it is an object or a list of such
/// forms.
fn collect(value: &Value, steps: &[String]) -> Value {
    let [step, rest @ ..] = steps else {
        return Value::Array(vec![value.clone()]);
    };
    match value {
        Value::Object(members) if step == "*" => {
            let found = members
                .iter()
                .map(|(name, member)| (name.clone(), collect(member, rest)));
            Value::Array(vec![Value::Object(found.collect())])
        }
        Value::Array(items) if step == "*" => {
            let found = items.iter().map(|item| collect(item, rest));
            Value::Array(vec![Value::Array(found.collect())])
        }
        Value::Object(members) => members
            .get(step)
            .map_or_else(nothing, |member| collect(member, rest)),
        Value::Array(items) => {
            let item = step.parse().ok().and_then(|at: usize| items.get(at));
            item.map_or_else(nothing, |item| collect(item, rest))
        }
        other => Value::Array(vec![0.into(), other.clone()]),
    }
}

const fn nothing() -> Value {
    Value::Array(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str, paths: &[&'static str]) -> Vec<u8> {
        let paths: Vec<Cow<'static, str>> = paths.iter().map(|path| (*path).into()).collect();
        only(body.as_bytes(), &paths).unwrap()
    }

    #[test]
    fn positions_and_absent_members_count() {
        for (paths, one, other) in [
            (
                &["/items/*/id", "/items/*/qty"][..],
                r#"{"items":[{"id":1,"qty":5},{"id":2}]}"#,
                r#"{"items":[{"id":1},{"id":2,"qty":5}]}"#,
            ),
            (
                &["/items/*"],
                r#"{"items":{"x":"y"}}"#,
                r#"{"items":["x","y"]}"#,
            ),
            (&["/items/*"], r#"{"items":{}}"#, r#"{"items":[]}"#),
            (&["/items/*"], "{}", r#"{"items":[]}"#),
            (&["/a"], "{}", r#"{"a":null}"#),
            (&["/a"], "{}", r#"{"a":[]}"#),
            (&["/a/b"], r#"{"a":{}}"#, r#"{"a":7}"#),
            (&["/a/b"], r#"{"a":7}"#, r#"{"a":8}"#),
            (
                &["/a/*/b"],
                r#"{"a":[{},{"b":1}]}"#,
                r#"{"a":[{"b":1},{}]}"#,
            ),
            (&["/a/0"], r#"{"a":[]}"#, r#"{"a":[null]}"#),
        ] {
            assert_ne!(of(one, paths), of(other, paths), "{one} and {other}");
        }
    }

    #[test]
    fn selected_parts_become_null() {
        let paths = ["/card/number", "/items/*/pin", "/list/1", "/a~1b"].map(Into::into);
        let body = r#"{"list":[1,2],"card":{"number":"4242","type":"x"},"a/b":7,
            "items":[{"pin":[1,2],"id":1},{"id":2},3],"other":{"number":1.5}}"#;
        let found = redacted(body.as_bytes(), &paths).unwrap();
        assert_eq!(
            String::from_utf8(found).unwrap(),
            r#"{"a/b":null,"card":{"number":null,"type":"x"},"items":[{"id":1,"pin":null},{"id":2},3],"list":[1,null],"other":{"number":1.5}}"#
        );
        for unclear in [
            &b"no json"[..],
            b"",
            br#"{"a":1,"a":2}"#,
            b"12345678901234567890",
        ] {
            assert!(redacted(unclear, &paths).is_err());
        }
    }

    #[test]
    fn unselected_members_do_not_count() {
        let paths = &["/order/id", "/items/*/id"];
        let first = of(r#"{"order":{"id":7,"note":"a"},"items":[{"id":1}]}"#, paths);
        let other = of(
            r#"{"more":1,"items":[{"x":2,"id":1}],"order":{"id":7}}"#,
            paths,
        );
        assert_eq!(first, other);
    }
}
