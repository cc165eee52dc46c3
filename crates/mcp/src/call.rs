//! [`Call`]: an incoming `tools/call`, with its caller, tool, key and arguments.

use bytes::Bytes;
use semel::core::hex::hex;
use semel::core::{Fingerprint, FingerprintBuilder, Key, KeyError};
use semel::{KeyRules, Secret};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::conversation::ConversationSource;
use crate::identity::IdentityRule;
use crate::members::Members;
use crate::message::{Id, Kind, Message};
use crate::settings::KeyRule;
use crate::tools::{KEY, KEY_SNAKE_CASE, NEW_CALL, ToolFacts};

/// The members of `_meta` that may carry a key.
const KEYS_IN_META: [&str; 3] = [KEY, KEY_SNAKE_CASE, "semel/idempotencyKey"];

/// The member of `_meta` that may say whether a call is a new one.
const NEW_CALL_IN_META: &str = "semel/newCall";

/// The member of `_meta` that carries a key for the systems behind the server.
pub(crate) const DOWNSTREAM_KEY: &str = "semel/downstreamKey";

/// The prefix of derived keys.
pub(crate) const DERIVED_PREFIX: &str = "auto-";

/// The member of `_meta` that names the protocol version in the protocol without sessions.
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// The caller of a tool.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The authenticated caller, or an empty string. Each principal has its own keys.
    pub principal: String,
    /// A digest of the credentials of an unidentified caller. It is part of the fingerprint:
    /// reusing a key with other credentials is refused.
    pub credentials: String,
    /// The session of the protocol.
    pub session: String,
    /// The conversation that a header names, if the settings ask for one.
    pub conversation: Option<String>,
    /// Whether the call came over the network, where others may have the same principal and
    /// session.
    pub is_remote: bool,
    /// Path and query of another server behind the same address, which has its own keys. It is
    /// empty for the server that the gateway stands for.
    pub path: String,
}

/// A `tools/call` request, taken apart.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: Id,
    pub(crate) tool: String,
    /// Whether the caller says that the call is a new one, or that it is the earlier one again.
    pub(crate) new_call: Option<bool>,
    message: Members,
    params: Members,
    arguments: Option<Members>,
    meta: Members,
}

/// The key that a call runs under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallKey {
    /// The key that the caller sent.
    Given(Key),
    /// A key derived from the call itself, valid for a limited time.
    Derived(Key),
    /// A key derived from the arguments that identify the call, valid for a limited time. Other
    /// arguments under it make a variant of the call.
    Identity(Key),
    /// The call has no key and needs none.
    None,
}

/// Why a call has no usable key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallKeyError {
    #[error("the idempotencyKey is not a string")]
    NotText,
    #[error("two different idempotency keys were given")]
    Two,
    #[error("{0}")]
    Unfit(#[from] KeyError),
    #[error("this tool requires an idempotencyKey")]
    Missing,
    #[error(
        "this call doesn't say which conversation it belongs to, so a repeated call can't be told \
         from another conversation's. Call again with an idempotencyKey of your choice"
    )]
    NoConversation,
}

impl Call {
    /// Parses a `tools/call`; `None` if the message is something else or names no tool.
    pub(crate) fn read(message: &Message) -> Option<Self> {
        let Kind::Request { id, method } = &message.kind else {
            return None;
        };
        if method != "tools/call" {
            return None;
        }
        let members = Members::parse(&message.text)?.without_duplicates();
        let params = members.object("params")?.without_duplicates();
        Some(Self {
            id: id.clone(),
            tool: params.read("name")?,
            new_call: None,
            arguments: params.object("arguments"),
            meta: params
                .object("_meta")
                .unwrap_or_default()
                .without_duplicates(),
            message: members,
            params,
        })
    }

    pub(crate) fn argument(&self, name: &str) -> Option<String> {
        self.arguments.as_ref()?.read(name)
    }

    /// Whether the call has a member that may hold a key.
    pub(crate) fn brings_key(&self) -> bool {
        let in_arguments = self
            .arguments
            .as_ref()
            .is_some_and(|arguments| arguments.has(KEY) || arguments.has(KEY_SNAKE_CASE));
        in_arguments || KEYS_IN_META.into_iter().any(|name| self.meta.has(name))
    }

    /// Whether the caller uses the protocol without sessions, whose results carry a `resultType`.
    pub(crate) fn is_modern(&self) -> bool {
        self.meta.has(PROTOCOL_VERSION)
    }

