//! `semel lifecycle`: prints the lifecycle rule of a bucket.

use clap::Args;
use semel_server::config::Span;

use crate::exit::{self, Exit};
use crate::out;

/// Prints the lifecycle rule by which a bucket removes expired records, and the command that sets
/// it.
///
/// Expired records count as absent even before they are removed. The rule counts whole days since
/// an object was last written, so it must be as long as the longest retention of any route.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel lifecycle --store s3://my-bucket --retention 7d
  semel lifecycle --store s3://my-bucket --retention 7d --json > rule.json")]
pub(crate) struct Lifecycle {
    /// The bucket: s3://…, gs://…, az://…
    #[arg(long, value_name = "URL", env = "SEMEL_STORE_URL")]
    store: String,
    /// The longest retention of any route.
    #[arg(long, value_name = "SPAN", default_value = "24h")]
    retention: Span,
    /// Print only the rule, for a file.
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
                "removes objects {} days after their last write; save it as rule.json, then \
                 run\n  {}",
                made.days, made.command
            ));
        }
        Ok(())
    }
}
