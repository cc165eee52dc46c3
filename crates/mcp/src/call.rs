//! [`Call`]: a `tools/call` on its way in: whose, which tool, which key, which arguments.

use bytes::Bytes;
use semel::core::{Fingerprint, FingerprintBuilder, Key, KeyError};
use semel::{KeyRules, Secret};
use serde_json::value::RawValue;

use crate::members::Members;
use crate::message::{Id, Kind, Message};
use crate::settings::{KeyRule, hex};
use crate::tools::{KEY, KEY_TOO, Known};

/// The members of `_meta` that a key is taken from.
const IN_META: [&str; 3] = [KEY, KEY_TOO, "semel/idempotencyKey"];

/// What the systems behind a server may take as the key of what they are asked to do.
pub(crate) const DOWNSTREAM: &str = "semel/downstreamKey";

/// How a derived key begins.
pub(crate) const DERIVED: &str = "auto-";

/// How a request of the protocol without sessions says which one it is.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// Whose calls these are.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The authenticated caller, or nobody in particular. Keys of two never meet.
    pub principal: String,
    /// A digest of the credentials of a caller of whom nobody says who it is. They count as part of what is asked for: a key
    /// that is used with others is refused, and a token that was refreshed doesn't make a new key.
    pub credentials: String,
    /// The conversation: calls of two are never taken for the same one without a key.
    pub session: String,
    /// Path and query of another server behind the same address, whose keys never meet those of the server that the
    /// gateway stands for; empty where it is that one.
    pub path: String,
}

/// A call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: Id,
    pub(crate) tool: String,
    message: Members,
    params: Members,
    arguments: Option<Members>,
    meta: Members,
}

/// The key of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallKey {
    /// The caller's.
    Given(Key),
    /// Made of the call itself, good for a window of time.
    Derived(Key),
    /// There is none, and none is needed.
    None,
}

/// Why a call has no usable key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoKey {
    #[error("the idempotencyKey is not a string")]
    NotText,
    #[error("two different idempotency keys were given")]
    Two,
    #[error("{0}")]
    Unfit(#[from] KeyError),
    #[error("this tool is only called with an idempotencyKey")]
    Missing,
}

impl Call {
    /// Reads a `tools/call`; nothing where the message is none, or names no tool.
    pub(crate) fn read(message: &Message) -> Option<Self> {
        let Kind::Request { id, method } = &message.kind else {
            return None;
        };
        if method != "tools/call" {
            return None;
        }
        let members = Members::parse(&message.text)?.last_of_each();
        let params = members.object("params")?.last_of_each();
        Some(Self {
            id: id.clone(),
            tool: params.read("name")?,
            arguments: params.object("arguments"),
            meta: params.object("_meta").unwrap_or_default().last_of_each(),
            message: members,
            params,
        })
    }

    pub(crate) fn argument(&self, name: &str) -> Option<String> {
        self.arguments.as_ref()?.read(name)
    }

    /// Whether it seems to bring a key, under any name.
    pub(crate) fn brings_key(&self) -> bool {
        let in_arguments = self
            .arguments
            .as_ref()
            .is_some_and(|arguments| arguments.has(KEY) || arguments.has(KEY_TOO));
        in_arguments || IN_META.into_iter().any(|name| self.meta.has(name))
    }

    /// Whether its answer has to say that it is whole, as the protocol without sessions wants it.
    pub(crate) fn is_modern(&self) -> bool {
        self.meta.has(VERSION)
    }

    /// Whether the caller wants a task to ask about, and not the result itself.
    pub(crate) fn is_task(&self) -> bool {
        self.params.has("task")
    }

    /// Takes the key out of the arguments, but for a tool that takes one of that name itself.
    pub(crate) fn take_key(
        &mut self,
        known: Known,
        rules: &KeyRules,
    ) -> Result<Option<Key>, NoKey> {
        let mut found: Option<String> = None;
        let from = self.arguments.iter().flat_map(|arguments| {
            let names = [KEY, KEY_TOO];
            names.into_iter().filter_map(|name| arguments.get(name))
        });
        let in_meta = IN_META.into_iter().filter_map(|name| self.meta.get(name));
        for raw in from.chain(in_meta) {
            let Some(text) = text(raw)? else { continue };
            match &found {
                Some(other) if *other != text => return Err(NoKey::Two),
                _ => found = Some(text),
            }
        }
        if let Some(arguments) = &mut self.arguments {
            for (name, is_its_own) in [(KEY, known.takes_key), (KEY_TOO, known.takes_key_too)] {
                if !is_its_own {
                    arguments.remove(name);
                }
            }
        }
        Ok(found.map(|text| rules.check(&text)).transpose()?)
    }

