//! Commands that change records: unlock, reset and erase. They ask for confirmation and a reason.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::find::RecordSelector;
use super::inspect;
use crate::client::view::Record;
use crate::client::{Client, Target, typed};
use crate::exit::{self, Exit};
use crate::out::{self, Style};

/// The actor and the reason of a change.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Audit")]
pub(crate) struct AuditArgs {
    /// The reason, for the audit trail.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The actor, for the audit trail. The default is you on this host.
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Skip the confirmation.
    #[arg(long, short)]
    yes: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl AuditArgs {
    fn actor(&self) -> String {
        self.actor.clone().unwrap_or_else(default_actor)
    }

    /// The body of a change request.
    pub(crate) fn body(&self, more: Value) -> Value {
        let mut body = json!({"actor": self.actor(), "reason": self.reason});
        if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
            body.extend(more);
        }
        body
    }

    /// Asks for confirmation. Without a terminal, `--yes` is required.
    pub(crate) fn confirm(&self, question: &str) -> Result<(), Exit> {
        if self.yes {
            return Ok(());
        }
        if !std::io::stdin().is_terminal() {
            let message = format!(
                "{question}\n    fix: --yes, because there is no terminal to \
                                   ask on"
            );
            return Err(Exit::failed(exit::REFUSED, message));
        }
        eprint!("{question} [yes/no] ");
        let _ = std::io::stderr().flush();
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer);
        match (read, answer.trim()) {
            (Ok(_), "y" | "yes") => Ok(()),
            _ => Err(Exit::failed(exit::REFUSED, "nothing was changed")),
        }
    }
}

/// The current user on this host.
pub(crate) fn default_actor() -> String {
    let user = ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let host = rustix::system::uname();
    let host = host.nodename().to_str().unwrap_or("unknown").to_owned();
    let name = format!("{}@{host}", user.as_deref().unwrap_or("unknown"));
    name.chars()
        .filter(|character| (' '..='~').contains(character))
        .take(128)
        .collect()
}

/// Shows the record that is about to change, unless the output is JSON.
pub(super) async fn show_before(
    which: &RecordSelector,
    client: &Client,
    signed: &AuditArgs,
) -> Result<Record, Exit> {
    let record: Record = typed(which.find(client, false).await?)?;
    if !signed.json && !signed.yes {
        inspect::show(Style::for_stdout(), &record);
        out::say("");
    }
    if !client.keeps_trail() {
        out::note("this change is not audited: use --admin URL, or --audit FILE");
    }
    Ok(record)
}

/// Sends a change of a record, and prints the result.
pub(super) async fn change(
    client: &Client,
    record: &Record,
    how: &str,
    body: Value,
    as_json: bool,
) -> Result<(), Exit> {
    let path = format!("/admin/v1/records/{}/{how}", record.id);
    let done = client.post(&path, body).await?;
    if as_json {
        out::json(&done);
        return Ok(());
    }
    let text = |name: &str| out::words(done[name].as_str().unwrap_or_default());
    out::say(format!(
        "{}: was {}, now {}",
        out::short(&record.id),
        text("before"),
        text("after"),
    ));
    if done["audited"] == Value::Bool(false) {
        out::note("the change was made, but its outcome could not be written to the audit trail");
    }
    Ok(())
}

/// Releases a lease whose owner is gone or stuck.
///
/// If the owner is still alive, its settlement will be refused, but its effect remains.
#[derive(Args)]
pub(crate) struct Unlock {
    #[command(flatten)]
    which: RecordSelector,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    signed: AuditArgs,
    /// The new state of the record.
    #[arg(long, default_value = "by-policy")]
    to: UnlockTo,
    /// Change nothing unless the record still has this fence.
    #[arg(long, value_name = "NUMBER")]
    fence: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "kebab-case")]
enum UnlockTo {
    /// Released under `takeover`, in doubt under `hold`.
    ByPolicy,
    /// Free to claim: the next request runs the effect.
    Released,
    /// In doubt, to be resolved.
    InDoubt,
}

impl Unlock {
    pub(super) async fn run(&self) -> Result<(), Exit> {
        let client = self.target.client().await?;
        let record = show_before(&self.which, &client, &self.signed).await?;
        self.signed
            .confirm("Release its lease? If its owner is alive, the effect may happen twice.")?;
        let to = match self.to {
            UnlockTo::ByPolicy => "by_policy",
            UnlockTo::Released => "released",
            UnlockTo::InDoubt => "in_doubt",
        };
        let fence = self.fence.unwrap_or(record.fence);
        let body = self.signed.body(json!({"fence": fence, "to": to}));
        change(&client, &record, "unlock", body, self.signed.json).await
    }
}

/// Deletes a record: the next request with its key runs the effect again.
#[derive(Args)]
pub(crate) struct Reset {
    #[command(flatten)]
    which: RecordSelector,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    signed: AuditArgs,
    /// Change nothing unless the record still has this fence.
    #[arg(long, value_name = "NUMBER")]
    fence: Option<u64>,
}

impl Reset {
    pub(super) async fn run(&self) -> Result<(), Exit> {
        let client = self.target.client().await?;
        let record = show_before(&self.which, &client, &self.signed).await?;
        self.signed
            .confirm("Delete it? The next request with its key runs the effect again.")?;
        let fence = self.fence.unwrap_or(record.fence);
        let body = self.signed.body(json!({"fence": fence}));
        change(&client, &record, "reset", body, self.signed.json).await
    }
}

/// Anonymizes an actor in the audit trail. Records are not touched.
#[derive(Args)]
#[command(after_help = "\
Example:
  semel keys erase user-4711 --reason \"asked to be forgotten\" --admin http://127.0.0.1:9090")]
pub(crate) struct Erase {
    /// The name of the actor, as given with the requests.
    #[arg(value_name = "ACTOR")]
    subject: String,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    signed: AuditArgs,
}

impl Erase {
    pub(super) async fn run(&self) -> Result<(), Exit> {
        let client = self.target.client().await?;
        if !client.keeps_trail() {
            let message = "a store has no audit trail to erase a name from\n    fix: --admin URL \
                           for the trail of a sidecar, or --audit FILE";
            return Err(Exit::failed(exit::REFUSED, message));
        }
        self.signed
            .confirm("Erase this name from the audit trail? This can't be undone.")?;
        let body = self.signed.body(json!({"subject": self.subject}));
        let done = client.post("/admin/v1/erasures", body).await?;
        if self.signed.json {
            out::json(&done);
        } else {
            out::say(format!(
                "the name was erased from {} entries",
                done["entries"]
            ));
        }
        Ok(())
    }
}
