//! `semel audit verify`, on an intact and on a changed trail.

use semel_testkit::private::new_folder;
use serde_json::json;

use crate::support::semel;

#[tokio::test(flavor = "multi_thread")]
async fn changed_audit_trail_fails_verification() {
    let folder = new_folder("audit-verify");
    let store = format!("sqlite://{}/keys.db", folder.display());
    let trail = folder.join("audit.jsonl").display().to_string();
    semel(&["audit", "verify", &trail])
        .await
        .failed(3, "No such file");
    for _ in 0..2 {
        semel(&["gc", "--store", &store, "--audit", &trail])
            .await
            .good();
    }
    let found = semel(&["audit", "verify", &trail, "--json"]).await.json();
    assert_eq!(found["problems"], json!([]), "{found}");
    let head = found["head"].as_str().expect("a head").to_owned();
    let key = found["key"].as_str().expect("a key").to_owned();
    let pinned = ["audit", "verify", &trail, "--key", &key, "--head", &head];
    assert!(semel(&pinned).await.good().contains("entries verified"));
    let text = std::fs::read_to_string(&trail).expect("the trail");
    std::fs::write(&trail, text.replacen("makes room", "something else", 1)).expect("written");
    let changed = semel(&pinned).await;
    changed.failed(15, "was changed");
}