    /// Whether the caller asked for a task to poll instead of the result.
    pub(crate) fn is_task(&self) -> bool {
        self.params.has("task")
    }

    /// Removes the key from the arguments and checks it. A tool that declares such an argument
    /// itself still receives it.
    pub(crate) fn take_key(
        &mut self,
        facts: ToolFacts,
        rules: &KeyRules,
    ) -> Result<Option<Key>, CallKeyError> {
        let mut found: Option<String> = None;
        let from = self.arguments.iter().flat_map(|arguments| {
            let names = [KEY, KEY_SNAKE_CASE];
            names.into_iter().filter_map(|name| arguments.get(name))
        });
        let in_meta = KEYS_IN_META
            .into_iter()
            .filter_map(|name| self.meta.get(name));
        for raw in from.chain(in_meta) {
            let Some(text) = key_text(raw)? else { continue };
            match &found {
                Some(other) if *other != text => return Err(CallKeyError::Two),
                _ => found = Some(text),
            }
        }
        if let Some(arguments) = &mut self.arguments {
            for (name, is_its_own) in [
                (KEY, facts.declares_key),
                (KEY_SNAKE_CASE, facts.declares_snake_case_key),
            ] {
                if !is_its_own {
                    arguments.remove(name);
                }
            }
        }
        Ok(found.map(|text| rules.check(&text)).transpose()?)
    }

    /// Removes the argument by which a caller tells a new call from a repeated one. Only tools with
    /// a rule about identity have it. A tool that declares such an argument itself keeps it.
    pub(crate) fn take_new_call(&mut self, facts: ToolFacts) {
        let from = self.arguments.as_mut().filter(|_| !facts.declares_new_call);
        let in_arguments = from.and_then(|arguments| {
            let said = arguments.get(NEW_CALL).and_then(flag);
            arguments.remove(NEW_CALL);
            said
        });
        let in_meta = || self.meta.get(NEW_CALL_IN_META).and_then(flag);
        self.new_call = in_arguments.or_else(in_meta);
    }

    /// The arguments without the key; `None` if they have no canonical form.
    pub(crate) fn arguments_value(&self) -> Option<Value> {
        let canonical = semel::core::canonicalize(&self.bare_arguments()).ok()?;
        serde_json::from_slice(&canonical).ok()
    }

    /// Chooses the key to run under.
    pub(crate) fn choose_key(
        &self,
        given: Option<Key>,
        rule: KeyRule,
        identity: Option<IdentityRule<'_>>,
        caller: &Caller,
        source: &ConversationSource,
        secret: &Secret,
    ) -> Result<CallKey, CallKeyError> {
        match (given, rule) {
            (Some(key), _) => Ok(CallKey::Given(key)),
            (None, KeyRule::Optional) => Ok(CallKey::None),
            (None, KeyRule::Required) => Err(CallKeyError::Missing),
            (None, KeyRule::Derive) => {
                let conversation = self.conversation(caller, source);
                let conversation = conversation.ok_or(CallKeyError::NoConversation)?;
                let identity = identity.filter(|_| self.new_call != Some(true));
                let chosen = identity.and_then(|rule| rule.select(&self.arguments_value()?));
                let is_identity = chosen.is_some();
                let kind: &[u8] = match (&chosen, self.new_call) {
                    (Some(_), _) => b"mcp-identity-key",
                    (None, Some(true)) => b"mcp-new-call-key",
                    (None, _) => b"mcp-derived-key",
                };
                let parts = Fingerprint::builder(secret)
                    .part(kind)
                    .part(caller.principal.as_bytes())
                    .part(conversation.as_bytes())
                    .part(self.tool.as_bytes());
                let parts = match chosen {
                    Some(identity) => parts.part(&identity),
                    None => self.with_arguments(parts),
                };
                let digest = parts.finish();
                let digest = hex(&digest.as_bytes()[1..]);
                let key = Key::parse(&format!("{DERIVED_PREFIX}{digest}"))?;
                Ok(match is_identity {
                    true => CallKey::Identity(key),
                    false => CallKey::Derived(key),
                })
            }
        }
    }

    /// The conversation that the call belongs to. `None` if a call from the network names none.
    pub(crate) fn conversation(
        &self,
        caller: &Caller,
        source: &ConversationSource,
    ) -> Option<String> {
        let in_meta = || {
            let value: String = self.meta.read(source.meta_member()?)?;
            source.conversation(&value)
        };
        let session = || (!caller.session.is_empty()).then(|| caller.session.clone());
        let named = match source {
            ConversationSource::Session => session(),
            ConversationSource::Shared => Some(String::new()),
            ConversationSource::Header(_) => caller.conversation.clone(),
            ConversationSource::Meta(_) => in_meta(),
            ConversationSource::Trace => in_meta().or_else(|| caller.conversation.clone()),
        };
        // On standard input and output, there is one client.
        named.or_else(|| (!caller.is_remote).then(|| caller.session.clone()))
    }

