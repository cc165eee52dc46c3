//! [`Catalog`]: the tool list of a server. It remembers what the server declares, and adds the key
//! argument to the list that callers see.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use semel::core::Tick;
use serde_json::json;
use serde_json::value::RawValue;

use crate::hints::Hints;
use crate::members::Members;
use crate::settings::Settings;

/// The key argument that every protected tool gains, and its other accepted spelling.
pub(crate) const KEY: &str = "idempotencyKey";
pub(crate) const KEY_SNAKE_CASE: &str = "idempotency_key";

/// The flag that tools with a rule about identity gain.
pub(crate) const NEW_CALL: &str = "newCall";

/// The largest number of tools remembered. Further tools are treated as if the server declared
/// nothing.
const MAX_TOOLS: usize = 10_000;
/// How long the gateway waits before it asks again for a list that failed.
const LIST_RETRY: Duration = Duration::from_secs(30);

/// What the server declares about a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolFacts {
    pub(crate) hints: Hints,
    /// Whether the tool itself declares an argument of this name, and so receives it.
    pub(crate) declares_key: bool,
    pub(crate) declares_snake_case_key: bool,
    /// Whether the tool itself declares the flag.
    pub(crate) declares_new_call: bool,
    /// Whether the tool declares the form of its results, which clients check.
    pub(crate) declares_output: bool,
}

/// The names of the arguments that a tool declares.
pub(crate) type ArgumentNames = Arc<BTreeSet<String>>;

/// The known tools of one server.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    tools: RwLock<HashMap<String, (ToolFacts, ArgumentNames)>>,
    /// Whether the whole list was read since the server last announced a change.
    whole: RwLock<bool>,
    /// The principal of the last failed list request, and its time. Another principal may succeed.
    failed: RwLock<Option<(String, Tick)>>,
}

impl Catalog {
    pub(crate) fn get(&self, tool: &str) -> Option<ToolFacts> {
        self.tools.read().get(tool).map(|(facts, _)| *facts)
    }

    pub(crate) fn argument_names(&self, tool: &str) -> Option<ArgumentNames> {
        let tools = self.tools.read();
        tools.get(tool).map(|(_, names)| Arc::clone(names))
    }

    /// Whether a list request as this principal would bring nothing new about the tool.
    pub(crate) fn needs_no_listing(&self, tool: &str, principal: &str, now: Tick) -> bool {
        let failed = self.failed.read();
        let failed_lately = failed
            .as_ref()
            .is_some_and(|(whose, when)| whose == principal && now.since(*when) < LIST_RETRY);
        failed_lately || *self.whole.read() || self.get(tool).is_some()
    }

    /// Remembers that the server gave this principal no list, so that not every call asks again.
    pub(crate) fn mark_failed(&self, principal: &str, now: Tick) {
        *self.failed.write() = Some((principal.to_owned(), now));
    }

    pub(crate) fn mark_complete(&self) {
        *self.whole.write() = true;
    }

    /// The server announced a change of its list. Known tools stay known until they are listed
    /// again, so protected tools stay protected.
    pub(crate) fn mark_changed(&self) {
        *self.whole.write() = false;
        *self.failed.write() = None;
    }

    fn learn(&self, name: &str, facts: ToolFacts, arguments: ArgumentNames) {
        let mut tools = self.tools.write();
        if tools.len() < MAX_TOOLS || tools.contains_key(name) {
            tools.insert(name.to_owned(), (facts, arguments));
        }
    }

