//! [`VerifyRule`]: how to find out whether a call took effect, by calling another tool.

use std::collections::BTreeMap;
use std::time::Duration;

use semel::core::event::LookupResult;
use serde::Deserialize;
use serde_json::Value;

use crate::pointer::ArgumentPath;

/// The most arguments of a lookup.
const MAX_ARGUMENTS: usize = 32;
/// The most lookups for one doubt and request.
const MAX_ATTEMPTS: u16 = 20;
/// The longest pause between two lookups.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(30);

/// How to find out whether a call of a tool took effect: the gateway calls another tool of the same
/// server, which only reads, and judges its result.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifyRule {
    /// The tool to call.
    pub tool: String,
    /// The arguments of the lookup.
    pub arguments: BTreeMap<String, LookupArgument>,
    /// The call took effect if this holds for the lookup's result.
    pub done: Option<LookupCondition>,
    /// The call did not take effect if this holds for the lookup's result.
    pub not_done: Option<LookupCondition>,
    /// How long after the last sign of life of a call `not_done` is believed. Before that the
    /// server may still be working on the call.
    pub after: Duration,
    /// How many lookups are made for one doubt and request.
    pub attempts: u16,
    /// The pause before the second lookup. It doubles from then on, up to 30 s.
    pub pause: Duration,
}

/// Where an argument of a lookup comes from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "a JSON pointer to an argument of the call, such as \"/to\", or { value = … }, or \
                 { downstream_key = true }"
)]
pub enum LookupArgument {
    /// An argument of the call, named by a JSON pointer.
    Call(ArgumentPath),
    /// The key that the call carried for the systems behind the server.
    Key {
        /// Has to be `true`.
        downstream_key: bool,
    },
    /// Always the same value.
    Value {
        /// The value.
        value: Value,
    },
}

/// A condition on the result of a lookup.
///
/// It looks at `structuredContent`, or else at the first text if that is JSON.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LookupCondition {
    /// The part of the result that counts, as a JSON pointer. All of it by default.
    pub at: Option<ArgumentPath>,
    /// Holds if the part has this value, or one of these.
    pub equals: Option<Value>,
    /// Holds if a text in the part, or in the result's content, contains this.
    pub contains: Option<String>,
    /// Holds if the part is there (`true`) or absent, null or empty (`false`).
    pub exists: Option<bool>,
    /// Whether the condition is about results with `isError`.
    pub error: bool,
}

impl VerifyRule {
    /// A rule with the default bounds: three lookups, one second apart at first.
    #[must_use]
    pub fn new(tool: &str) -> Self {
        Self {
            tool: tool.to_owned(),
            arguments: BTreeMap::new(),
            done: None,
            not_done: None,
            after: Duration::from_secs(600),
            attempts: 3,
            pause: Duration::from_secs(1),
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let conditions = [&self.done, &self.not_done];
        if self.tool.is_empty() || self.tool.contains('*') {
            return Err("verify names one tool, without `*`".to_owned());
        }
        if conditions.iter().all(|condition| condition.is_none()) {
            return Err("verify needs a condition: done, not_done or both".to_owned());
        }
        if self.arguments.len() > MAX_ARGUMENTS {
            return Err(format!("verify has at most {MAX_ARGUMENTS} arguments"));
        }
        if self.attempts == 0 || self.attempts > MAX_ATTEMPTS {
            return Err(format!("verify makes 1 to {MAX_ATTEMPTS} attempts"));
        }
        if self.pause > MAX_PAUSE {
            return Err("verify pauses at most 30s".to_owned());
        }
        let keys = |argument: &LookupArgument| {
            !matches!(
                argument,
                LookupArgument::Key {
                    downstream_key: false
                }
            )
        };
        if !self.arguments.values().all(keys) {
            return Err("downstream_key can only be true".to_owned());
        }
        let mut conditions = conditions.into_iter().flatten();
        conditions.try_for_each(LookupCondition::check)
    }

    /// The arguments of the lookup for a call. `None` if the call lacks one of them.
    pub(crate) fn lookup_arguments(&self, call: &Value, key: Option<&str>) -> Option<Value> {
        let read = |argument: &LookupArgument| match argument {
            LookupArgument::Call(path) => match path.select(call).as_slice() {
                [one] => Some((*one).clone()),
                _ => None,
            },
            LookupArgument::Key { .. } => key.map(Value::from),
            LookupArgument::Value { value } => Some(value.clone()),
        };
        let arguments = self.arguments.iter();
        arguments
            .map(|(name, argument)| Some((name.clone(), read(argument)?)))
            .collect::<Option<serde_json::Map<_, _>>>()
            .map(Value::Object)
    }

    /// What the result of a lookup says. A result for which both conditions hold says nothing.
    pub(crate) fn judge(&self, result: &Value) -> LookupResult {
        let holds = |condition: &Option<LookupCondition>| {
            let condition = condition.as_ref();
            condition.is_some_and(|condition| condition.holds(result))
        };
        match (holds(&self.done), holds(&self.not_done)) {
            (true, false) => LookupResult::Done,
            (false, true) => LookupResult::NotDone,
            _ => LookupResult::Unknown,
        }
    }
}

impl LookupCondition {
    fn check(&self) -> Result<(), String> {
        if self.equals.is_none() && self.contains.is_none() && self.exists.is_none() {
            return Err("a condition needs equals, contains or exists".to_owned());
        }
        if self.contains.as_deref() == Some("") {
            return Err("every text contains an empty one".to_owned());
        }
        Ok(())
    }

