//! `semel mcp lint`: which of a server's tools act without a way to call them again safely, and which descriptions
//! invite double calls.

use std::time::Duration;

use rmcp::model::Tool;
use serde_json::Value;

use crate::http::Upstream;
use crate::lines;
use crate::server::{Child, RunError};

/// How long a server may take to begin and to list its tools.
const LIMIT: Duration = Duration::from_secs(60);

/// A server to look at.
#[derive(Clone, Debug)]
pub enum Server {
    /// A process.
    Child(Child),
    /// Behind HTTP.
    Upstream(Box<Upstream>),
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth a look.
    Warning,
    /// A repeated call acts twice.
    Error,
}

/// Something about a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which tool.
    pub tool: String,
    /// How bad.
    pub severity: Severity,
    /// A stable word for it.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub fix: &'static str,
}

/// Why a server could not be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LintError {
    /// It can't be started.
    #[error(transparent)]
    Start(#[from] RunError),
    /// It doesn't talk.
    #[error("the server doesn't answer as an MCP server: {0}")]
    Talk(String),
    /// It takes too long.
    #[error("the server took more than a minute to list its tools")]
    Slow,
}

/// Looks at a server's tools. → how many there are, and what was found.
///
/// # Errors
/// [`LintError`] where they can't be listed.
pub async fn lint(server: Server) -> Result<(usize, Vec<Finding>), LintError> {
    let (process, mut end) = match server {
        Server::Child(child) => {
            let (running, end) = child.start()?;
            (Some(running), end)
        }
        Server::Upstream(upstream) => {
            let clock = semel::tokio_env().clock;
            (None, upstream.connect(clock, Some(LIMIT)))
        }
    };
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(theirs);
    let (mut client, _) = lines::end(reader, writer);
    let pump = tokio::spawn(async move {
        loop {
            tokio::select! {
                Some(text) = client.says.recv() => drop(end.told.send(text).await),
                Some(text) = end.says.recv() => drop(client.told.send(text).await),
                else => return,
            }
        }
    });
    let listing = async {
        let talk = |error: &dyn std::fmt::Display| LintError::Talk(error.to_string());
        let client = rmcp::serve_client((), ours)
            .await
            .map_err(|error| talk(&error))?;
        let tools = client.list_all_tools().await.map_err(|error| talk(&error));
        let _ = client.cancel().await;
        tools
    };
    let tools = tokio::time::timeout(LIMIT, listing).await;
    pump.abort();
    if let Some(process) = process {
        process.end().await;
    }
    let tools = tools.map_err(|_| LintError::Slow)??;
    let findings = tools.iter().flat_map(look).collect();
    Ok((tools.len(), findings))
}

/// Arguments that give a tool a way to know a call again.
const KEYS: [&str; 10] = [
    "idempotencykey",
    "idempotencytoken",
    "requestid",
    "requesttoken",
    "clientrequestid",
    "clienttoken",
    "dedupkey",
    "deduplicationid",
    "externalid",
    "nonce",
];

/// Words that a name of a tool that acts begins with, or has between its parts.
const ACTS: [&str; 26] = [
    "add", "apply", "approve", "book", "buy", "cancel", "charge", "create", "delete", "deploy",
    "execute", "insert", "invite", "order", "pay", "post", "publish", "purchase", "refund",
    "remove", "send", "submit", "transfer", "update", "upload", "write",
];

/// Phrases with which a description asks for the same call again.
const INVITES: [&str; 11] = [
    "call again",
    "call it again",
    "call this again",
    "if it fails, ",
    "if this fails, ",
    "retry",
    "repeat the call",
    "run it again",
    "try again",
    "until it succeeds",
    "until it returns",
];

/// What there is to say about one tool.
fn look(tool: &Tool) -> Vec<Finding> {
    let hints = tool.annotations.clone().unwrap_or_default();
    let read_only = hints.read_only_hint == Some(true);
    let acts_unkeyed = !read_only && hints.idempotent_hint != Some(true);
    let key = key_argument(tool);
    let says_it_acts = hints.destructive_hint == Some(true) || acts_by_name(&tool.name);
    let description = tool.description.as_deref().unwrap_or_default();
    let description = description.to_lowercase();
    let invites = INVITES.iter().find(|words| description.contains(*words));
    let required = key.as_ref().filter(|(_, is_required)| *is_required);
    let found = [
        (read_only && says_it_acts).then(read_only_but_acts),
        (!read_only && tool.annotations.is_none()).then(says_nothing),
        (acts_unkeyed && key.is_none()).then(acts_without_a_key),
        required.map(|(name, _)| key_is_required(name)),
        invites
            .filter(|_| acts_unkeyed)
            .map(|words| invites_double_calls(words)),
    ];
    let named = |(severity, code, message, fix)| Finding {
        tool: tool.name.to_string(),
        severity,
        code,
        message,
        fix,
    };
    found.into_iter().flatten().map(named).collect()
}

