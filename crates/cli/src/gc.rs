//! `semel gc`.

use clap::Args;
use serde_json::{Value, json};

use crate::client::{Path, Target};
use crate::exit::Exit;
use crate::keys::default_actor;
use crate::out;
use crate::progress::Progress;
use crate::runtime;

/// Removes expired records. They count as absent already: this makes room.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel gc --dry-run --store postgres://app@127.0.0.1/app
  semel gc --admin http://127.0.0.1:9090")]
pub(crate) struct Gc {
    #[command(flatten)]
    target: Target,
    /// Only count them.
    #[arg(long)]
    dry_run: bool,
    /// At most about so many.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    limit: u64,
    /// Why, for the audit trail.
    #[arg(long, value_name = "TEXT", default_value = "makes room")]
    reason: String,
    /// Who; you on this host unless said.
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
}

/// How many are removed at once: a call stays short, and the bar moves.
const AT_ONCE: u64 = 10_000;

impl Gc {
    pub(crate) fn run(self) -> Exit {
        runtime::block_on(async move { self.collect().await }).into()
    }

    async fn collect(&self) -> Result<(), Exit> {
        let client = self.target.client().await?;
        let progress = Progress::counting("removing", "expired records");
        let actor = self.actor.clone().unwrap_or_else(default_actor);
        let stats = client.get(&Path::new("/admin/v1/stats")).await?;
        let (mut found, mut short) = (0, stretches(&stats));
        loop {
            // Counting again would count the same ones.
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
            (0, _) => "no record has expired that is still there".to_owned(),
            (_, true) => format!(
                "{} expired records could be removed",
                out::number(found as f64)
            ),
            (_, false) => format!("{} expired records removed", out::number(found as f64)),
        });
        Ok(())
    }
}

/// How many calls may remove fewer than they are asked to before nothing is left: one, where the store has an index. A
/// bucket has none: each call looks at a stretch of it, and goes on where the last one ended.
fn stretches(stats: &Value) -> u64 {
    let store = &stats["store"];
    if store["name"] != "object" {
        return 1;
    }
    let records = store["records"].as_u64().unwrap_or(0);
    // A large number is an estimate. And up to three are cut short: where the first one begins, at the end of the bucket,
    // and one that finds that it is there already.
    (records + records / 10) / AT_ONCE + 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_gone_through_to_its_end() {
        let of = |name: &str, records: u64| {
            stretches(&json!({"store": {"name": name, "records": records}}))
        };
        assert_eq!(of("postgres", 50_000_000), 1);
        assert_eq!(of("object", 0), 3);
        assert!(of("object", 1_000_000) >= 103);
        assert_eq!(stretches(&json!({"store": {"name": "object"}})), 3);
    }
}
