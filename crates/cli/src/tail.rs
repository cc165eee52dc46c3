//! `semel tail`: follows the events of a sidecar.

use clap::Args;
use serde_json::Value;

use crate::client::view::Entry;
use crate::client::{Target, typed};
use crate::events::{AuditStream, EventFilter};
use crate::exit::{self, Exit};
use crate::out::{self, Style, Tone};
use crate::runtime;

/// Follows the events of a running sidecar: claims, replays, conflicts, changes by operators.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel tail --admin http://127.0.0.1:9090
  semel tail --kind idempotency.conflict --json | jq .scope")]
pub(crate) struct Tail {
    #[command(flatten)]
    target: Target,
    /// Only kinds with this prefix, such as idempotency.replay or admin.
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only this tenant.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only this scope.
    #[arg(long, value_name = "NAME")]
    scope: Option<String>,
    /// Only the record with this full ID.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Start with this number of recent events.
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1000))]
    recent: u32,
    /// Stop after this number of events.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: Option<u32>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

impl Tail {
    pub(crate) fn run(self) -> Exit {
        runtime::block_on(async move { self.follow().await }).into()
    }

    async fn follow(&self) -> Result<(), Exit> {
        let client = self.target.client().await?;
        if !client.is_remote() {
            let message = "a store has no events; a running sidecar has\n    fix: --admin \
                           http://HOST:PORT, of a sidecar with admin.address set";
            return Err(Exit::failed(exit::CONFIG, message));
        }
        let wanted = EventFilter {
            id: self.id.clone(),
            tenant: self.tenant.clone(),
            scope: self.scope.clone(),
            kind: self.kind.clone(),
            recent: Some(self.recent),
            limit: self.limit,
        };
        let mut events = AuditStream::open(&client, &wanted).await?;
        let look = Style::for_stdout();
        if look.is_terminal() && !self.json {
            out::note(format_args!(
                "following {}; press Ctrl-C to stop",
                client.name
            ));
        }
        let mut seen = 0;
        while let Some(entry) = events.next().await {
            let entry = entry?;
            if self.json {
                out::say(out::escape_json(&entry.to_string()));
            } else {
                out::say(line(look, entry)?);
            }
            seen += 1;
        }
        if self.limit.is_some_and(|limit| seen >= limit) {
            return Ok(());
        }
        let message = format!("{} ended the stream", client.name);
        Err(Exit::failed(exit::UNREACHABLE, message))
    }
}

/// The tone of an event.
pub(crate) fn tone(kind: &str) -> Tone {
    match kind {
        "idempotency.replay" | "idempotency.settled" | "idempotency.recovered" => Tone::Good,
        "idempotency.key.created" => Tone::Plain,
        "idempotency.takeover" | "idempotency.busy" | "idempotency.lock.contention" => {
            Tone::Careful
        }
        kind if kind.starts_with("admin.") => Tone::Strong,
        _ => Tone::Bad,
    }
}

fn line(look: Style, entry: Value) -> Result<String, Exit> {
    let entry: Entry = typed(entry)?;
    let place = match entry.tenant.as_str() {
        "" => out::printable(&entry.scope),
        tenant => out::printable(&format!("{} [{tenant}]", entry.scope)),
    };
    let id = entry.id.as_deref().map_or("", out::short);
    let actor = entry.actor.as_ref().map_or(String::new(), |actor| {
        format!(" by {}", out::printable(actor))
    });
    Ok(format!(
        "{}  {}  {id:<12}  {place}{actor}  {}",
        look.paint(Tone::Quiet, entry.clock()),
        look.paint(tone(&entry.kind), format!("{:<28}", entry.kind)),
        look.paint(Tone::Quiet, entry.details()),
    ))
}
