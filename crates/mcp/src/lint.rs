//! `semel mcp lint`: finds tools that cannot be retried safely, and descriptions that invite
//! duplicate calls.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::Tool;
use serde_json::Value;

use crate::http::HttpUpstream;
use crate::lines;
use crate::process::{RunError, ServerCommand};
use crate::suggest::{Suggestion, suggest as suggest_rule};

/// How long a server may take to start and to list its tools.
const LIMIT: Duration = Duration::from_secs(60);

/// The server to check.
#[derive(Clone, Debug)]
pub enum LintTarget {
    /// A command that starts the server.
    Command(ServerCommand),
    /// A server behind HTTP.
    Upstream(Box<HttpUpstream>),
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LintSeverity {
    /// Worth a look.
    Warning,
    /// A repeated call acts twice.
    Error,
}

/// A finding about a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LintFinding {
    /// The name of the tool.
    pub tool: String,
    /// The severity.
    pub severity: LintSeverity,
    /// A stable code.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub fix: &'static str,
}

/// Why a server could not be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LintError {
    /// The server cannot be started.
    #[error(transparent)]
    Start(#[from] RunError),
    /// The server does not speak the protocol.
    #[error("the server doesn't answer as an MCP server: {0}")]
    Talk(String),
    /// The server took too long.
    #[error("the server took more than a minute to list its tools")]
    Slow,
}

/// Checks the tools of a server. Returns the number of tools and the findings.
///
/// # Errors
/// [`LintError`] if the tools cannot be listed.
pub async fn lint(server: LintTarget) -> Result<(usize, Vec<LintFinding>), LintError> {
    let tools = list_tools(server).await?;
    let findings = tools.iter().flat_map(lint_tool).collect();
    Ok((tools.len(), findings))
}

/// Guesses which arguments identify the calls of a server's tools that act.
///
/// # Errors
/// As [`lint`].
pub async fn suggest(server: LintTarget) -> Result<Vec<Suggestion>, LintError> {
    let tools = list_tools(server).await?;
    let reads = |tool: &Tool| {
        let hints = tool.annotations.as_ref();
        hints.is_some_and(|hints| hints.read_only_hint == Some(true))
    };
    let acting = tools.iter().filter(|tool| !reads(tool));
    let suggestions = acting.map(|tool| suggest_rule(&tool.name, &tool.input_schema));
    Ok(suggestions.collect())
}

async fn list_tools(server: LintTarget) -> Result<Vec<Tool>, LintError> {
    let clock = semel::tokio_env().clock;
    let (process, mut end) = match server {
        LintTarget::Command(command) => {
            let (running, end) = command.start()?;
            (Some(running), end)
        }
        LintTarget::Upstream(upstream) => (None, upstream.connect(Arc::clone(&clock), Some(LIMIT))),
    };
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(theirs);
    let (mut client, _) = lines::connect(reader, writer);
    let pump = tokio::spawn(async move {
        loop {
            tokio::select! {
                Some(text) = client.incoming.recv() => drop(end.outgoing.send(text).await),
                Some(text) = end.incoming.recv() => drop(client.outgoing.send(text).await),
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
    let tools = clock.timeout(LIMIT, listing).await;
    pump.abort();
    if let Some(process) = process {
        process.end(&*clock).await;
    }
    tools.map_err(|_| LintError::Slow)?
}

/// Arguments by which a tool can recognize a repeated call, in lower case without separators.
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

/// Words that mark a tool as acting, as parts of its name.
const ACTS: [&str; 26] = [
    "add", "apply", "approve", "book", "buy", "cancel", "charge", "create", "delete", "deploy",
    "execute", "insert", "invite", "order", "pay", "post", "publish", "purchase", "refund",
    "remove", "send", "submit", "transfer", "update", "upload", "write",
];

/// Phrases that invite the model to repeat a call.
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

/// The findings about one tool.
fn lint_tool(tool: &Tool) -> Vec<LintFinding> {
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
    let named = |(severity, code, message, fix)| LintFinding {
        tool: tool.name.to_string(),
        severity,
        code,
        message,
        fix,
    };
    found.into_iter().flatten().map(named).collect()
}

type Rule = (LintSeverity, &'static str, String, &'static str);

fn read_only_but_acts() -> Rule {
    let message = "it declares readOnlyHint, but its name or its other hints say that it acts, \
                   so its calls are unprotected";
    let fix = "remove readOnlyHint, or rename the tool; until then set [tools.NAME] bypass = false";
    (
        LintSeverity::Error,
        "read-only-but-acts",
        message.to_owned(),
        fix,
    )
}

fn says_nothing() -> Rule {
    let message = "it has no annotations, so callers must assume that it is destructive";
    let fix = "set readOnlyHint, destructiveHint and idempotentHint to what is true";
    (
        LintSeverity::Warning,
        "says-nothing",
        message.to_owned(),
        fix,
    )
}

fn acts_without_a_key() -> Rule {
    let message = "it acts, and a caller that got no answer can't retry without acting twice";
    let fix = "accept an optional idempotencyKey, or run the server behind `semel mcp`, with \
               [tools.NAME] key = \"derive\" for agents that send no key";
    (
        LintSeverity::Error,
        "acts-without-a-key",
        message.to_owned(),
        fix,
    )
}

fn key_is_required(name: &str) -> Rule {
    let message = format!(
        "its argument `{name}` is required, so a model invents a new value for each call, \
         which protects nothing"
    );
    let fix = "make it optional, and say in its description that a retry repeats the value";
    (LintSeverity::Warning, "key-is-required", message, fix)
}

fn invites_double_calls(words: &str) -> Rule {
    let words = words.trim_end_matches([',', ' ']);
    let message = format!("its description invites duplicate calls (\"{words}\")");
    let fix = "describe how to check whether the call took effect, or say that a retry repeats its \
               idempotencyKey";
    (LintSeverity::Error, "invites-double-calls", message, fix)
}

/// The argument by which the tool recognizes a repeated call, and whether it is required.
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
        lint_tool(&tool)
            .iter()
            .map(|finding| finding.code)
            .collect()
    }

    #[test]
    fn lint_finds_acting_tools_without_a_key() {
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
    fn lint_finds_contradictions_required_keys_and_invitations() {
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
    fn acting_words_are_found_in_tool_names() {
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
