//! `semel keys resolve`: resolves a record in doubt.

use std::io::Read as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use serde_json::{Map, Value, json};

use super::change::{self, AuditArgs};
use super::find::RecordSelector;
use crate::client::Target;
use crate::exit::{self, Exit};

/// The largest body: the admin API takes 2 MiB, and base64 adds a third.
const MAX_BODY_BYTES: u64 = 1024 * 1024;

/// Resolves a record in doubt: records what became of its run.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel keys resolve 3f9c21d07be4 --complete --status 201 --body-file body.json --reason \"at the bank\"
  semel keys resolve 3f9c21d07be4 --release --reason \"the bank has no such charge\"")]
pub(crate) struct Resolve {
    #[command(flatten)]
    which: RecordSelector,
    #[command(flatten)]
    outcome: Outcome,
    #[command(flatten)]
    answer: Answer,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    signed: AuditArgs,
    /// Change nothing unless the record still has this fence.
    #[arg(long, value_name = "NUMBER")]
    fence: Option<u64>,
}

#[derive(Args, Clone, Copy, Debug)]
#[group(required = true, multiple = false)]
struct Outcome {
    /// The effect happened: store this response and replay it.
    #[arg(long)]
    complete: bool,
    /// The effect failed permanently: store this failure and replay it.
    #[arg(long)]
    fail: bool,
    /// The effect did not happen: the next request with the key runs it.
    #[arg(long, conflicts_with_all = ["status", "body_file", "header"])]
    release: bool,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Response to store")]
struct Answer {
    /// The HTTP status. Leave it out for a record of the typed library.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(200..=599))]
    status: Option<u16>,
    /// A file with the body, or - for standard input.
    #[arg(long, value_name = "FILE")]
    body_file: Option<String>,
    /// A header, such as "Content-Type: application/json". May be repeated.
    #[arg(long, value_name = "NAME: VALUE", requires = "status")]
    header: Vec<String>,
}

impl Outcome {
    const fn name(self) -> &'static str {
        match (self.complete, self.fail) {
            (true, _) => "completed",
            (_, true) => "failed",
            _ => "released",
        }
    }

    const fn question(self) -> &'static str {
        match (self.complete, self.fail) {
            (true, _) => "Record that it happened, and replay this response?",
            (_, true) => "Record that it failed permanently, and replay this response?",
            _ => "Record that it did not happen? The next request with its key runs it.",
        }
    }
}

impl Answer {
    fn read(&self) -> Result<Value, Exit> {
        let mut answer = Map::new();
        if let Some(status) = self.status {
            answer.insert("status".to_owned(), status.into());
        }
        let mut headers = Vec::new();
        for header in &self.header {
            let Some((name, value)) = header.split_once(':') else {
                let message = format!("--header {header}: write \"NAME: VALUE\"");
                return Err(Exit::failed(exit::REFUSED, message));
            };
            headers.push(json!({"name": name.trim(), "value": value.trim()}));
        }
        let body = self.body_file.as_deref().map(read_body).transpose()?;
        if let Some(body) = &body {
            let has_type = self
                .header
                .iter()
                .any(|header| header.to_ascii_lowercase().starts_with("content-type"));
            let is_json = serde_json::from_slice::<Value>(body).is_ok();
            if self.status.is_some() && !has_type && is_json {
                headers.push(json!({"name": "content-type", "value": "application/json"}));
            }
            // Base64 preserves every byte of the file.
            answer.insert(
                "body_base64".to_owned(),
                BASE64_STANDARD.encode(body).into(),
            );
        }
        if !headers.is_empty() {
            answer.insert("headers".to_owned(), headers.into());
        }
        Ok(Value::Object(answer))
    }
}

fn read_body(file: &str) -> Result<Vec<u8>, Exit> {
    let failed =
        |error: std::io::Error| Exit::failed(exit::REFUSED, format!("--body-file {file}: {error}"));
    let mut body = Vec::new();
    let most = MAX_BODY_BYTES + 1;
    if file == "-" {
        std::io::stdin()
            .take(most)
            .read_to_end(&mut body)
            .map_err(failed)?;
    } else {
        let opened = std::fs::File::open(file).map_err(failed)?;
        opened.take(most).read_to_end(&mut body).map_err(failed)?;
    }
    if body.len() as u64 > MAX_BODY_BYTES {
        let message = format!("--body-file {file}: the limit is {MAX_BODY_BYTES} bytes");
        return Err(Exit::failed(exit::REFUSED, message));
    }
    Ok(body)
}

impl Resolve {
    pub(super) async fn run(&self) -> Result<(), Exit> {
        let mut more = json!({"outcome": self.outcome.name()});
        if !self.outcome.release {
            more["answer"] = self.answer.read()?;
        }
        let client = self.target.client().await?;
        let record = change::show_before(&self.which, &client, &self.signed).await?;
        more["fence"] = self.fence.unwrap_or(record.fence).into();
        if record.state != "in_doubt" {
            // The API decides; the note helps the operator before the question.
            crate::out::note(format_args!(
                "the record is {}, not in doubt",
                crate::out::words(&record.state)
            ));
        }
        self.signed.confirm(self.outcome.question())?;
        let body = self.signed.body(more);
        change::change(&client, &record, "resolve", body, self.signed.json).await
    }
}
