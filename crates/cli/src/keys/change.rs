//! Changes: who makes them and why, and a question before.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::find::Which;
use super::inspect;
use crate::client::view::Record;
use crate::client::{Client, Target, typed};
use crate::exit::{self, Exit};
use crate::out::{self, Look};

/// Who changes something, and why.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Who and why")]
pub(crate) struct Signed {
    /// Why, for the audit trail.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Who; you on this host unless said.
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Don't ask.
    #[arg(long, short)]
    yes: bool,
    /// As JSON, for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Signed {
    fn actor(&self) -> String {
        self.actor.clone().unwrap_or_else(default_actor)
    }

    /// The body of a change.
    pub(crate) fn body(&self, more: Value) -> Value {
        let mut body = json!({"actor": self.actor(), "reason": self.reason});
        if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
            body.extend(more);
        }
        body
    }

    /// Asks; where nobody can answer, `--yes` has to.
    pub(crate) fn confirm(&self, question: &str) -> Result<(), Exit> {
        if self.yes {
            return Ok(());
        }
        if !std::io::stdin().is_terminal() {
            let message = format!("{question}\n    fix: --yes, as nobody is there to be asked");
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

/// You on this host.
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

/// Shows what is about to change, unless a program reads.
pub(super) async fn look_first(
    which: &Which,
    client: &Client,
    signed: &Signed,
) -> Result<Record, Exit> {
    let record: Record = typed(which.find(client, false).await?)?;
    if !signed.json && !signed.yes {
        inspect::show(Look::of_stdout(), &record);
        out::say("");
    }
    if !client.keeps_trail() {
        out::note(
            "this change is written down nowhere: --admin URL, or --audit FILE, keeps a trail",
        );
    }
    Ok(record)
}

/// Sends a change of a record, and says what came of it.
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
        "{}: was {}, is {}",
        out::short(&record.id),
        text("before"),
        text("after"),
    ));
    if done["audited"] == Value::Bool(false) {
        out::note("the change was made, but its outcome could not be written to the audit trail");
    }
    Ok(())
}

/// Takes the lease away from an owner that is gone or stuck.
///
/// Should the owner live after all, its settlement will be refused, and what it has done stands.
#[derive(Args)]
pub(crate) struct Unlock {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    signed: Signed,
    /// Where the record goes.
    #[arg(long, default_value = "by-policy")]
    to: UnlockTo,
    /// The fence that you looked at: nothing changes where it is another by now.
    #[arg(long, value_name = "NUMBER")]
    fence: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "kebab-case")]
enum UnlockTo {
    /// Released under `takeover`, in doubt under `hold`.
    ByPolicy,
    /// Free to claim: the next request runs it.
    Released,
    /// In doubt, to be resolved.
    InDoubt,
}

impl Unlock {
    pub(super) async fn run(&self) -> Result<(), Exit> {
        let client = self.target.client().await?;
        let record = look_first(&self.which, &client, &self.signed).await?;
        self.signed
            .confirm("Take its lease away? If its owner lives, the effect may happen twice.")?;
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

/// Forgets a record, whatever it says: the next request with its key runs again.
#[derive(Args)]
pub(crate) struct Reset {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    signed: Signed,
    /// The fence that you looked at: nothing changes where it is another by now.
    #[arg(long, value_name = "NUMBER")]
    fence: Option<u64>,
}

impl Reset {
    pub(super) async fn run(&self) -> Result<(), Exit> {
        let client = self.target.client().await?;
        let record = look_first(&self.which, &client, &self.signed).await?;
        self.signed
            .confirm("Forget it? The next request with its key runs the effect again.")?;
        let fence = self.fence.unwrap_or(record.fence);
        let body = self.signed.body(json!({"fence": fence}));
        change(&client, &record, "reset", body, self.signed.json).await
    }
}

/// Makes an actor nameless in the audit trail; records are not touched.
#[derive(Args)]
#[command(after_help = "\
Example:
  semel keys erase user-4711 --reason \"asked to be forgotten\" --admin http://127.0.0.1:9090")]
pub(crate) struct Erase {
    /// Whose name, as given with the requests.
    #[arg(value_name = "ACTOR")]
    subject: String,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    signed: Signed,
}

impl Erase {
    pub(super) async fn run(&self) -> Result<(), Exit> {
        let client = self.target.client().await?;
        if !client.keeps_trail() {
            let message = "a store has no audit trail, so there is no name to erase\n    fix: --admin URL for the \
                           trail of a sidecar, or --audit FILE";
            return Err(Exit::failed(exit::REFUSED, message));
        }
        self.signed
            .confirm("Erase this name from the audit trail? It can't be brought back.")?;
        let body = self.signed.body(json!({"subject": self.subject}));
        let done = client.post("/admin/v1/erasures", body).await?;
        if self.signed.json {
            out::json(&done);
        } else {
            out::say(format!("the name is gone from {} entries", done["entries"]));
        }
        Ok(())
    }
}