    /// The key to run under.
    pub(crate) fn key(
        &self,
        given: Option<Key>,
        rule: KeyRule,
        caller: &Caller,
        secret: &Secret,
    ) -> Result<CallKey, NoKey> {
        match (given, rule) {
            (Some(key), _) => Ok(CallKey::Given(key)),
            (None, KeyRule::Optional) => Ok(CallKey::None),
            (None, KeyRule::Required) => Err(NoKey::Missing),
            (None, KeyRule::Derive) => {
                let parts = Fingerprint::builder(secret)
                    .part(b"mcp-derived-key")
                    .part(caller.principal.as_bytes())
                    .part(caller.session.as_bytes())
                    .part(self.tool.as_bytes());
                let digest = self.with_arguments(parts).finish();
                let digest = hex(&digest.as_bytes()[1..]);
                Ok(CallKey::Derived(Key::parse(&format!("{DERIVED}{digest}"))?))
            }
        }
    }

    /// What is asked for: the tool and its arguments, the key aside; and with which credentials, where there are some.
    pub(crate) fn fingerprint(&self, caller: &Caller, secret: &Secret) -> Fingerprint {
        let parts = Fingerprint::builder(secret)
            .part(b"mcp-call")
            .part(self.tool.as_bytes());
        let parts = self.with_arguments(parts);
        match caller.credentials.as_str() {
            "" => parts.finish(),
            digest => parts.part(digest.as_bytes()).finish(),
        }
    }

    fn with_arguments(&self, parts: FingerprintBuilder) -> FingerprintBuilder {
        let mut arguments = self.arguments.clone().unwrap_or_default();
        // Always, though some tools are sent theirs: what a call asks for must not depend on whether its tool's list was
        // seen before or after it.
        for name in [KEY, KEY_TOO] {
            arguments.remove(name);
        }
        let text = arguments.to_bytes();
        // What has no canonical form (a number past 2^53) counts by its bytes: the same call sent again has the same.
        match semel::core::canonicalize(&text) {
            Ok(canonical) => parts.part(&canonical),
            Err(_) => parts.part(&text),
        }
    }

    /// Asks for a page of the server's list as this caller would.
    pub(crate) fn list(&self, id: &Id, cursor: Option<&str>) -> Bytes {
        let mut params = Members::default();
        if let Some(cursor) = cursor {
            params.set("cursor", &cursor);
        }
        if self.is_modern() {
            let mut meta = self.meta.clone();
            for name in IN_META.into_iter().chain(["progressToken"]) {
                meta.remove(name);
            }
            params.set("_meta", &meta);
        }
        let mut message = Members::default();
        message.set("jsonrpc", &"2.0");
        message.set("id", &id.raw());
        message.set("method", &"tools/list");
        message.set("params", &params);
        message.to_bytes().into()
    }

    /// The message to send on.
    pub(crate) fn to_message(&self, downstream: Option<&str>) -> Bytes {
        let (mut message, mut params) = (self.message.clone(), self.params.clone());
        if let Some(arguments) = &self.arguments {
            params.set("arguments", arguments);
        }
        if let Some(key) = downstream {
            let mut meta = self.meta.clone();
            meta.set(DOWNSTREAM, &key);
            params.set("_meta", &meta);
        }
        message.set("params", &params);
        message.to_bytes().into()
    }
}

