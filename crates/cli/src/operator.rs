//! `semel operator`.

use clap::{Args, ValueEnum};
use semel_server::admin::new_token;

use crate::exit::{self, Exit};
use crate::out;

/// Makes a token for an operator, and the lines of `admin.operators_file` that let it in.
#[derive(Args)]
#[command(after_help = "\
The token is shown once, on the error output: the file has its digest alone. The file counts at once when it changes.

Examples:
  semel operator jo --role operate >> /etc/semel/operators.toml
  semel operator night-shift --role read --tenant acme --expires 2027-01-31 >> /etc/semel/operators.toml")]
pub(crate) struct Operator {
    /// Its name, as the audit trail has it.
    name: String,
    /// What it may do.
    #[arg(long, value_enum)]
    role: RoleName,
    /// The only tenant whose records it may see.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// The day from which on its token is refused, in UTC.
    #[arg(long, value_name = "YYYY-MM-DD")]
    expires: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum RoleName {
    /// Looks at records, figures and histories, and at no answer.
    Read,
    /// Reads answers too; unlocks, resolves, resets; gives dead letters another chance.
    Operate,
    /// Erases and purges too.
    Admin,
}

impl Operator {
    pub(crate) fn run(self) -> Exit {
        let (token, digest) = match new_token() {
            Ok(made) => made,
            Err(error) => return Exit::failed(exit::UNEXPECTED, error.to_string()),
        };
        let role = match self.role {
            RoleName::Read => "read",
            RoleName::Operate => "operate",
            RoleName::Admin => "admin",
        };
        let mut line = toml::Table::new();
        line.insert("name".to_owned(), self.name.into());
        line.insert("role".to_owned(), role.into());
        line.insert("token".to_owned(), digest.into());
        for (name, value) in [("tenant", self.tenant), ("expires", self.expires)] {
            if let Some(value) = value {
                line.insert(name.to_owned(), value.into());
            }
        }
        out::note(format_args!("token: {token}"));
        match toml::to_string(&line) {
            Ok(entry) => out::say(format_args!("[[operator]]\n{}", entry.trim_end())),
            Err(error) => return Exit::failed(exit::UNEXPECTED, error.to_string()),
        }
        Exit::Ok
    }
}
