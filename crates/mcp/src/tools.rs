//! The server's tools as it lists them: what it says of each, and what a list is changed to on its way to the caller.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use semel::core::Tick;
use serde_json::json;
use serde_json::value::RawValue;

use crate::members::Members;
use crate::settings::Settings;
use crate::status;

/// The argument that every protected tool gains, and the other name that it is taken under.
pub(crate) const KEY: &str = "idempotencyKey";
pub(crate) const KEY_TOO: &str = "idempotency_key";

/// The most tools remembered; a server with more has them treated as if it said nothing of them.
const MOST_TOOLS: usize = 10_000;
/// How long a server that gave no list is not asked for it again.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// What a server says of a tool. What it leaves out is what the protocol takes for granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hints {
    pub(crate) read_only: bool,
    pub(crate) idempotent: bool,
    pub(crate) destructive: bool,
}

impl Default for Hints {
    fn default() -> Self {
        Self {
            read_only: false,
            idempotent: false,
            destructive: true,
        }
    }
}

impl Hints {
    pub(crate) fn of(tool: &Members) -> Self {
        let hints = tool.object("annotations").unwrap_or_default();
        let or = |name, otherwise| hints.read::<bool>(name).unwrap_or(otherwise);
        Self {
            read_only: or("readOnlyHint", false),
            idempotent: or("idempotentHint", false),
            destructive: or("destructiveHint", true),
        }
    }
}

/// What is known of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) hints: Hints,
    /// Whether the tool itself takes an argument of these names, so that it has to be passed on.
    pub(crate) takes_key: bool,
    pub(crate) takes_key_too: bool,
}

/// The tools of one server, as far as they were listed.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    tools: RwLock<HashMap<String, Known>>,
    /// Whether a whole list was seen since the server last said that it changed.
    whole: RwLock<bool>,
    /// Who got no list last, and when. Another may get one.
    failed: RwLock<Option<(String, Tick)>>,
}

impl Catalog {
    pub(crate) fn get(&self, tool: &str) -> Option<Known> {
        self.tools.read().get(tool).copied()
    }

    /// Whether asking the server for its list, as this principal, could teach us nothing about the tool.
    pub(crate) fn is_enough(&self, tool: &str, principal: &str, now: Tick) -> bool {
        let failed = self.failed.read();
        let failed_lately = failed
            .as_ref()
            .is_some_and(|(whose, when)| whose == principal && now.since(*when) < ASK_AGAIN);
        failed_lately || *self.whole.read() || self.get(tool).is_some()
    }

    /// The server gave this principal no list: to ask again for every call would be in vain, and take its time.
    pub(crate) fn failed(&self, principal: &str, now: Tick) {
        *self.failed.write() = Some((principal.to_owned(), now));
    }

    pub(crate) fn set_whole(&self) {
        *self.whole.write() = true;
    }

    /// The server says that its list has changed. What was known is kept until it is listed anew: a tool that was
    /// protected stays so.
    pub(crate) fn changed(&self) {
        *self.whole.write() = false;
        *self.failed.write() = None;
    }

    fn learn(&self, name: &str, known: Known) {
        let mut tools = self.tools.write();
        if tools.len() < MOST_TOOLS || tools.contains_key(name) {
            tools.insert(name.to_owned(), known);
        }
    }

    /// Reads a page of the server's list. → the page as the caller is to see it, and where it goes on.
    pub(crate) fn page(&self, response: &Bytes, settings: &Settings) -> (Bytes, Option<String>) {
        let changed = Members::parse(response).and_then(|message| {
            let result = message.object("result")?;
            let tools = result.read::<Vec<Box<RawValue>>>("tools")?;
            Some((message, result, tools))
        });
        let Some((mut message, mut result, mut tools)) = changed else {
            return (response.clone(), None);
        };
        for tool in &mut tools {
            if let Some(changed) = self.tool(tool, settings) {
                *tool = changed;
            }
        }
        let next = result.read::<String>("nextCursor");
        if next.is_none() {
            self.set_whole();
            if settings.enforces() && self.get(status::NAME).is_none() {
                tools.extend(serde_json::value::to_raw_value(&status::tool()).ok());
            }
        }
        result.set("tools", &tools);
        message.set("result", &result);
        (message.to_bytes().into(), next)
    }

