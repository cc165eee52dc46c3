//! `semel keys inspect`.

use clap::Args;
use serde_json::{Value, json};

use super::find::Which;
use crate::client::view::{History, Record};
use crate::client::{Path, Target, typed};
use crate::exit::Exit;
use crate::out::{self, Look, Tone};

/// Shows a record, and what happened to it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel keys inspect 3f9c21d07be4 --admin http://127.0.0.1:9090
  semel keys inspect --key ord-123 --scope /charges --store redis://127.0.0.1")]
pub(crate) struct Inspect {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    target: Target,
    /// Show the answer too: it may have people's data in it.
    #[arg(long)]
    answer: bool,
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(super) async fn run(&self) -> Result<(), Exit> {
        let client = self.target.client().await?;
        let found = self.which.find(&client, self.answer).await?;
        let record: Record = typed(found.clone())?;
        let path = Path::new(format!("/admin/v1/records/{}/history", record.id));
        let history = client.get(&path).await?;
        if self.json {
            out::json(&json!({"record": found, "history": history}));
            return Ok(());
        }
        let look = Look::of_stdout();
        show(look, &record);
        show_history(look, &typed(history)?, client.is_remote());
        if record.state == "in_doubt" {
            out::say(format!(
                "\nWhat became of it is for you to find out; then say so:\n  semel keys resolve {} --complete --status 200 --body-file FILE --reason WHY\n  semel keys resolve {} --release --reason WHY    # it did not happen",
                out::short(&record.id),
                out::short(&record.id),
            ));
        }
        Ok(())
    }
}

/// A record, one line for each thing there is to know.
pub(super) fn show(look: Look, record: &Record) {
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
    line("scope", &record.scope);
    for (name, value) in [
        ("tenant", &record.tenant),
        ("environment", &record.environment),
    ] {
        if !value.is_empty() {
            line(name, value);
        }
    }
    line(
        "key",
        &format!("{}… (only its beginning is kept)", record.key_hint),
    );
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
    if let Some(answer) = &record.answer_summary {
        let status = answer
            .status
            .map_or(String::new(), |status| format!("status {status}, "));
        let kept = if answer.kept { "" } else { ", not kept" };
        line("answer", &format!("{status}{} bytes{kept}", answer.bytes));
    }
    let checkpoint = record.checkpoint.as_ref().map(Value::to_string);
    if let Some(checkpoint) = checkpoint.or_else(|| record.checkpoint_base64.clone()) {
        line("checkpoint", &checkpoint);
    }
    if let Some(answer) = &record.answer {
        out::say(format!("\n{answer:#}"));
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
        "in_doubt" if record.lapsed => format!("{words}: its owner has not been heard of"),
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

fn show_history(look: Look, history: &History, is_remote: bool) {
    if history.entries.is_empty() {
        let hint = if is_remote {
            "this sidecar's audit trail knows nothing of it"
        } else {
            "what happened is in the audit trail of the sidecars: ask one with --admin URL"
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
            "there may be more that this sidecar no longer has",
        ));
    }
}