    /// A digest of the tool, its arguments without the key, and the caller's credentials if there
    /// are any.
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

    fn bare_arguments(&self) -> Vec<u8> {
        let mut arguments = self.arguments.clone().unwrap_or_default();
        // The key is left out even for tools that declare it, so that the fingerprint is the same
        // before and after the tool list is known.
        for name in [KEY, KEY_SNAKE_CASE] {
            arguments.remove(name);
        }
        arguments.to_bytes()
    }

    fn with_arguments(&self, parts: FingerprintBuilder) -> FingerprintBuilder {
        let text = self.bare_arguments();
        // Arguments without a canonical form, such as a number above 2^53, count by their bytes. A
        // retry sends the same bytes.
        match semel::core::canonicalize(&text) {
            Ok(canonical) => parts.part(&canonical),
            Err(_) => parts.part(&text),
        }
    }

    /// A `tools/list` request for one page, written as this caller would write it.
    pub(crate) fn list_request(&self, id: &Id, cursor: Option<&str>) -> Bytes {
        let mut params = Members::default();
        if let Some(cursor) = cursor {
            params.set("cursor", &cursor);
        }
        self.own_request(id, "tools/list", params)
    }

    /// A call of another tool, written as this caller would write it.
    pub(crate) fn lookup_request(&self, id: &Id, tool: &str, arguments: &Value) -> Bytes {
        let mut params = Members::default();
        params.set("name", &tool);
        params.set("arguments", arguments);
        self.own_request(id, "tools/call", params)
    }

    fn own_request(&self, id: &Id, method: &str, mut params: Members) -> Bytes {
        if self.is_modern() {
            let mut meta = self.meta.clone();
            let own = [NEW_CALL_IN_META, DOWNSTREAM_KEY, "progressToken"];
            for name in KEYS_IN_META.into_iter().chain(own) {
                meta.remove(name);
            }
            params.set("_meta", &meta);
        }
        let mut message = Members::default();
        message.set("jsonrpc", &"2.0");
        message.set("id", &id.raw());
        message.set("method", &method);
        message.set("params", &params);
        message.to_bytes().into()
    }

    /// The message to forward to the server.
    pub(crate) fn to_message(&self, downstream: Option<&str>) -> Bytes {
        let (mut message, mut params) = (self.message.clone(), self.params.clone());
        if let Some(arguments) = &self.arguments {
            params.set("arguments", arguments);
        }
        if let Some(key) = downstream {
            let mut meta = self.meta.clone();
            meta.set(DOWNSTREAM_KEY, &key);
            params.set("_meta", &meta);
        }
        message.set("params", &params);
        message.to_bytes().into()
    }
}

/// A key as text. Models fill optional arguments with `null` or an empty string, so these count as
/// no key.
fn key_text(raw: &RawValue) -> Result<Option<String>, CallKeyError> {
    let value: Option<String> =
        serde_json::from_str(raw.get()).map_err(|_| CallKeyError::NotText)?;
    Ok(value.filter(|text| !text.is_empty()))
}

