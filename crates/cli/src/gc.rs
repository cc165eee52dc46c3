//! `semel gc`: removes expired records.

use clap::Args;
use serde_json::{Value, json};

use crate::client::{ApiPath, Target};
use crate::exit::Exit;
use crate::keys::default_actor;
use crate::out;
use crate::progress::Progress;
use crate::runtime;

/// Removes expired records to free space. They already count as absent.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel gc --dry-run --store postgres://app@127.0.0.1/app
  semel gc --admin http://127.0.0.1:9090")]
pub(crate) struct Gc {
    #[command(flatten)]
    target: Target,
    /// Only count the records.
    #[arg(long)]
    dry_run: bool,
    /// The approximate maximum number of records to remove.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    limit: u64,
    /// The reason, for the audit trail.
    #[arg(long, value_name = "TEXT", default_value = "makes room")]
    reason: String,
    /// The actor, for the audit trail. The default is you on this host.
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The number of records removed by one call: each call stays short, and the progress bar moves.
const AT_ONCE: u64 = 10_000;

impl Gc {
    pub(crate) fn run(self) -> Exit {
        runtime::block_on(async move { self.collect().await }).into()
    }

    async fn collect(&self) -> Result<(), Exit> {
        let client = self.target.client().await?;
        let progress = Progress::counting("removing", "expired records");
        let actor = self.actor.clone().unwrap_or_else(default_actor);
        let stats = client.get(&ApiPath::new("/admin/v1/stats")).await?;
        let (mut found, mut short) = (0, stretches(&stats));
        loop {
            // A second dry run would count the same records again.
            let most = if self.dry_run {
                self.limit.min(1_000_000)
            } else {
                (self.limit - found).min(AT_ONCE)
            };
            let body = json!({
                "dry_run": self.dry_run,
                "most": most,
                "actor": actor,
                "reason": self.reason,
            });
            let done = client.post("/admin/v1/purges", body).await?;
            let expired = done["expired"].as_u64().unwrap_or(0);
            found += expired;
            progress.to(found);
            short -= u64::from(expired < most);
            if self.dry_run || short == 0 || found >= self.limit {
                break;
            }
        }
        drop(progress);
        if self.json {
            out::json(&json!({"expired": found, "dry_run": self.dry_run}));
            return Ok(());
        }
        out::say(match (found, self.dry_run) {
            (0, _) => "there are no expired records".to_owned(),
            (_, true) => format!(
                "{} expired records could be removed",
                out::number(found as f64)
            ),
            (_, false) => format!("{} expired records removed", out::number(found as f64)),
        });
        Ok(())
    }
}

/// The number of calls that may remove less than asked before nothing is left. A store with an
/// index needs one. A bucket has no index: each call reads one part of it and continues where the
/// last one ended.
fn stretches(stats: &Value) -> u64 {
    let store = &stats["store"];
    if store["name"] != "object" {
        return 1;
    }
    let records = store["records"].as_u64().unwrap_or(0);
    // The count is an estimate for large stores. Up to three calls are cut short: the first, the
    // one at the end of the bucket, and the one that finds the start again.
    (records + records / 10) / AT_ONCE + 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gc_reads_a_bucket_to_its_end() {
        let of = |name: &str, records: u64| {
            stretches(&json!({"store": {"name": name, "records": records}}))
        };
        assert_eq!(of("postgres", 50_000_000), 1);
        assert_eq!(of("object", 0), 3);
        assert!(of("object", 1_000_000) >= 103);
        assert_eq!(stretches(&json!({"store": {"name": "object"}})), 3);
    }
}
