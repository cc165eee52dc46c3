//! `semel migrate` and `semel gc`: on a database of its own.

use semel_testkit::private::{MariaDbServer, PostgresServer, new_folder};

use crate::support::{Sidecar, pause, semel};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn tables_are_made_once_and_only_where_asked() {
    let server = PostgresServer::start(&[]).await;
    made_once(&server.url()).await;
    let server = MariaDbServer::start(&[]).await;
    made_once(&server.url()).await;
    let folder = new_folder("migrate");
    made_once(&format!("sqlite://{}/keys.db", folder.display())).await;
    std::fs::remove_dir_all(folder).expect("a folder of our own");
}

async fn made_once(url: &str) {
    let off = format!(
        "{url}{}migrate=off",
        if url.contains('?') { "&" } else { "?" }
    );
    let list = ["keys", "list", "--store", &off];
    semel(&list).await.failed(4, "the tables are not there");

    let dry = semel(&["migrate", "--dry-run", "--json", "--store", &off])
        .await
        .json();
    assert_eq!(dry["applied"], false);
    let steps = dry["steps"].as_array().expect("steps").clone();
    assert!(!steps.is_empty(), "{dry}");
    semel(&list).await.failed(4, "the tables are not there");

    let made = semel(&["migrate", "--json", "--store", &off]).await.json();
    assert_eq!(
        (&made["applied"], &made["steps"]),
        (&true.into(), &steps.into())
    );
    assert!(semel(&list).await.good().contains("no record matches"));
    assert!(
        semel(&["migrate", "--store", &off])
            .await
            .good()
            .contains("up to date")
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn job_tables_are_created_on_request() {
    let server = PostgresServer::start(&[]).await;
    let store = server.url();
    let made = semel(&["migrate", "--json", "--store", &store])
        .await
        .json();
    assert_eq!(
        made["steps"],
        serde_json::json!(["0001_records", "0002_fence_floor", "0003_above_floor"])
    );
    let asked = ["migrate", "--jobs", "--json", "--store", &store];
    let made = semel(&asked).await.json();
    assert_eq!(made["steps"], serde_json::json!(["0001_jobs"]));
    let again = semel(&asked).await.json();
    assert_eq!(again["steps"], serde_json::json!([]));
    semel(&["migrate", "--jobs", "--store", "mysql://u@127.0.0.1:1/d"])
        .await
        .failed(3, "jobs require");
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_reports_stores_without_tables_or_connection() {
    assert!(
        semel(&["migrate", "--store", "redis://127.0.0.1:1"])
            .await
            .good()
            .contains("nothing to do")
    );
    let away = semel(&["migrate", "--store", "postgres://u:hush@127.0.0.1:1/d"]).await;
    away.failed(4, "fix:");
    assert!(!away.err.contains("hush"), "{away:?}");
    semel(&["migrate", "--store", "mongodb://h"])
        .await
        .failed(3, "scheme");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn expired_records_are_counted_then_removed() {
    let server = PostgresServer::start(&[]).await;
    let route = "[[routes]]\npath = \"/charges\"\nlease = \"1s\"\nretention = \"2s\"\n";
    let sidecar = Sidecar::start(&server.url(), route).await;
    assert_eq!(sidecar.send("/charges", "ord-1-abcdef").await.0, 201);
    let url = server.url();
    let gc = ["gc", "--json", "--store", url.as_str()];
    let dry = ["gc", "--json", "--dry-run", "--store", url.as_str()];
    let mut seen = 0;
    for _ in 0..1000 {
        seen = semel(&dry).await.json()["expired"]
            .as_u64()
            .expect("a number");
        if seen > 0 {
            break;
        }
        pause().await;
    }
    assert_eq!(seen, 1, "it has expired, and is still there");
    let again = semel(&dry).await.json();
    assert_eq!(again["expired"], 1, "counting removes nothing");
    assert_eq!(semel(&gc).await.json()["expired"], 1);
    assert_eq!(semel(&dry).await.json()["expired"], 0);
}
