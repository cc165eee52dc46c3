//! `semel token`: creates a token for a caller of the protocol API and of the jobs API.

use clap::Args;
use semel_server::web::{NewEntry, NewToken, TokenFileError, Tokens};

use crate::exit::{self, Exit};
use crate::out;

/// Creates a token for a caller of the protocol API and of the jobs API, and prints the lines for
/// `api.tokens_file`.
#[derive(Args)]
#[command(after_help = "\
The token is printed once, on standard error; the file holds only its digest. Changes of the file
take effect at once: a token whose entry is removed is refused from then on.

Examples:
  semel token billing --tenant acme >> tokens.toml
  semel token migration --expires 2027-01-31 >> tokens.toml")]
pub(crate) struct Token {
    /// The name of the caller.
    name: String,
    /// The tenant whose keys and jobs the caller may use. Without it, those without a tenant.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// The expiry date of the token, in UTC: the first day on which it is refused.
    #[arg(long, value_name = "YYYY-MM-DD")]
    expires: Option<String>,
}

impl Token {
    pub(crate) fn run(self) -> Exit {
        let new = NewEntry {
            name: &self.name,
            tenant: self.tenant.as_deref(),
            expires: self.expires.as_deref(),
        };
        let clock = semel::tokio_env().clock;
        print_entry(Tokens::create_entry(new, &*clock))
    }
}

/// Prints a new token and its entry, or why there is none.
pub(crate) fn print_entry(made: Result<NewToken, TokenFileError>) -> Exit {
    let made = match made {
        Ok(made) => made,
        Err(error @ TokenFileError::File(_)) => {
            return Exit::failed(exit::UNEXPECTED, error.to_string());
        }
        Err(error) => return Exit::failed(exit::USAGE, error.to_string()),
    };
    out::note(format_args!("token: {}", made.token));
    out::say(made.entry.trim_end());
    Exit::Ok
}