    /// Reads a page of the server's list. Returns the page for the caller, and the next cursor.
    pub(crate) fn read_page(
        &self,
        response: &Bytes,
        settings: &Settings,
    ) -> (Bytes, Option<String>) {
        let changed = Members::parse(response).and_then(|message| {
            let result = message.object("result")?;
            let tools = result.read::<Vec<Box<RawValue>>>("tools")?;
            Some((message, result, tools))
        });
        let Some((mut message, mut result, mut tools)) = changed else {
            return (response.clone(), None);
        };
        for tool in &mut tools {
            if let Some(changed) = self.learn_and_change(tool, settings) {
                *tool = changed;
            }
        }
        let next = result.read::<String>("nextCursor");
        if next.is_none() {
            self.mark_complete();
            if settings.enforces() && self.get(STATUS_TOOL).is_none() {
                tools.extend(serde_json::value::to_raw_value(&status_tool()).ok());
            }
        }
        result.set("tools", &tools);
        message.set("result", &result);
        (message.to_bytes().into(), next)
    }

    /// Remembers a tool. Returns the changed tool if it gains an argument.
    fn learn_and_change(&self, tool: &RawValue, settings: &Settings) -> Option<Box<RawValue>> {
        let mut tool = Members::from_raw(tool)?;
        let name = tool.read::<String>("name")?;
        let hints = Hints::from_tool(&tool);
        let mut schema = tool.object("inputSchema")?;
        let mut properties = schema.object("properties").unwrap_or_default();
        let facts = ToolFacts {
            hints,
            declares_key: properties.has(KEY),
            declares_snake_case_key: properties.has(KEY_SNAKE_CASE),
            declares_new_call: properties.has(NEW_CALL),
            declares_output: tool.has("outputSchema"),
        };
        let arguments = properties.names().map(str::to_owned).collect();
        self.learn(&name, facts, Arc::new(arguments));
        if settings.treatment(&name, hints).bypass || !settings.enforces() {
            return None;
        }
        let gains_key = !facts.declares_key && !facts.declares_snake_case_key;
        let gains_flag = settings.identity_rule(&name).is_some() && !facts.declares_new_call;
        if !gains_key && !gains_flag {
            return None;
        }
        if gains_key {
            properties.set(KEY, &key_argument());
        }
        if gains_flag {
            properties.set(NEW_CALL, &new_call_argument());
        }
        schema.set("properties", &properties);
        tool.set("inputSchema", &schema);
        serde_json::value::to_raw_value(&tool).ok()
    }
}

/// The name of the built-in tool that reports what became of a call.
pub(crate) const STATUS_TOOL: &str = "semel_status";

/// The built-in tool as an entry of the list.
fn status_tool() -> serde_json::Value {
    json!({
        "name": STATUS_TOOL,
        "description": "Tells what became of an earlier tool call with an idempotencyKey: whether it \
            took effect, is still running, or is in doubt. Changes nothing.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "tool": {"type": "string", "description": "The name of the tool that was called."},
                "idempotencyKey": {
                    "type": "string",
                    "description": "The key that it was called with.",
                },
            },
            "required": ["tool", "idempotencyKey"],
        },
        "annotations": {"title": "Status of a call", "readOnlyHint": true, "openWorldHint": false},
    })
}

/// The schema of the argument that protected tools gain.
fn key_argument() -> serde_json::Value {
    json!({
        "type": "string",
        "maxLength": 255,
        "description": "Optional. Makes retries safe: choose a new value (such as a UUID) for each \
            action that you intend, and repeat the same value when you call again because no \
            result came. The action then happens once, and every call gets its result.",
    })
}

