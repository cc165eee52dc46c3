//! `semel lifecycle`.

use clap::Args;
use semel_server::config::Span;

use crate::exit::{self, Exit};
use crate::out;

/// Prints the rule with which a bucket itself removes expired records, and the command that sets it.
///
/// Expired records count as absent whether or not they are removed. The rule goes by whole days since an object was last
/// written, so it has to be as long as the longest retention of any route.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel lifecycle --store s3://my-bucket --retention 7d
  semel lifecycle --store s3://my-bucket --retention 7d --json > rule.json")]
pub(crate) struct Lifecycle {
    /// The bucket: s3://…, gs://…, az://…
    #[arg(long, value_name = "URL", env = "SEMEL_STORE_URL")]
    store: String,
    /// The longest that any record is kept.
    #[arg(long, value_name = "SPAN", default_value = "24h")]
    retention: Span,
    /// The rule alone, for a file.
    #[arg(long)]
    json: bool,
}

impl Lifecycle {
    pub(crate) fn run(self) -> Exit {
        self.print().into()
    }

    fn print(&self) -> Result<(), Exit> {
        let made = semel_stores::object::lifecycle(&self.store, self.retention.0);
        let made = made.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let cause = cause.unwrap_or_else(|| error.to_string());
            let message = format!("{cause}\n    fix: --store s3://BUCKET/PREFIX");
            Exit::failed(exit::CONFIG, message)
        })?;
        out::json(&made.rule);
        if !self.json {
            out::note(format_args!(
                "removes what was not written for {} days; put it into rule.json, then\n  {}",
                made.days, made.command
            ));
        }
        Ok(())
    }
}
