//! [`ArgumentPath`]: a JSON pointer to a part of a call's arguments.

use serde::Deserialize;
use serde_json::Value;

/// The longest pointer, in bytes.
const MAX_BYTES: usize = 256;

/// A JSON pointer, in which `*` matches every member or element.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ArgumentPath {
    text: String,
    steps: Vec<String>,
}

impl ArgumentPath {
    /// Parses a pointer such as `/to` or `/items/*/id`.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("a JSON pointer has at most {MAX_BYTES} bytes"));
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!(
                "the JSON pointer {text:?} doesn't begin with a slash"
            ));
        };
        let steps = rest.split('/').map(unescape).collect();
        Ok(Self {
            text: text.to_owned(),
            steps,
        })
    }

    /// The pointer as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// All values that it selects.
    pub(crate) fn select<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = Vec::new();
        select(value, &self.steps, &mut found);
        found
    }

    /// Puts null in the place of all that it selects.
    pub(crate) fn clear(&self, value: &mut Value) {
        clear(value, &self.steps);
    }
}

impl TryFrom<String> for ArgumentPath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

fn unescape(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// Writes a name as a step of a pointer.
pub(crate) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn select<'a>(value: &'a Value, steps: &[String], found: &mut Vec<&'a Value>) {
    let [step, rest @ ..] = steps else {
        return found.push(value);
    };
    match value {
        Value::Object(members) if step == "*" => {
            members
                .values()
                .for_each(|member| select(member, rest, found));
        }
        Value::Array(items) if step == "*" => {
            items.iter().for_each(|item| select(item, rest, found));
        }
        Value::Object(members) => {
            if let Some(member) = members.get(step) {
                select(member, rest, found);
            }
        }
        Value::Array(items) => {
            if let Some(item) = step.parse().ok().and_then(|at: usize| items.get(at)) {
                select(item, rest, found);
            }
        }
        _ => {}
    }
}

fn clear(value: &mut Value, steps: &[String]) {
    let [step, rest @ ..] = steps else {
        *value = Value::Null;
        return;
    };
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                if step == "*" || step == name {
                    clear(member, rest);
                }
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                if step == "*" || step.parse() == Ok(at) {
                    clear(item, rest);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn path(text: &str) -> ArgumentPath {
        ArgumentPath::parse(text).unwrap()
    }

    #[test]
    fn pointer_selects_members_elements_and_all_of_them() {
        let value = json!({"to": "a", "items": [{"id": 1}, {"id": 2}], "a/b": {"~": 3}});
        assert_eq!(path("/to").select(&value), [&json!("a")]);
        assert_eq!(path("/items/*/id").select(&value), [&json!(1), &json!(2)]);
        assert_eq!(path("/items/1/id").select(&value), [&json!(2)]);
        assert_eq!(path("/a~1b/~0").select(&value), [&json!(3)]);
        assert!(path("/to/x").select(&value).is_empty());
        assert_eq!(escape("a/b~"), "a~1b~0");
    }

    #[test]
    fn cleared_parts_become_null() {
        let mut value = json!({"note": "x", "items": [{"id": 1, "note": "y"}]});
        path("/note").clear(&mut value);
        path("/items/*/note").clear(&mut value);
        path("/absent/*").clear(&mut value);
        assert_eq!(
            value,
            json!({"note": null, "items": [{"id": 1, "note": null}]})
        );
    }

    #[test]
    fn malformed_pointer_is_refused() {
        assert!(ArgumentPath::parse("to").unwrap_err().contains("slash"));
        assert!(ArgumentPath::parse(&format!("/{}", "a".repeat(300))).is_err());
        assert!(serde_json::from_value::<ArgumentPath>(json!("to")).is_err());
    }
}