/// The schema of the flag that tools with a rule about identity gain.
fn new_call_argument() -> serde_json::Value {
    json!({
        "type": "boolean",
        "description": "Leave this out at first. If a call was held because it resembles an earlier \
            one: true says that a second, separate action is meant; false says that it is the \
            earlier call again, and gets its result.",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn listed(list: &Value) -> (Value, Option<String>, Catalog) {
        let catalog = Catalog::default();
        let text = Bytes::from(serde_json::to_vec(list).unwrap());
        let (page, next) = catalog.read_page(&text, &Settings::new("test"));
        (serde_json::from_slice(&page).unwrap(), next, catalog)
    }

    #[test]
    fn protected_tools_gain_only_the_key_argument() {
        let list = json!({"jsonrpc": "2.0", "id": 7, "result": {"tools": [
            {"name": "pay", "x-later": 1.0, "inputSchema": {"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}}},
            {"name": "look", "annotations": {"readOnlyHint": true}, "inputSchema": {"type": "object"}},
            {"name": "own", "inputSchema": {"type": "object", "properties": {"idempotency_key": {}}}},
        ], "ttlMs": 5}});
        let (mut page, next, catalog) = listed(&list);
        assert_eq!(next, None);
        let tools = page["result"]["tools"].as_array_mut().unwrap();
        assert_eq!(tools.pop().unwrap()["name"], STATUS_TOOL);
        let properties = tools[0]["inputSchema"]["properties"]
            .as_object_mut()
            .unwrap();
        assert_eq!(properties.remove(KEY).unwrap()["type"], "string");
        assert_eq!(page, list);
        assert!(catalog.get("own").unwrap().declares_snake_case_key);
        assert!(catalog.get("look").unwrap().hints.read_only);
        assert!(*catalog.whole.read());
    }

    #[test]
    fn tools_with_a_rule_about_identity_gain_the_flag() {
        let mut settings = Settings::new("test");
        settings.tools.push(crate::settings::ToolRule {
            name: "p*".to_owned(),
            ignore: Some(vec![crate::pointer::ArgumentPath::parse("/note").unwrap()]),
            ..Default::default()
        });
        let own = json!({"idempotency_key": {}, NEW_CALL: {"type": "string"}});
        let list = json!({"id": 7, "result": {"tools": [
            {"name": "pay", "inputSchema": {"properties": {"idempotencyKey": {}}}},
            {"name": "put", "inputSchema": {"properties": own}},
            {"name": "mail", "inputSchema": {"properties": {}}},
        ], "nextCursor": "2"}});
        let catalog = Catalog::default();
        let text = Bytes::from(serde_json::to_vec(&list).unwrap());
        let page: Value = serde_json::from_slice(&catalog.read_page(&text, &settings).0).unwrap();
        let gained = |n: usize| &page["result"]["tools"][n]["inputSchema"]["properties"][NEW_CALL];
        assert_eq!(gained(0)["type"], "boolean");
        assert_eq!(gained(1)["type"], "string", "its own");
        assert!(gained(2).is_null());
        assert!(catalog.get("put").unwrap().declares_new_call);
    }

    #[test]
    fn status_tool_is_on_the_last_page_unless_the_server_has_one() {
        let page = json!({"id": 1, "result": {"tools": [{"name": "semel_status", "inputSchema": {}}], "nextCursor": "2"}});
        let (page, next, catalog) = listed(&page);
        assert_eq!(next.as_deref(), Some("2"));
        assert_eq!(page["result"]["tools"].as_array().unwrap().len(), 1);
        assert!(!*catalog.whole.read());
        let last = Bytes::from_static(br#"{"id":2,"result":{"tools":[]}}"#);
        assert_eq!(catalog.read_page(&last, &Settings::new("test")).0, last);
    }

    #[test]
    fn list_errors_pass_unchanged() {
        let error = Bytes::from_static(br#"{"id":1,"error":{"code":-32601,"message":"none"}}"#);
        assert_eq!(
            Catalog::default()
                .read_page(&error, &Settings::new("test"))
                .0,
            error
        );
    }

    #[test]
    fn failed_list_is_retried_later_or_for_another_principal() {
        let catalog = Catalog::default();
        let now = Tick::new(Duration::from_secs(1000));
        assert!(!catalog.needs_no_listing("pay", "ann", now));
        catalog.mark_failed("ann", now);
        assert!(catalog.needs_no_listing("pay", "ann", now));
        assert!(!catalog.needs_no_listing("pay", "bob", now));
        assert!(!catalog.needs_no_listing("pay", "ann", now.plus(LIST_RETRY)));
        catalog.mark_changed();
        assert!(!catalog.needs_no_listing("pay", "ann", now));
    }
}
