//! Parts of a JSON text, chosen by paths: JSON pointers, where `*` stands for every member or element.

use std::borrow::Cow;

use semel_core::{CanonicalError, canonicalize};
use serde_json::Value;

/// Strictly checked first: what could be read in two ways must not get as far as being edited.
fn parsed(body: &[u8]) -> Result<Value, CanonicalError> {
    let canonical = canonicalize(body)?;
    Ok(serde_json::from_slice(&canonical).unwrap_or(Value::Null))
}

/// The text without what the paths lead to.
pub(crate) fn except(body: &[u8], paths: &[Cow<'static, str>]) -> Result<Vec<u8>, CanonicalError> {
    let mut value = parsed(body)?;
    for path in paths {
        remove(&mut value, &steps(path));
    }
    Ok(value.to_string().into_bytes())
}

/// What the paths lead to, and nothing else.
pub(crate) fn only(body: &[u8], paths: &[Cow<'static, str>]) -> Result<Vec<u8>, CanonicalError> {
    let value = parsed(body)?;
    let chosen = paths.iter().map(|path| {
        let mut found = Vec::new();
        collect(&value, &steps(path), &mut found);
        Value::Array(found)
    });
    Ok(Value::Array(chosen.collect()).to_string().into_bytes())
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
        // Emptied, not shortened: taking an element out would move the others to its place.
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

fn collect(value: &Value, steps: &[String], found: &mut Vec<Value>) {
    let [step, rest @ ..] = steps else {
        found.push(value.clone());
        return;
    };
    match value {
        Value::Object(members) if step == "*" => {
            for (name, member) in members {
                found.push(Value::String(name.clone()));
                collect(member, rest, found);
            }
        }
        Value::Object(members) => {
            if let Some(member) = members.get(step) {
                collect(member, rest, found);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                if step == "*" || step.parse() == Ok(i) {
                    collect(item, rest, found);
                }
            }
        }
        _ => {}
    }
}