    /// Learns a tool. → the tool with the argument added, where it is protected.
    fn tool(&self, tool: &RawValue, settings: &Settings) -> Option<Box<RawValue>> {
        let mut tool = Members::of(tool)?;
        let name = tool.read::<String>("name")?;
        let hints = Hints::of(&tool);
        let mut schema = tool.object("inputSchema")?;
        let mut properties = schema.object("properties").unwrap_or_default();
        let known = Known {
            hints,
            takes_key: properties.has(KEY),
            takes_key_too: properties.has(KEY_TOO),
        };
        self.learn(&name, known);
        let passes = settings.treatment(&name, hints).bypass || !settings.enforces();
        if passes || known.takes_key || known.takes_key_too {
            return None;
        }
        properties.set(KEY, &argument());
        schema.set("properties", &properties);
        tool.set("inputSchema", &schema);
        serde_json::value::to_raw_value(&tool).ok()
    }
}

fn argument() -> serde_json::Value {
    json!({
        "type": "string",
        "maxLength": 255,
        "description": "Optional. Makes it safe to call again: choose a new value (such as a UUID) for each action \
            that you intend, and repeat the same value when you call again because no result came. The action \
            then happens once, and every call gets its result.",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn listed(list: &Value) -> (Value, Option<String>, Catalog) {
        let catalog = Catalog::default();
        let text = Bytes::from(serde_json::to_vec(list).unwrap());
        let (page, next) = catalog.page(&text, &Settings::new("test"));
        (serde_json::from_slice(&page).unwrap(), next, catalog)
    }

    #[test]
    fn protected_tools_gain_the_argument_and_nothing_else_changes() {
        let list = json!({"jsonrpc": "2.0", "id": 7, "result": {"tools": [
            {"name": "pay", "x-later": 1.0, "inputSchema": {"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}}},
            {"name": "look", "annotations": {"readOnlyHint": true}, "inputSchema": {"type": "object"}},
            {"name": "own", "inputSchema": {"type": "object", "properties": {"idempotency_key": {}}}},
        ], "ttlMs": 5}});
        let (mut page, next, catalog) = listed(&list);
        assert_eq!(next, None);
        let tools = page["result"]["tools"].as_array_mut().unwrap();
        assert_eq!(tools.pop().unwrap()["name"], status::NAME);
        let properties = tools[0]["inputSchema"]["properties"]
            .as_object_mut()
            .unwrap();
        assert_eq!(properties.remove(KEY).unwrap()["type"], "string");
        assert_eq!(page, list);
        assert!(catalog.get("own").unwrap().takes_key_too);
        assert!(catalog.get("look").unwrap().hints.read_only);
        assert!(*catalog.whole.read());
    }

    #[test]
    fn the_built_in_tool_is_on_the_last_page_only_and_never_hides_the_servers_own() {
        let page = json!({"id": 1, "result": {"tools": [{"name": "semel_status", "inputSchema": {}}], "nextCursor": "2"}});
        let (page, next, catalog) = listed(&page);
        assert_eq!(next.as_deref(), Some("2"));
        assert_eq!(page["result"]["tools"].as_array().unwrap().len(), 1);
        assert!(!*catalog.whole.read());
        let last = Bytes::from_static(br#"{"id":2,"result":{"tools":[]}}"#);
        assert_eq!(catalog.page(&last, &Settings::new("test")).0, last);
    }

    #[test]
    fn an_error_passes_as_it_is() {
        let error = Bytes::from_static(br#"{"id":1,"error":{"code":-32601,"message":"none"}}"#);
        assert_eq!(
            Catalog::default().page(&error, &Settings::new("test")).0,
            error
        );
    }

    #[test]
    fn a_server_that_gave_no_list_is_asked_again_after_a_while_and_for_another_at_once() {
        let catalog = Catalog::default();
        let now = Tick::new(Duration::from_secs(1000));
        assert!(!catalog.is_enough("pay", "ann", now));
        catalog.failed("ann", now);
        assert!(catalog.is_enough("pay", "ann", now));
        assert!(!catalog.is_enough("pay", "bob", now));
        assert!(!catalog.is_enough("pay", "ann", now.plus(ASK_AGAIN)));
        catalog.changed();
        assert!(!catalog.is_enough("pay", "ann", now));
    }
}