/// A flag, which models also write as text.
fn flag(raw: &RawValue) -> Option<bool> {
    match raw.get() {
        "true" | "\"true\"" => Some(true),
        "false" | "\"false\"" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(params: &Value) -> Call {
        let text = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        Call::read(&Message::new(Bytes::from(text.to_string()))).unwrap()
    }

    fn taken(params: &Value, facts: ToolFacts) -> (Result<Option<Key>, CallKeyError>, Value) {
        let mut call = call(params);
        let key = call.take_key(facts, &KeyRules::default());
        let message: Value = serde_json::from_slice(&call.to_message(None)).unwrap();
        (key, message["params"]["arguments"].clone())
    }

    #[test]
    fn key_is_removed_under_every_name() {
        for params in [
            json!({"name": "pay", "arguments": {"to": "a", "idempotencyKey": "k-1"}}),
            json!({"name": "pay", "arguments": {"to": "a", "idempotency_key": "k-1"}}),
            json!({"name": "pay", "arguments": {"to": "a"}, "_meta": {"idempotencyKey": "k-1"}}),
            json!({"name": "pay", "arguments": {"to": "a"}, "_meta": {"idempotency_key": "k-1"}}),
            json!({"name": "pay", "arguments": {"to": "a", "idempotencyKey": "k-1"}, "_meta": {"idempotencyKey": "k-1"}}),
        ] {
            let (key, arguments) = taken(&params, ToolFacts::default());
            assert_eq!(key.unwrap(), Some(Key::parse("k-1").unwrap()), "{params}");
            assert_eq!(arguments, json!({"to": "a"}));
        }
    }

    #[test]
    fn declared_key_argument_is_passed_on() {
        let facts = ToolFacts {
            declares_key: true,
            ..ToolFacts::default()
        };
        let params = json!({"name": "pay", "arguments": {"idempotencyKey": "k-1"}});
        let (key, arguments) = taken(&params, facts);
        assert_eq!(key.unwrap(), Some(Key::parse("k-1").unwrap()));
        assert_eq!(arguments, json!({"idempotencyKey": "k-1"}));
    }

    #[test]
    fn fingerprint_is_independent_of_the_tool_list() {
        let of = |params: &Value, facts: ToolFacts| {
            let mut call = call(params);
            call.take_key(facts, &KeyRules::default()).unwrap();
            let secret = Secret::none();
            let (caller, source) = (Caller::default(), ConversationSource::Session);
            let derived = call.choose_key(None, KeyRule::Derive, None, &caller, &source, &secret);
            let fingerprint = call.fingerprint(&Caller::default(), &secret);
            (fingerprint, derived.unwrap())
        };
        for name in [KEY, KEY_SNAKE_CASE] {
            for key in [json!("k-1"), json!("")] {
                let params = json!({"name": "pay", "arguments": {"to": "a", name: key}});
                let before = of(&params, ToolFacts::default());
                for (declares_key, declares_snake_case_key) in
                    [(true, false), (false, true), (true, true)]
                {
                    let facts = ToolFacts {
                        declares_key,
                        declares_snake_case_key,
                        ..ToolFacts::default()
                    };
                    assert_eq!(before, of(&params, facts), "{params}");
                }
            }
        }
        let others = json!({"name": "pay", "arguments": {"to": "b", KEY: "k-1"}});
        let params = json!({"name": "pay", "arguments": {"to": "a", KEY: "k-1"}});
        assert_ne!(
            of(&params, ToolFacts::default()),
            of(&others, ToolFacts::default())
        );
    }

    #[test]
    fn empty_key_is_ignored_and_invalid_key_is_not_echoed() {
        for nothing in [json!(null), json!("")] {
            let params = json!({"name": "pay", "arguments": {"idempotencyKey": nothing}});
            assert_eq!(taken(&params, ToolFacts::default()).0.unwrap(), None);
        }
        for nonsense in [
            json!(7),
            json!("sk_live_secret with spaces"),
            json!({"a": 1}),
        ] {
            let params = json!({"name": "pay", "arguments": {"idempotencyKey": nonsense}});
            let told = taken(&params, ToolFacts::default())
                .0
                .unwrap_err()
                .to_string();
            assert!(!told.contains("sk_live"), "{told}");
        }
        let two = json!({"name": "pay", "arguments": {"idempotencyKey": "a"}, "_meta": {"idempotencyKey": "b"}});
        assert!(matches!(
            taken(&two, ToolFacts::default()).0,
            Err(CallKeyError::Two)
        ));
    }

    #[test]
    fn derived_key_covers_principal_session_tool_and_arguments() {
        let secret = Secret::none();
        let derived = |params: &Value, principal: &str, session: &str| {
            let caller = Caller {
                principal: principal.to_owned(),
                session: session.to_owned(),
                ..Caller::default()
            };
            let source = ConversationSource::Session;
            call(params)
                .choose_key(None, KeyRule::Derive, None, &caller, &source, &secret)
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
    fn duplicate_members_reach_the_server_once() {
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
    fn forwarded_call_keeps_unknown_members() {
        let params = json!({"name": "pay", "arguments": {"n": 1}, "_meta": {"progressToken": 4}, "task": {"ttl": 1}, "later": [1]});
        let mut call = call(&params);
        call.take_key(ToolFacts::default(), &KeyRules::default())
            .unwrap();
        let sent: Value = serde_json::from_slice(&call.to_message(Some("semel-1"))).unwrap();
        let mut expected = params;
        expected["_meta"][DOWNSTREAM_KEY] = json!("semel-1");
        assert_eq!(sent["params"], expected);
        assert!(call.is_task() && !call.is_modern());
    }
}