type Rule = (Severity, &'static str, String, &'static str);

fn read_only_but_acts() -> Rule {
    let message = "it says that it only reads, and its name or its other hints say that it acts: nothing protects its calls";
    let fix = "take readOnlyHint away, or rename it; meanwhile [tools.NAME] bypass = false";
    (
        Severity::Error,
        "read-only-but-acts",
        message.to_owned(),
        fix,
    )
}

fn says_nothing() -> Rule {
    let message =
        "it has no annotations, so callers have to assume the worst: that it destroys something";
    let fix = "set readOnlyHint, destructiveHint and idempotentHint to what is true";
    (Severity::Warning, "says-nothing", message.to_owned(), fix)
}

fn acts_without_a_key() -> Rule {
    let message =
        "it acts, and a caller that got no answer can't call it again without acting twice";
    let fix = "take an optional idempotencyKey and honour it, or run it behind `semel mcp`, with [tools.NAME] key = \
               \"derive\" for agents that send none";
    (
        Severity::Error,
        "acts-without-a-key",
        message.to_owned(),
        fix,
    )
}

fn key_is_required(name: &str) -> Rule {
    let message = format!(
        "its argument `{name}` is required: a model makes up a new one for each call, which protects nothing"
    );
    let fix = "make it optional, and say in its description that a repeated call repeats the value";
    (Severity::Warning, "key-is-required", message, fix)
}

fn invites_double_calls(words: &str) -> Rule {
    let words = words.trim_end_matches([',', ' ']);
    let message = format!("its description asks for the same call again (\"{words}\")");
    let fix = "say instead how to find out whether it took effect, or that a repeated call repeats its idempotencyKey";
    (Severity::Error, "invites-double-calls", message, fix)
}

/// The argument by which the tool knows a call again, and whether it is required.
fn key_argument(tool: &Tool) -> Option<(String, bool)> {
    let properties = tool.input_schema.get("properties")?.as_object()?;
    let plain = |name: &str| name.replace(['_', '-'], "").to_lowercase();
    let name = properties
        .keys()
        .find(|name| KEYS.contains(&plain(name).as_str()))?;
    let required = tool.input_schema.get("required").and_then(Value::as_array);
    let is_required = required.is_some_and(|names| names.iter().any(|of| of == name));
    Some((name.clone(), is_required))
}

fn acts_by_name(name: &str) -> bool {
    let mut parts = Vec::new();
    let mut part = String::new();
    for c in name.chars() {
        if (!c.is_alphanumeric() || c.is_uppercase()) && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
        }
        if c.is_alphanumeric() {
            part.extend(c.to_lowercase());
        }
    }
    parts.push(part);
    parts.iter().any(|part| ACTS.contains(&part.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn codes(tool: Value) -> Vec<&'static str> {
        let tool: Tool = serde_json::from_value(tool).unwrap();
        look(&tool).iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn what_acts_without_a_key_is_found_and_what_is_safe_is_not() {
        let schema = json!({"type": "object", "properties": {"to": {"type": "string"}}});
        assert_eq!(
            codes(json!({"name": "pay", "inputSchema": schema})),
            ["says-nothing", "acts-without-a-key"]
        );
        let marked =
            json!({"name": "pay", "inputSchema": schema, "annotations": {"destructiveHint": true}});
        assert_eq!(codes(marked), ["acts-without-a-key"]);
        let safe = json!({"name": "set_name", "inputSchema": schema, "annotations": {"idempotentHint": true}});
        assert!(codes(safe).is_empty());
        let reads = json!({"name": "look_up", "inputSchema": schema, "annotations": {"readOnlyHint": true}});
        assert!(codes(reads).is_empty());
        let keyed =
            json!({"type": "object", "properties": {"idempotency_key": {"type": "string"}}});
        let keyed = json!({"name": "pay", "inputSchema": keyed, "annotations": {}});
        assert!(codes(keyed).is_empty());
    }

    #[test]
    fn contradictions_required_keys_and_invitations_are_found() {
        let lies =
            json!({"name": "sendMail", "inputSchema": {}, "annotations": {"readOnlyHint": true}});
        assert_eq!(codes(lies), ["read-only-but-acts"]);
        let required = json!({"name": "pay", "annotations": {}, "inputSchema": {"type": "object",
            "properties": {"requestId": {}}, "required": ["requestId"]}});
        assert_eq!(codes(required), ["key-is-required"]);
        let invites = json!({"name": "pay", "annotations": {}, "description": "Pays. If it times out, try again.",
            "inputSchema": {"type": "object", "properties": {"clientToken": {}}}});
        assert_eq!(codes(invites), ["invites-double-calls"]);
    }

    #[test]
    fn a_name_acts_by_its_words() {
        for (name, acts) in [
            ("sendMail", true),
            ("mail_send", true),
            ("sender", false),
            ("list_orders", false),
            ("order.create", true),
        ] {
            assert_eq!(acts_by_name(name), acts, "{name}");
        }
    }
}
