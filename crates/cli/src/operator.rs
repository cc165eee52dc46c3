//! `semel operator`: creates a token for an operator.

use clap::{Args, ValueEnum};
use semel_server::operators::new_token;

use crate::exit::{self, Exit};
use crate::out;

/// Creates a token for an operator, and prints the lines for `admin.operators_file`.
#[derive(Args)]
#[command(after_help = "\
The token is printed once, on standard error; the file holds only its digest. Changes of the file
take effect at once.

Examples:
  semel operator jo --role operate >> operators.toml
  semel operator night-shift --role read --tenant acme --expires 2027-01-31 >> operators.toml")]
pub(crate) struct Operator {
    /// The name of the operator, for the audit trail.
    name: String,
    /// The role of the operator.
    #[arg(long, value_enum)]
    role: RoleName,
    /// Restrict the operator to this tenant.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// The expiry date of the token, in UTC.
    #[arg(long, value_name = "YYYY-MM-DD")]
    expires: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum RoleName {
    /// Reads records, figures and histories, but no stored responses.
    Read,
    /// Also reads stored responses, unlocks, resolves and resets records, and retries dead letters.
    Operate,
    /// Also erases and purges.
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
