//! `semel mcp lint`: checks the tools of an MCP server.

use clap::Args;
use semel_mcp::{LintFinding, LintSeverity, LintTarget, Suggestion, lint, suggest};
use serde_json::json;

use super::Target;
use crate::exit::{self, Exit};
use crate::{out, runtime};

/// Starts a server, lists its tools, and reports which are unsafe to retry. Calls no tool.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel mcp lint -- npx -y some-mcp-server
  semel mcp lint --upstream http://127.0.0.1:8000/mcp --json
  semel mcp lint --suggest -- python server.py > mcp.toml   rules for `semel mcp --config`

Exit codes: 0 no errors, 12 errors.")]
pub(super) struct Lint {
    #[command(flatten)]
    target: Target,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print rules about the arguments that identify a call, as TOML, instead of findings.
    #[arg(long, conflicts_with = "json")]
    suggest: bool,
}

impl Lint {
    pub(super) fn run(self) -> Exit {
        runtime::block_on(Box::pin(self.check())).into()
    }

    async fn check(self) -> Result<(), Exit> {
        let server = match (self.target.upstream()?, self.target.command()) {
            (Some(upstream), _) => LintTarget::Upstream(Box::new(upstream)),
            (None, Some(child)) => LintTarget::Command(child),
            (None, None) => {
                let message = "no server is given\n    fix: `semel mcp lint -- COMMAND`, or \
                               --upstream URL";
                return Err(Exit::failed(exit::CONFIG, message));
            }
        };
        if self.suggest {
            let suggested = suggest(server).await;
            let suggested =
                suggested.map_err(|error| Exit::failed(exit::UNEXPECTED, error.to_string()))?;
            out::say(rules(&suggested));
            return Ok(());
        }
        let checked = lint(server).await;
        let (tools, findings) =
            checked.map_err(|error| Exit::failed(exit::UNEXPECTED, error.to_string()))?;
        if self.json {
            out::say(out::escape_json(&as_json(tools, &findings).to_string()));
        } else {
            show(tools, &findings);
        }
        let errors = findings
            .iter()
            .filter(|finding| finding.severity == LintSeverity::Error)
            .count();
        match errors {
            0 => Ok(()),
            _ => Err(Exit::failed(exit::BROKEN, "")),
        }
    }
}

/// The rules as a file for `semel mcp --config`.
fn rules(suggested: &[Suggestion]) -> String {
    let mut text =
        "# Which arguments identify a call. Read each rule before you use it.\n".to_owned();
    for suggestion in suggested {
        // The names come from the server of somebody else.
        let toml = suggestion.to_toml();
        let lines: Vec<String> = toml.lines().map(out::printable).collect();
        text.push('\n');
        text.push_str(&lines.join("\n"));
        text.push('\n');
    }
    text.trim_end().to_owned()
}

const fn word(severity: LintSeverity) -> &'static str {
    match severity {
        LintSeverity::Warning => "warning",
        LintSeverity::Error => "error",
    }
}

fn show(tools: usize, findings: &[LintFinding]) {
    for LintFinding {
        tool,
        severity,
        code,
        message,
        fix,
    } in findings
    {
        // The texts come from the server of somebody else.
        let (tool, message) = (out::printable(tool), out::printable(message));
        out::say(format_args!(
            "{} {tool} [{code}]\n    {message}\n    fix: {fix}",
            word(*severity)
        ));
    }
    let errors = findings
        .iter()
        .filter(|finding| finding.severity == LintSeverity::Error)
        .count();
    out::say(format_args!(
        "{tools} tools, {errors} errors, {} warnings",
        findings.len() - errors
    ));
}

fn as_json(tools: usize, findings: &[LintFinding]) -> serde_json::Value {
    let findings: Vec<_> = findings
        .iter()
        .map(|LintFinding { tool, severity, code, message, fix }| {
            json!({"tool": tool, "severity": word(*severity), "code": code, "message": message, "fix": fix})
        })
        .collect();
    json!({"tools": tools, "findings": findings})
}
