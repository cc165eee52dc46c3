//! `semel keys list`: lists records.

use std::collections::HashSet;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::client::view::{Page, Record};
use crate::client::{ApiPath, Client, Target, typed};
use crate::exit::Exit;
use crate::out::{self, Style, Tone};
use crate::progress::Progress;

/// Lists records.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel keys list --in-doubt --admin http://127.0.0.1:9090
  semel keys list --scope /charges --limit 1000 --json --store redis://127.0.0.1")]
pub(crate) struct List {
    #[command(flatten)]
    target: Target,
    /// Only records in doubt, including lapsed leases under `hold`.
    #[arg(long, conflicts_with = "state")]
    in_doubt: bool,
    /// Only records in this state.
    #[arg(long)]
    state: Option<State>,
    /// Only this tenant.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only this scope.
    #[arg(long, value_name = "NAME")]
    scope: Option<String>,
    /// The maximum number of records.
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
    /// Show full IDs on a terminal, too.
    #[arg(long)]
    full_ids: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The state of a record.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "kebab-case")]
pub(crate) enum State {
    /// Running under a lease.
    Running,
    /// Completed.
    Completed,
    /// Failed permanently.
    Failed,
    /// The outcome is unknown.
    InDoubt,
    /// Free to claim.
    Released,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::InDoubt => "in_doubt",
            Self::Released => "released",
        }
    }
}

/// The largest page of the API.
const PAGE: usize = 1000;

/// Scopes that Semel uses itself. They are listed only with --scope.
const OWN_SCOPES: [&str; 3] = [
    semel::core::canary::SCOPE,
    semel::core::engine::ANSWER_SCOPE,
    semel_server::health::SELF_CHECK_SCOPE,
];

/// The filter of a listing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filter<'a> {
    pub(crate) state: Option<&'a str>,
    pub(crate) environment: Option<&'a str>,
    pub(crate) tenant: Option<&'a str>,
    pub(crate) scope: Option<&'a str>,
}

impl Filter<'_> {
    /// Requests one page.
    pub(crate) async fn page(
        &self,
        client: &Client,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page, Exit> {
        let path = ApiPath::new("/admin/v1/records")
            .with("state", self.state)
            .with("environment", self.environment)
            .with("tenant", self.tenant)
            .with("scope", self.scope)
            .with("cursor", cursor)
            .with("limit", Some(limit.clamp(1, PAGE)));
        typed(client.get(&path).await?)
    }
}

impl List {
    pub(super) async fn run(&self) -> Result<(), Exit> {
        let client = self.target.client().await?;
        let state = if self.in_doubt {
            Some(State::InDoubt)
        } else {
            self.state
        };
        let filter = Filter {
            state: state.map(State::name),
            environment: self.target.environment.as_deref(),
            tenant: self.tenant.as_deref(),
            scope: self.scope.as_deref(),
        };
        let (records, complete) = self.collect(&client, filter).await?;
        if self.json {
            out::json(&json!({"records": records, "complete": complete}));
            return Ok(());
        }
        let records: Vec<Record> = typed(Value::Array(records))?;
        self.show(&records, complete, filter);
        Ok(())
    }

    /// Records up to the limit, and whether the list is complete.
    async fn collect(
        &self,
        client: &Client,
        filter: Filter<'_>,
    ) -> Result<(Vec<Value>, bool), Exit> {
        let most = self.limit as usize;
        let progress = Progress::counting("listing", "records");
        let (mut records, mut seen) = (Vec::new(), HashSet::new());
        let mut cursor: Option<String> = None;
        loop {
            let wanted = most - records.len();
            let page = filter.page(client, cursor.as_deref(), wanted).await?;
            for record in page.records {
                let is_own =
                    filter.scope.is_none() && OWN_SCOPES.iter().any(|own| record["scope"] == **own);
                // Some stores may list a record twice.
                if !is_own && seen.insert(record["id"].as_str().unwrap_or_default().to_owned()) {
                    records.push(record);
                }
            }
            progress.to(records.len() as u64);
            cursor = page.next;
            if cursor.is_none() || records.len() >= most {
                let complete = cursor.is_none() && records.len() <= most;
                records.truncate(most);
                return Ok((records, complete));
            }
        }
    }

    fn show(&self, records: &[Record], complete: bool, filter: Filter<'_>) {
        let look = Style::for_stdout();
        if records.is_empty() {
            out::say(match filter.state {
                Some("in_doubt") => "no record is in doubt",
                _ => "no record matches",
            });
            return;
        }
        let has_tenants = records.iter().any(|record| !record.tenant.is_empty());
        let mut table = if has_tenants {
            look.table([
                "ID",
                "STATE",
                "SCOPE",
                "TENANT",
                "KEY",
                "TRY",
                "AGE",
                "EXPIRES IN",
            ])
        } else {
            look.table(["ID", "STATE", "SCOPE", "KEY", "TRY", "AGE", "EXPIRES IN"])
        };
        let in_full = self.full_ids || !look.is_terminal();
        for record in records {
            let id = if in_full {
                &record.id
            } else {
                out::short(&record.id)
            };
            let mut row = vec![
                look.cell(Tone::Plain, id),
                look.cell(out::tone_of_state(&record.state), state(record)),
                look.cell(Tone::Plain, &record.scope),
            ];
            if has_tenants {
                row.push(look.cell(Tone::Plain, &record.tenant));
            }
            row.extend([
                look.cell(Tone::Plain, format!("{}…", record.key_hint)),
                look.cell(Tone::Plain, tries(record)),
                look.cell(
                    Tone::Plain,
                    record.age_ms().map_or("?".to_owned(), out::span),
                ),
                look.cell(Tone::Plain, out::span(record.expires_in_ms)),
            ]);
            table.add_row(row);
        }
        out::say(table.trim_fmt());
        let count = records.len();
        let records = if count == 1 { "record" } else { "records" };
        let more = if complete {
            ""
        } else {
            "; there may be more: --limit NUMBER"
        };
        let ids = if in_full {
            ""
        } else {
            "; --full-ids shows full IDs"
        };
        out::say(look.paint(Tone::Quiet, format!("{count} {records}{more}{ids}")));
    }
}

/// The state, and whether the content can't be read.
fn state(record: &Record) -> String {
    let words = out::words(&record.state);
    match record.unreadable {
        Some(_) => format!("{words}, unreadable"),
        None => words,
    }
}

fn tries(record: &Record) -> String {
    format!("{}/{}", record.attempt, record.max_attempts)
}
