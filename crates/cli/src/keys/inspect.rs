//! `semel keys inspect`: shows a record and its history.

use clap::Args;
use serde_json::{Value, json};

use super::find::RecordSelector;
use crate::client::view::{History, Record};
use crate::client::{ApiPath, Target, typed};
use crate::exit::Exit;
use crate::out::{self, Style, Tone};

/// Shows a record and its history.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel keys inspect 3f9c21d07be4 --admin http://127.0.0.1:9090
  semel keys inspect --key ord-123 --scope /charges --store redis://127.0.0.1")]
pub(crate) struct Inspect {
    #[command(flatten)]
    which: RecordSelector,
    #[command(flatten)]
    target: Target,
    /// Include the response. It may contain personal data.
    #[arg(long)]
    answer: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(super) async fn run(&self) -> Result<(), Exit> {
        let client = self.target.client().await?;
        let found = self.which.find(&client, self.answer).await?;
        let record: Record = typed(found.clone())?;
        let path = ApiPath::new(format!("/admin/v1/records/{}/history", record.id));
        let history = client.get(&path).await?;
        if self.json {
            out::json(&json!({"record": found, "history": history}));
            return Ok(());
        }
        let look = Style::for_stdout();
        show(look, &record);
        show_history(look, &typed(history)?, client.is_remote());
        if record.state == "in_doubt" {
            out::say(format!(
                "\nFind out what became of it, then record it:\n  \
                 semel keys resolve {} --complete --status 200 --body-file FILE --reason WHY\n  \
                 semel keys resolve {} --release --reason WHY    # it did not happen",
                out::short(&record.id),
                out::short(&record.id),
            ));
        }
        Ok(())
    }
}

/// Prints a record, one line for each member.
pub(super) fn show(look: Style, record: &Record) {
    let line = |name: &str, value: &str| {
        out::say(format!(
            "{}  {value}",
            look.paint(Tone::Quiet, format!("{name:>10}"))
        ));
    };
    line("id", &record.id);
    line(
        "state",
        &look.paint(out::tone_of_state(&record.state), state(record)),
    );
    line("scope", &out::printable(&record.scope));
    for (name, value) in [
        ("tenant", &record.tenant),
        ("environment", &record.environment),
    ] {
        if !value.is_empty() {
            line(name, &out::printable(value));
        }
    }
    let hint = out::printable(&record.key_hint);
    line("key", &format!("{hint}… (only a prefix is stored)"));
    line(
        "attempt",
        &format!("{} of at most {}", record.attempt, record.max_attempts),
    );
    line("fence", &record.fence.to_string());
    line("crash", crash(&record.crash));
    let age = record
        .age_ms()
        .map_or(String::new(), |age| format!(" ({} ago)", out::span(age)));
    line("created", &format!("{}{age}", record.created_time));
    line("written", &record.written_time);
    line(
        "expires",
        &format!("in {}", out::span(record.expires_in_ms)),
    );
    if let Some(unreadable) = &record.unreadable {
        line("content", &out::printable(&unreadable.describe()));
    }
    if let Some(answer) = &record.answer_summary {
        let status = answer
            .status
            .map_or(String::new(), |status| format!("status {status}, "));
        let kept = if answer.kept { "" } else { ", not stored" };
        line("answer", &format!("{status}{} bytes{kept}", answer.bytes));
    }
    let checkpoint = record.checkpoint.as_ref().map(Value::to_string);
    if let Some(checkpoint) = checkpoint.or_else(|| record.checkpoint_base64.clone()) {
        line("checkpoint", &out::escape_json(&checkpoint));
    }
    if let Some(answer) = &record.answer {
        out::say(out::escape_json(&format!("\n{answer:#}")));
    }
}

fn state(record: &Record) -> String {
    let words = out::words(&record.state);
    match record.state.as_str() {
        "running" if record.lapsed => {
            format!("{words}, its lease has lapsed: the next request takes over")
        }
        "running" => format!(
            "{words}, {} left of a lease of {}",
            out::span(record.lease_left_ms),
            out::span(record.lease_ms)
        ),
        "in_doubt" if record.lapsed => format!("{words}: its owner has stopped renewing the lease"),
        "released" => format!("{words}: free to claim"),
        _ => words,
    }
}

fn crash(policy: &str) -> &str {
    match policy {
        "takeover" => "takeover (at least once)",
        "hold" => "hold (at most once)",
        other => other,
    }
}

fn show_history(look: Style, history: &History, is_remote: bool) {
    if history.entries.is_empty() {
        let hint = if is_remote {
            "the audit trail of this sidecar has no entry for it"
        } else {
            "its history is in the audit trail of the sidecars: use --admin URL"
        };
        out::say(look.paint(Tone::Quiet, format!("\n{hint}")));
        return;
    }
    out::say("");
    let mut table = look.table(["TIME", "WHAT HAPPENED", "BY", ""]);
    for entry in &history.entries {
        table.add_row([
            look.cell(
                Tone::Plain,
                entry.time.replace('T', " ").trim_end_matches('Z'),
            ),
            look.cell(Tone::Strong, &entry.kind),
            look.cell(Tone::Plain, entry.actor.as_deref().unwrap_or("")),
            look.cell(Tone::Quiet, entry.details()),
        ]);
    }
    out::say(table.trim_fmt());
    if !history.complete {
        out::say(look.paint(
            Tone::Quiet,
            "older entries may exist that this sidecar no longer has",
        ));
    }
}