    fn holds(&self, result: &Value) -> bool {
        let failed = result["isError"].as_bool().unwrap_or(false);
        if failed != self.error {
            return false;
        }
        let said = structured(result);
        let found: Vec<&Value> = match (&self.at, &said) {
            (Some(path), Some(said)) => path.select(said),
            (None, Some(said)) => vec![said],
            (_, None) => Vec::new(),
        };
        let equals = |wanted: &Value| {
            let is = |value: &Value| match wanted {
                Value::Array(many) => many.contains(value) || wanted == value,
                one => one == value,
            };
            found.iter().any(|value| is(value))
        };
        let contains = |part: &String| {
            let inside = |value: &&Value| value.as_str().is_some_and(|text| text.contains(part));
            match &self.at {
                Some(_) => found.iter().any(inside),
                None => texts(result).any(|text| text.contains(part)),
            }
        };
        // A result that can't be read has no part, so its absence proves nothing.
        let exists =
            |wanted: bool| said.is_some() && found.iter().any(|value| !is_empty(value)) == wanted;
        self.equals.as_ref().is_none_or(equals)
            && self.contains.as_ref().is_none_or(contains)
            && self.exists.is_none_or(exists)
    }
}

/// The data in a result: `structuredContent`, or else the first text if that is JSON.
fn structured(result: &Value) -> Option<Value> {
    match result.get("structuredContent") {
        Some(content) if !content.is_null() => Some(content.clone()),
        _ => serde_json::from_str(texts(result).next()?).ok(),
    }
}

fn texts(result: &Value) -> impl Iterator<Item = &str> {
    let content = result["content"].as_array().into_iter().flatten();
    content.filter_map(|part| part["text"].as_str())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> Option<ArgumentPath> {
        Some(ArgumentPath::parse(text).unwrap())
    }

    fn condition(json: Value) -> LookupCondition {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn condition_reads_structured_content_or_text_that_is_json() {
        let paid = json!({"at": "/status", "equals": ["paid", "settled"]});
        let holds = |result: Value| condition(paid.clone()).holds(&result);
        assert!(holds(json!({"structuredContent": {"status": "settled"}})));
        let text = json!({"content": [{"type": "text", "text": "{\"status\":\"paid\"}"}]});
        assert!(holds(text));
        assert!(!holds(json!({"structuredContent": {"status": "open"}})));
        assert!(!holds(json!({"content": [{"text": "status: paid"}]})));
        assert!(!holds(
            json!({"isError": true, "structuredContent": {"status": "paid"}})
        ));
        assert!(!holds(json!({})));
    }

    #[test]
    fn absence_is_only_believed_of_a_result_that_can_be_read() {
        let absent = condition(json!({"at": "/payments", "exists": false}));
        for none in [json!([]), json!(null)] {
            assert!(absent.holds(&json!({"structuredContent": {"payments": none}})));
        }
        assert!(absent.holds(&json!({"structuredContent": {"other": 1}})));
        assert!(!absent.holds(&json!({"structuredContent": {"payments": [{"id": 1}]}})));
        assert!(!absent.holds(&json!({"content": [{"text": "the service is down"}]})));
        assert!(!absent.holds(&json!({"isError": true, "content": []})));
    }

    #[test]
    fn text_and_errors_are_found_where_the_condition_says() {
        let text = condition(json!({"contains": "not found", "error": true}));
        let failed = json!({"isError": true, "content": [{"text": "payment not found"}]});
        assert!(text.holds(&failed));
        assert!(!text.holds(&json!({"content": [{"text": "payment not found"}]})));
        let part = condition(json!({"at": "/note", "contains": "rent"}));
        assert!(part.holds(&json!({"structuredContent": {"note": "the rent"}})));
        assert!(
            !part.holds(&json!({"content": [{"text": "rent"}], "structuredContent": {"note": ""}}))
        );
    }

    #[test]
    fn result_for_which_both_conditions_hold_says_nothing() {
        let mut rule = VerifyRule::new("find");
        rule.done = Some(condition(json!({"at": "/id", "exists": true})));
        rule.not_done = Some(condition(json!({"at": "/open", "equals": true})));
        let judge = |said: Value| rule.judge(&json!({"structuredContent": said}));
        assert_eq!(judge(json!({"id": 1})), LookupResult::Done);
        assert_eq!(judge(json!({"open": true})), LookupResult::NotDone);
        assert_eq!(judge(json!({"id": 1, "open": true})), LookupResult::Unknown);
        assert_eq!(judge(json!({})), LookupResult::Unknown);
    }

    #[test]
    fn lookup_takes_its_arguments_from_the_call() {
        let mut rule = VerifyRule::new("find");
        let argument = |json: Value| serde_json::from_value::<LookupArgument>(json).unwrap();
        rule.arguments = BTreeMap::from([
            ("reference".to_owned(), argument(json!("/invoice/id"))),
            ("limit".to_owned(), argument(json!({"value": 1}))),
        ]);
        let call = json!({"invoice": {"id": "i-7"}, "note": "rent"});
        let expected = json!({"reference": "i-7", "limit": 1});
        assert_eq!(rule.lookup_arguments(&call, None), Some(expected));
        assert_eq!(rule.lookup_arguments(&json!({}), None), None);
        let key = argument(json!({"downstream_key": true}));
        rule.arguments.insert("key".to_owned(), key);
        assert_eq!(rule.lookup_arguments(&call, None), None);
        let with_key = rule.lookup_arguments(&call, Some("k")).unwrap();
        assert_eq!(with_key["key"], "k");
    }

    #[test]
    fn rules_that_cannot_work_are_refused() {
        let good = {
            let mut rule = VerifyRule::new("find");
            rule.done = Some(LookupCondition {
                at: path("/id"),
                exists: Some(true),
                ..LookupCondition::default()
            });
            rule
        };
        assert_eq!(good.check(), Ok(()));
        let changed = |change: fn(&mut VerifyRule)| {
            let mut rule = good.clone();
            change(&mut rule);
            rule.check().unwrap_err()
        };
        assert!(changed(|rule| rule.tool = "find_*".to_owned()).contains("one tool"));
        assert!(changed(|rule| rule.done = None).contains("condition"));
        assert!(changed(|rule| rule.attempts = 0).contains("1 to 20"));
        assert!(changed(|rule| rule.pause = MAX_PAUSE * 2).contains("30s"));
        assert!(changed(|rule| rule.done = Some(LookupCondition::default())).contains("equals"));
    }
}
