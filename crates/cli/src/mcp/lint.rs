//! `semel mcp lint`.

use clap::Args;
use semel_mcp::{Finding, Server, Severity, lint};
use serde_json::json;

use super::Target;
use crate::exit::{self, Exit};
use crate::runtime;

/// Starts a server, lists its tools, and says what is wrong with them. Calls none.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel mcp lint -- npx -y some-mcp-server
  semel mcp lint --upstream http://127.0.0.1:8000/mcp --json

Exit codes: 0 nothing that acts twice, 12 something does.")]
pub(super) struct Lint {
    #[command(flatten)]
    target: Target,
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
}

impl Lint {
    pub(super) fn run(self) -> Exit {
        runtime::block_on(Box::pin(self.look())).into()
    }

    async fn look(self) -> Result<(), Exit> {
        let server = match (self.target.upstream()?, self.target.child()) {
            (Some(upstream), _) => Server::Upstream(Box::new(upstream)),
            (None, Some(child)) => Server::Child(child),
            (None, None) => {
                let message = "no server: write `semel mcp lint -- COMMAND`, or --upstream URL";
                return Err(Exit::failed(exit::CONFIG, message));
            }
        };
        let looked = lint(server).await;
        let (tools, findings) =
            looked.map_err(|error| Exit::failed(exit::UNEXPECTED, error.to_string()))?;
        if self.json {
            println!("{}", as_json(tools, &findings));
        } else {
            show(tools, &findings);
        }
        let errors = findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .count();
        match errors {
            0 => Ok(()),
            _ => Err(Exit::failed(exit::BROKEN, "")),
        }
    }
}

const fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

fn show(tools: usize, findings: &[Finding]) {
    for Finding {
        tool,
        severity,
        code,
        message,
        fix,
    } in findings
    {
        println!(
            "{} {tool} [{code}]\n    {message}\n    fix: {fix}",
            word(*severity)
        );
    }
    let errors = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .count();
    println!(
        "{tools} tools, {errors} errors, {} warnings",
        findings.len() - errors
    );
}

fn as_json(tools: usize, findings: &[Finding]) -> serde_json::Value {
    let findings: Vec<_> = findings
        .iter()
        .map(|Finding { tool, severity, code, message, fix }| {
            json!({"tool": tool, "severity": word(*severity), "code": code, "message": message, "fix": fix})
        })
        .collect();
    json!({"tools": tools, "findings": findings})
}