/// A key as text. Models fill what is optional with nothing, so nothing is no key.
fn text(raw: &RawValue) -> Result<Option<String>, NoKey> {
    let value: Option<String> = serde_json::from_str(raw.get()).map_err(|_| NoKey::NotText)?;
    Ok(value.filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn call(params: &Value) -> Call {
        let text = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        Call::read(&Message::new(Bytes::from(text.to_string()))).unwrap()
    }

    fn taken(params: &Value, known: Known) -> (Result<Option<Key>, NoKey>, Value) {
        let mut call = call(params);
        let key = call.take_key(known, &KeyRules::default());
        let message: Value = serde_json::from_slice(&call.to_message(None)).unwrap();
        (key, message["params"]["arguments"].clone())
    }

    #[test]
    fn a_key_is_taken_under_every_name_and_not_passed_on() {
        for params in [
            json!({"name": "pay", "arguments": {"to": "a", "idempotencyKey": "k-1"}}),
            json!({"name": "pay", "arguments": {"to": "a", "idempotency_key": "k-1"}}),
            json!({"name": "pay", "arguments": {"to": "a"}, "_meta": {"idempotencyKey": "k-1"}}),
            json!({"name": "pay", "arguments": {"to": "a"}, "_meta": {"idempotency_key": "k-1"}}),
            json!({"name": "pay", "arguments": {"to": "a", "idempotencyKey": "k-1"}, "_meta": {"idempotencyKey": "k-1"}}),
        ] {
            let (key, arguments) = taken(&params, Known::default());
            assert_eq!(key.unwrap(), Some(Key::parse("k-1").unwrap()), "{params}");
            assert_eq!(arguments, json!({"to": "a"}));
        }
    }

    #[test]
    fn a_tools_own_argument_of_that_name_is_passed_on() {
        let known = Known {
            takes_key: true,
            ..Known::default()
        };
        let params = json!({"name": "pay", "arguments": {"idempotencyKey": "k-1"}});
        let (key, arguments) = taken(&params, known);
        assert_eq!(key.unwrap(), Some(Key::parse("k-1").unwrap()));
        assert_eq!(arguments, json!({"idempotencyKey": "k-1"}));
    }

    #[test]
    fn a_call_asks_for_the_same_whatever_is_known_of_its_tool() {
        let of = |params: &Value, known: Known| {
            let mut call = call(params);
            call.take_key(known, &KeyRules::default()).unwrap();
            let secret = Secret::none();
            let derived = call.key(None, KeyRule::Derive, &Caller::default(), &secret);
            let fingerprint = call.fingerprint(&Caller::default(), &secret);
            (fingerprint, derived.unwrap())
        };
        for name in [KEY, KEY_TOO] {
            for key in [json!("k-1"), json!("")] {
                let params = json!({"name": "pay", "arguments": {"to": "a", name: key}});
                let before = of(&params, Known::default());
                for (takes_key, takes_key_too) in [(true, false), (false, true), (true, true)] {
                    let known = Known {
                        takes_key,
                        takes_key_too,
                        ..Known::default()
                    };
                    assert_eq!(before, of(&params, known), "{params}");
                }
            }
        }
        let others = json!({"name": "pay", "arguments": {"to": "b", KEY: "k-1"}});
        let params = json!({"name": "pay", "arguments": {"to": "a", KEY: "k-1"}});
        assert_ne!(of(&params, Known::default()), of(&others, Known::default()));
    }

    #[test]
    fn nothing_is_no_key_and_nonsense_is_refused_without_repeating_it() {
        for nothing in [json!(null), json!("")] {
            let params = json!({"name": "pay", "arguments": {"idempotencyKey": nothing}});
            assert_eq!(taken(&params, Known::default()).0.unwrap(), None);
        }
        for nonsense in [
            json!(7),
            json!("sk_live_secret with spaces"),
            json!({"a": 1}),
        ] {
            let params = json!({"name": "pay", "arguments": {"idempotencyKey": nonsense}});
            let told = taken(&params, Known::default()).0.unwrap_err().to_string();
            assert!(!told.contains("sk_live"), "{told}");
        }
        let two = json!({"name": "pay", "arguments": {"idempotencyKey": "a"}, "_meta": {"idempotencyKey": "b"}});
        assert!(matches!(taken(&two, Known::default()).0, Err(NoKey::Two)));
    }

    #[test]
    fn a_derived_key_is_of_principal_session_tool_and_the_meaning_of_the_arguments() {
        let secret = Secret::none();
        let derived = |params: &Value, principal: &str, session: &str| {
            let caller = Caller {
                principal: principal.to_owned(),
                session: session.to_owned(),
                ..Caller::default()
            };
            call(params)
                .key(None, KeyRule::Derive, &caller, &secret)
                .unwrap()
        };
        let one = derived(
            &json!({"name": "pay", "arguments": {"a": 1, "b": 2}}),
            "p",
            "s",
        );
        assert!(matches!(&one, CallKey::Derived(_)));
        assert_eq!(
            one,
            derived(
                &json!({"name": "pay", "arguments": {"b": 2.0, "a": 1}, "_meta": {"progressToken": 9}}),
                "p",
                "s"
            )
        );
        for other in [
            derived(
                &json!({"name": "pay", "arguments": {"a": 1, "b": 3}}),
                "p",
                "s",
            ),
            derived(
                &json!({"name": "pay2", "arguments": {"a": 1, "b": 2}}),
                "p",
                "s",
            ),
            derived(
                &json!({"name": "pay", "arguments": {"a": 1, "b": 2}}),
                "q",
                "s",
            ),
            derived(
                &json!({"name": "pay", "arguments": {"a": 1, "b": 2}}),
                "p",
                "t",
            ),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn a_name_given_twice_reaches_the_server_once() {
        let text = br#"{"id":1,"method":"x","method":"tools/call","params":{"name":"look"},
            "params":{"name":"pay","name":"look","arguments":{"n":1},"arguments":{"n":2}}}"#;
        let call = Call::read(&Message::new(Bytes::from_static(text))).unwrap();
        let sent = String::from_utf8(call.to_message(None).to_vec()).unwrap();
        assert_eq!(call.tool, "look");
        for gone in ["pay", "\"x\"", "\"n\":1"] {
            assert!(!sent.contains(gone), "{sent}");
        }
        assert_eq!(sent.matches("params").count(), 1, "{sent}");
    }

    #[test]
    fn what_is_sent_on_keeps_what_we_do_not_know() {
        let params = json!({"name": "pay", "arguments": {"n": 1}, "_meta": {"progressToken": 4}, "task": {"ttl": 1}, "later": [1]});
        let mut call = call(&params);
        call.take_key(Known::default(), &KeyRules::default())
            .unwrap();
        let sent: Value = serde_json::from_slice(&call.to_message(Some("semel-1"))).unwrap();
        let mut expected = params;
        expected["_meta"][DOWNSTREAM] = json!("semel-1");
        assert_eq!(sent["params"], expected);
        assert!(call.is_task() && !call.is_modern());
    }
}
