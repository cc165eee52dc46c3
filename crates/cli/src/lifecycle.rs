//! `semel lifecycle`: prints the lifecycle rule of a bucket.

use std::time::Duration;

use clap::Args;
use semel::core::store::StoreResult;
use semel_jobs::object::{DEFAULT_TTL, ObjectQueue};
use semel_server::config::Span;
use semel_stores::object::{Lifecycle as Rule, lifecycle, lifecycle_of};

use crate::exit::{self, Exit};
use crate::out;

/// How long records are kept, unless the caller says otherwise.
const DEFAULT_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Prints the lifecycle rule by which a bucket removes expired records, and the command that sets
/// it.
///
/// Expired records count as absent even before they are removed. The rule counts whole days since
/// an object was last written, so it must be as long as the longest retention of any route.
///
/// With --jobs it is the rule for the keys of jobs: as long as the longest retention of a job and
/// the slowest job together, because the key of a job that is unfinished is removed too. The jobs
/// themselves are removed by semel serve.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel lifecycle --store s3://my-bucket --retention 7d
  semel lifecycle --store s3://my-bucket --retention 7d --json > rule.json
  semel lifecycle --store s3://my-bucket/prod --jobs --retention 31d --tenant acme --tenant globex")]
pub(crate) struct Lifecycle {
    /// The bucket: s3://…, gs://…, az://…
    #[arg(long, value_name = "URL", env = "SEMEL_STORE_URL")]
    store: String,
    /// The longest retention of any route, or of any job. Default: 24h, and 30d with --jobs.
    #[arg(long, value_name = "SPAN")]
    retention: Option<Span>,
    /// Print the rule for the keys of jobs.
    #[arg(long)]
    jobs: bool,
    /// The environment of the jobs.
    #[arg(long, value_name = "NAME", default_value = "", requires = "jobs")]
    environment: String,
    /// A tenant of the jobs, once for each. Default: jobs without a tenant.
    #[arg(long, value_name = "NAME", requires = "jobs")]
    tenant: Vec<String>,
    /// Print only the rule, for a file.
    #[arg(long)]
    json: bool,
}

impl Lifecycle {
    pub(crate) fn run(self) -> Exit {
        self.print().into()
    }

    fn print(&self) -> Result<(), Exit> {
        let made = self.rule().map_err(|error| {
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

    fn rule(&self) -> StoreResult<Rule> {
        let retention = self.retention.map(|span| span.0);
        if !self.jobs {
            return lifecycle(&self.store, retention.unwrap_or(DEFAULT_RETENTION));
        }
        let nobody = [String::new()];
        let tenants = match self.tenant.is_empty() {
            true => &nobody[..],
            false => &self.tenant,
        };
        let folder = |tenant: &String| ObjectQueue::key_folder(&self.environment, tenant);
        let folders: Vec<_> = tenants.iter().map(folder).collect();
        let retention = retention.unwrap_or(DEFAULT_TTL);
        lifecycle_of(&self.store, "semel-job-keys", &folders, retention)
    }
}
