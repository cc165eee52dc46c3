//! The program on a bucket: sidecar, list, doctor, lifecycle rule.

use crate::support::{Sidecar, env, semel};

/// A folder of the shared bucket for this test alone.
fn own_url() -> String {
    let run = semel::tokio_env().entropy.next_u128();
    env("SEMEL_TEST_S3_URL").replace('?', &format!("/cli-{run:032x}?"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn sidecar_stores_records_in_a_bucket() {
    let store = own_url();
    let sidecar = Sidecar::start(&store, "").await;
    let first = sidecar.send("/charges", "ord-1-abcdef").await;
    assert_eq!(first, (201, false, "charged".to_owned()));
    let again = sidecar.send("/charges", "ord-1-abcdef").await;
    assert_eq!(again, (201, true, "charged".to_owned()));
    // Another process, without the sidecar.
    let list = [
        "keys",
        "list",
        "--json",
        "--environment",
        &sidecar.environment,
        "--store",
        &store,
    ];
    let listed = semel(&list).await.json();
    assert_eq!(listed["records"][0]["state"], "completed", "{listed}");
    let doctor = semel(&["doctor", "--json", "--store", &store]).await.json();
    assert_eq!(doctor["healthy"], true, "{doctor:#}");
    let gc = semel(&["gc", "--json", "--store", &store]).await.json();
    assert_eq!(gc["expired"], 0, "{gc}");
}

#[tokio::test]
async fn lifecycle_rule_is_printed_without_secrets() {
    let line = [
        "lifecycle",
        "--store",
        "s3://key:hush@receipts/a",
        "--retention",
        "7d",
    ];
    let ended = semel(&line).await;
    assert!(ended.err.contains("--bucket receipts"), "{ended:?}");
    assert!(!format!("{ended:?}").contains("hush"), "{ended:?}");
    let rule = ended.json();
    assert_eq!(rule["Rules"][0]["Expiration"]["Days"], 8, "{rule}");
    assert_eq!(rule["Rules"][0]["Filter"]["Prefix"], "a/");
    let none = semel(&["lifecycle", "--store", "redis://127.0.0.1"]).await;
    none.failed(3, "s3, gs or az");
}

#[tokio::test]
async fn lifecycle_rule_for_the_keys_of_jobs_matches_their_folders() {
    let line = [
        "lifecycle",
        "--store",
        "s3://receipts/a",
        "--jobs",
        "--json",
    ];
    let rule = semel(&line).await.json();
    assert_eq!(rule["Rules"][0]["ID"], "semel-job-keys", "{rule}");
    assert_eq!(rule["Rules"][0]["Filter"]["Prefix"], "a/idempotency/");
    assert_eq!(rule["Rules"][0]["Expiration"]["Days"], 31);
    let more = [
        "--environment",
        "prod",
        "--tenant",
        "acme",
        "--tenant",
        "a/b",
        "--retention",
        "60d",
    ];
    let rule = semel(&[&line[..], &more[..]].concat()).await.json();
    let rules = rule["Rules"].as_array().expect("rules");
    let prefixes: Vec<_> = rules.iter().map(|rule| &rule["Filter"]["Prefix"]).collect();
    assert_eq!(
        prefixes,
        [
            "a/environments/prod/tenants/acme/idempotency/",
            "a/environments/prod/tenants/a%2Fb/idempotency/"
        ]
    );
    assert_eq!(rules[1]["Expiration"]["Days"], 61, "{rule}");
    let alone = semel(&["lifecycle", "--store", "s3://receipts", "--tenant", "acme"]).await;
    alone.failed(2, "--jobs");
}
