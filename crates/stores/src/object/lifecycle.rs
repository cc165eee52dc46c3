//! A lifecycle rule with which the bucket itself removes expired records.

use std::time::Duration;

use object_store::path::Path;
use semel_core::store::StoreResult;
use serde_json::{Value, json};

use super::extra_objects::extra_folder;
use super::url::{Cloud, Target};

/// A rule, and the command that sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lifecycle {
    /// The rule, as the cloud's own tools take it.
    pub rule: Value,
    /// After how many whole days without a write an object is removed.
    pub days: u64,
    /// The command that sets it, with the rule in `rule.json`.
    pub command: String,
}

/// The rule for the bucket at `url` if no record is kept longer than `retention`.
///
/// Buckets count whole days since the last write, so a record is removed up to two days after it
/// expired, never before: one day because a day that has begun doesn't count, one for the margin
/// between clocks.
///
/// # Errors
/// If the URL can't be used.
pub fn lifecycle(url: &str, retention: Duration) -> StoreResult<Lifecycle> {
    let target = Target::parse(url)?;
    let folder = format!("{}/", target.prefix);
    Ok(rule_for(&target, "semel-expired", &[folder], retention))
}

/// The same for other objects: those in these folders, which lie below the folder that the URL
/// names. `name` is the name of the rule.
///
/// # Errors
/// If the URL can't be used.
pub fn lifecycle_of(
    url: &str,
    name: &str,
    folders: &[Path],
    retention: Duration,
) -> StoreResult<Lifecycle> {
    let target = Target::parse(url)?;
    let root = extra_folder(&target.root());
    let place = |folder: &Path| {
        let parts = root.parts().chain(folder.parts());
        format!("{}/", parts.collect::<Path>())
    };
    let folders: Vec<String> = folders.iter().map(place).collect();
    Ok(rule_for(&target, name, &folders, retention))
}

fn rule_for(target: &Target, name: &str, folders: &[String], retention: Duration) -> Lifecycle {
    const DAY: u64 = 24 * 60 * 60;
    let bucket = &target.bucket;
    let days = retention.as_secs().div_ceil(DAY) + 1;
    let (rule, command) = match target.cloud {
        Cloud::S3 => (
            json!({"Rules": folders.iter().zip(1..).map(|(folder, number)| json!({
                "ID": if number == 1 { name.to_owned() } else { format!("{name}-{number}") },
                "Status": "Enabled",
                "Filter": {"Prefix": folder},
                "Expiration": {"Days": days},
                // In a bucket with versioning, every settlement leaves an old version.
                "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
            })).collect::<Vec<_>>()}),
            format!(
                "aws s3api put-bucket-lifecycle-configuration --bucket {bucket} --lifecycle-configuration file://rule.json"
            ),
        ),
        Cloud::Gcs => (
            json!({"rule": [{
                "action": {"type": "Delete"},
                "condition": {"age": days, "matchesPrefix": folders},
            }]}),
            format!("gcloud storage buckets update gs://{bucket} --lifecycle-file=rule.json"),
        ),
        Cloud::Azure => (
            json!({"rules": [{
                "enabled": true,
                "name": name,
                "type": "Lifecycle",
                "definition": {
                    "actions": {"baseBlob": {"delete": {"daysAfterModificationGreaterThan": days}}},
                    "filters": {
                        "blobTypes": ["blockBlob"],
                        "prefixMatch": folders.iter().map(|folder| format!("{bucket}/{folder}")).collect::<Vec<_>>(),
                    },
                },
            }]}),
            "az storage account management-policy create --account-name NAME --resource-group GROUP --policy @rule.json"
                .to_owned(),
        ),
    };
    Lifecycle {
        rule,
        days,
        command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_record_is_removed_before_it_expires() {
        let days = |hours: u64| {
            let retention = Duration::from_secs(hours * 3600);
            lifecycle("s3://bucket", retention).unwrap().days
        };
        assert_eq!((days(1), days(24), days(25), days(720)), (2, 2, 3, 31));
    }

    #[test]
    fn each_cloud_has_its_form_and_the_prefix_is_ours_alone() {
        for (url, folder) in [
            ("s3://bucket", "\"idempotency/\""),
            ("gs://bucket/a", "\"a/\""),
            ("az://x:y@box/a/b", "\"box/a/b/\""),
        ] {
            let rule = lifecycle(url, Duration::from_secs(86_400)).unwrap();
            assert!(rule.rule.to_string().contains(folder), "{}", rule.rule);
        }
    }

    #[test]
    fn other_objects_lie_below_the_folder_of_the_url() {
        let folders = [Path::from("keys"), Path::from("tenants/a/keys")];
        let span = Duration::from_secs(1);
        let prefixes = |url: &str| {
            let made = lifecycle_of(url, "keys", &folders, span).unwrap();
            let rules = made.rule["Rules"].as_array().cloned().unwrap_or_default();
            let prefix = |rule: &Value| format!("{} {}", rule["ID"], rule["Filter"]["Prefix"]);
            rules.iter().map(prefix).collect::<Vec<_>>()
        };
        assert_eq!(
            prefixes("s3://bucket/a/b"),
            [
                "\"keys\" \"a/b/keys/\"",
                "\"keys-2\" \"a/b/tenants/a/keys/\""
            ]
        );
        assert_eq!(prefixes("s3://bucket")[0], "\"keys\" \"keys/\"");
        for (url, first) in [
            ("gs://b/a", "\"a/keys/\""),
            ("az://x:y@b/a", "\"b/a/keys/\""),
        ] {
            let made = lifecycle_of(url, "keys", &folders, span).unwrap();
            assert!(made.rule.to_string().contains(first), "{}", made.rule);
        }
    }

    #[test]
    fn a_secret_in_the_url_is_not_in_the_rule() {
        let made = lifecycle("s3://key:hunter2@bucket", Duration::from_secs(1)).unwrap();
        assert!(!format!("{made:?}").contains("hunter2"));
    }
}
