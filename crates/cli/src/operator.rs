//! `semel operator`: creates a token for an operator.

use clap::{Args, ValueEnum};
use semel_server::operators::{Operators, Role};
use semel_server::web::NewEntry;

use crate::exit::Exit;
use crate::token::print_entry;

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
        let role = match self.role {
            RoleName::Read => Role::Read,
            RoleName::Operate => Role::Operate,
            RoleName::Admin => Role::Admin,
        };
        let new = NewEntry {
            name: &self.name,
            tenant: self.tenant.as_deref(),
            expires: self.expires.as_deref(),
        };
        let clock = semel::tokio_env().clock;
        print_entry(Operators::create_entry(new, role, &*clock))
    }
}
