//! `semel erase`: destroys the keys of a tenant or a subject, so that their stored responses can't
//! be read.

use clap::Args;
use serde_json::json;

use crate::client::Target;
use crate::exit::{self, Exit};
use crate::keys::AuditArgs;
use crate::{out, runtime};

/// Erases the stored responses and checkpoints of a tenant, or of one subject.
///
/// Their encryption keys are destroyed. Records stay, so that no effect runs again. It reaches what
/// was encrypted with keys of tenants and subjects: store.encryption.data_keys.
#[derive(Args)]
#[command(after_help = "\
The guide is docs/encryption.md. Run it again after an interruption: it goes on.

Examples:
  semel erase --tenant acme --reason \"contract ended\" --admin http://127.0.0.1:9090
  printf %s customer-17 | semel erase --tenant acme --subject - --reason \"asked for it\" --yes \\
    --admin http://127.0.0.1:9090")]
pub(crate) struct Erase {
    /// The tenant; \"\" if there is only one.
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// The subject, as requests name it; - reads it from standard input, which needs --yes. Without
    /// a subject, everything of the tenant is erased.
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    signed: AuditArgs,
}

impl Erase {
    pub(crate) fn run(self) -> Exit {
        runtime::block_on(async move { Box::pin(self.erase()).await }).into()
    }

    async fn erase(&self) -> Result<(), Exit> {
        let subject = match self.subject.as_deref() {
            Some("-") => Some(read_subject()?),
            other => other.map(str::to_owned),
        };
        let client = self.target.client().await?;
        let question = match subject {
            Some(_) => "Erase the stored responses of this subject? This can't be undone.",
            None => {
                "Erase the stored responses of this tenant, with all subjects? This can't be undone."
            }
        };
        self.signed.confirm(question)?;
        let mut body = json!({"tenant": self.tenant});
        if let Some(subject) = subject {
            body["subject"] = subject.into();
        }
        let body = self.signed.body(body);
        let done = client.post("/admin/v1/data-erasures", body).await?;
        if self.signed.json {
            out::json(&done);
            return Ok(());
        }
        let digest = done["digest"].as_str().unwrap_or_default();
        let (destroyed, before) = (&done["destroyed"], &done["before"]);
        out::say(format_args!(
            "{destroyed} keys were destroyed, {before} were before; the audit trail names this {digest}"
        ));
        Ok(())
    }
}

/// One line; a line break at its end doesn't count.
fn read_subject() -> Result<String, Exit> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|error| Exit::failed(exit::UNEXPECTED, error.to_string()))?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
