//! The rules for single tools, as `semel mcp --config FILE` reads them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use semel_mcp::{
    ArgumentPath, CrashRule, ErrorRule, KeyRule, LookupArgument, LookupCondition, ToolRule,
    VerifyRule,
};
use semel_server::config::Span;
use serde::Deserialize;

/// A table `[tools.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolTable {
    key: Option<KeyRule>,
    crash: Option<CrashRule>,
    bypass: Option<bool>,
    errors: Option<ErrorRule>,
    identity: Option<Vec<ArgumentPath>>,
    ignore: Option<Vec<ArgumentPath>>,
    verify: Option<VerifyTable>,
}

/// A table `[tools.NAME.verify]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VerifyTable {
    tool: String,
    #[serde(default)]
    arguments: BTreeMap<String, LookupArgument>,
    done: Option<LookupCondition>,
    not_done: Option<LookupCondition>,
    after: Option<Span>,
    attempts: Option<u16>,
    pause: Option<Span>,
}

impl ToolTable {
    /// The rule for the tool of this name. Without a time of its own, a lookup that finds nothing
    /// is believed after `call_limit`.
    pub(super) fn into_rule(self, name: String, call_limit: Duration) -> ToolRule {
        let verify = self.verify.map(|verify| verify.into_rule(call_limit));
        ToolRule {
            name,
            key: self.key,
            crash: self.crash,
            bypass: self.bypass,
            errors: self.errors,
            identity: self.identity,
            ignore: self.ignore,
            verify: verify.map(Arc::new),
        }
    }
}

impl VerifyTable {
    fn into_rule(self, call_limit: Duration) -> VerifyRule {
        let mut rule = VerifyRule::new(&self.tool);
        rule.arguments = self.arguments;
        (rule.done, rule.not_done) = (self.done, self.not_done);
        rule.after = self.after.map_or(call_limit, |Span(span)| span);
        rule.attempts = self.attempts.unwrap_or(rule.attempts);
        rule.pause = self.pause.map_or(rule.pause, |Span(span)| span);
        rule
    }
}
