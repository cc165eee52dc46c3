//! `semel doctor`: health checks of settings, store and service; each finding comes with its fix.
//!
//! | file | content |
//! |---|---|
//! | `settings` | the settings, as `semel config check` judges them |
//! | `security` | settings that are less strict than possible |
//! | `store` | the store's own diagnosis |
//! | `service` | the upstream, its CORS rules, and the sidecar |

mod security;
mod service;
mod settings;
mod store;

use clap::Args;
use semel::core::diagnosis::{Finding, Severity};
use serde_json::{Value, json};

use crate::exit::{self, Exit};
use crate::out::{self, Style, Tone};
use crate::progress::Progress;
use crate::runtime;
use crate::serve::Settings;

/// Checks for common problems: eviction, persistence, replication, clocks, bloat, indexes, an
/// unreachable service, browsers that may not send the key. Each finding comes with its fix.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel doctor --store redis://127.0.0.1
  semel doctor --config semel.toml --json
  semel doctor --config semel.toml --security

Exit codes: 0 no problems, 12 problems.")]
pub(crate) struct Doctor {
    #[command(flatten)]
    settings: Settings,
    /// The origin of a web page that calls the service, for the CORS check.
    #[arg(long, value_name = "URL", default_value = "https://example.com")]
    origin: String,
    /// Only list settings that are less strict than possible. Does not contact the store or the
    /// service.
    #[arg(long)]
    security: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A finding and its subject.
struct SubjectFinding {
    about: &'static str,
    finding: Finding,
}

/// All findings, in order.
#[derive(Default)]
struct Report(Vec<SubjectFinding>);

impl Report {
    fn add(&mut self, about: &'static str, findings: impl IntoIterator<Item = Finding>) {
        let told = findings
            .into_iter()
            .map(|finding| SubjectFinding { about, finding });
        self.0.extend(told);
    }

    fn count(&self, severity: Severity) -> usize {
        let is = |told: &&SubjectFinding| told.finding.severity == severity;
        self.0.iter().filter(is).count()
    }
}

impl Doctor {
    pub(crate) fn run(self) -> Exit {
        runtime::block_on(async move { Box::pin(self.examine()).await }).into()
    }

    async fn examine(&self) -> Result<(), Exit> {
        let progress = Progress::counting("looking", "checks");
        let mut report = Report::default();
        let config = settings::check(&self.settings, self.security, &mut report);
        progress.to(report.0.len() as u64);
        if self.security {
            // Of invalid settings nothing is known, not even that the defaults apply.
            if let Some(config) = &config {
                security::check(config, &mut report);
            }
        } else if let Some(config) = &config {
            store::check(config, &mut report).await;
            progress.to(report.0.len() as u64);
            service::check(config, &self.origin, &mut report).await;
        } else {
            let found = "not checked";
            let fix = "fix the settings first, then run it again";
            report.add("store", [Finding::bad("open", Severity::Note, found, fix)]);
        }
        drop(progress);
        if self.json {
            out::json(&as_json(&report));
        } else {
            show(&report);
        }
        if report.count(Severity::Broken) > 0 {
            // The table shows the details.
            return Err(Exit::failed(exit::BROKEN, ""));
        }
        Ok(())
    }
}

const fn verdict(severity: Severity) -> (&'static str, Tone) {
    match severity {
        Severity::Good => ("good", Tone::Good),
        Severity::Note => ("note", Tone::Quiet),
        Severity::Warning => ("warning", Tone::Careful),
        // Broken, or graver.
        _ => ("broken", Tone::Bad),
    }
}

fn as_json(report: &Report) -> Value {
    let one = |told: &SubjectFinding| {
        let finding = &told.finding;
        json!({
            "about": told.about,
            "check": finding.check,
            "verdict": verdict(finding.severity).0,
            "found": finding.found,
            "fix": finding.fix,
        })
    };
    json!({
        "healthy": report.count(Severity::Broken) == 0,
        "findings": report.0.iter().map(one).collect::<Vec<_>>(),
    })
}

fn show(report: &Report) {
    let look = Style::for_stdout();
    let mut table = look.table(["", "CHECK", "VERDICT", "FOUND"]);
    let mut last = "";
    for told in &report.0 {
        let finding = &told.finding;
        let (word, tone) = verdict(finding.severity);
        let about = if told.about == last { "" } else { told.about };
        last = told.about;
        table.add_row([
            look.cell(Tone::Strong, about),
            look.cell(Tone::Plain, finding.check),
            look.cell(tone, word),
            look.cell(Tone::Plain, &finding.found),
        ]);
    }
    out::say(table.trim_fmt());
    show_fixes(look, report);
    let count = |severity| report.count(severity);
    let (broken, warnings, notes) = (
        count(Severity::Broken),
        count(Severity::Warning),
        count(Severity::Note),
    );
    let tone = match (broken, warnings) {
        (0, 0) => Tone::Good,
        (0, _) => Tone::Careful,
        _ => Tone::Bad,
    };
    let sum = format!(
        "\n{broken} broken, {warnings} warnings, {notes} notes, {} good",
        count(Severity::Good)
    );
    out::say(look.paint(tone, sum));
}

/// Prints the fixes below the table, the most severe first.
fn show_fixes(look: Style, report: &Report) {
    let mut told: Vec<&SubjectFinding> = report
        .0
        .iter()
        .filter(|told| told.finding.fix.is_some())
        .collect();
    told.sort_by_key(|told| std::cmp::Reverse(told.finding.severity));
    if told.is_empty() {
        return;
    }
    out::say(look.paint(Tone::Strong, "\nFixes"));
    let mut table = look.bare_table();
    for told in told {
        let finding = &told.finding;
        let (word, tone) = verdict(finding.severity);
        table.add_row([
            look.cell(tone, word),
            look.cell(Tone::Strong, finding.check),
            look.cell(Tone::Plain, finding.fix.as_deref().unwrap_or_default()),
        ]);
    }
    out::say(table.trim_fmt());
}
