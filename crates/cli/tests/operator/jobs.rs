//! `semel jobs`: over the network and on the store itself.

use semel_stores::object::ObjectStore;
use serde_json::{Value, json};

use crate::support::{Sidecar, env, semel};

async fn post(sidecar: &Sidecar, path: &str, body: &Value) -> Value {
    let url = format!("http://{}{path}", sidecar.address);
    semel_httpclient::send(semel_httpclient::json("POST", &url, body))
        .await
        .json()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn jobs_are_listed_inspected_and_retried() {
    let store = env("SEMEL_TEST_POSTGRES_URL");
    let more = "[api]\naccess = \"loopback\"\n[jobs]\nenabled = true\n";
    let sidecar = Sidecar::start(&store, more).await;
    let mut ids = Vec::new();
    for n in 0..3 {
        let key = format!("secret-order-{n}");
        let submit = json!({"kind": "charge", "params": {"n": n}, "idempotency_key": key});
        let submitted = post(&sidecar, "/mesh/submit_request", &submit).await;
        assert_eq!(submitted["status"], "accepted", "{submitted}");
        ids.push(submitted["job_id"].as_str().expect("a job").to_owned());
    }
    let ask = json!({"worker": "w-1", "kinds": ["charge"]});
    let leased = post(&sidecar, "/mesh/lease", &ask).await;
    let leased = &leased["jobs"][0];
    assert_eq!(leased["job_id"], ids[0].as_str());
    let fail =
        json!({"lease_token": leased["lease_token"], "error": "no such card", "retryable": false});
    let failed = post(&sidecar, &format!("/mesh/jobs/{}/fail", ids[0]), &fail).await;
    assert_eq!(failed["status"], "failed", "{failed}");

    let table = sidecar.run("jobs list").await.good();
    assert!(ids.iter().all(|id| table.contains(id)), "{table}");
    assert!(
        table.contains("2 queued, 0 running, 1 dead letters"),
        "{table}"
    );
    assert!(!table.contains("secret-order"), "{table}");
    let dead = sidecar.run("jobs dead --json").await.json();
    assert_eq!(
        (&dead["jobs"][0]["job_id"], &dead["complete"]),
        (&ids[0].as_str().into(), &true.into())
    );
    let shown = sidecar
        .run(&format!("jobs inspect {}", ids[0]))
        .await
        .good();
    assert!(
        shown.contains("no such card") && shown.contains("dead"),
        "{shown}"
    );
    sidecar
        .run("jobs inspect job_00000000000000000000000000000000")
        .await
        .failed(8, "the job doesn't exist");
    let retry = format!("jobs retry {} --reason mended --yes", ids[0]);
    assert!(sidecar.run(&retry).await.good().contains("is queued again"));
    sidecar
        .run(&retry)
        .await
        .failed(9, "only dead-lettered jobs");

    let environment = &sidecar.environment;
    let local = format!("jobs list --json --limit 2 --store {store} --environment {environment}");
    let local = semel(&local.split_whitespace().collect::<Vec<_>>())
        .await
        .json();
    assert_eq!(
        (local["jobs"].as_array().map(Vec::len), &local["complete"]),
        (Some(2), &false.into())
    );
    assert_eq!(local["counts"]["queued"], 3);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn unreadable_file_is_named() {
    let env_of_this = semel::tokio_env();
    let folder = format!("/damaged-{:032x}?", env_of_this.entropy.next_u128());
    let url = env("SEMEL_TEST_S3_URL").replace('?', &folder);
    let more = "[api]\naccess = \"loopback\"\n[jobs]\nenabled = true\n";
    let sidecar = Sidecar::start(&url, more).await;
    let submit = json!({"kind": "charge", "params": {}, "idempotency_key": "order-1"});
    post(&sidecar, "/mesh/submit_request", &submit).await;
    let sound = sidecar.run("jobs list").await.good();
    assert!(!sound.contains("can't be read"), "{sound}");

    let bucket = ObjectStore::open(&url, env_of_this.clock).await;
    let bucket = bucket.expect("a bucket that is fit");
    let own = bucket.folder().join("environments");
    let tasks = own.join(&*sidecar.environment).join("tasks");
    let names = bucket.names(&tasks, None, 2).await.expect("an answer");
    let [task] = names.as_slice() else {
        panic!("{names:?}")
    };
    let (_, version) = bucket.get(task).await.unwrap().expect("a task");
    let written = bucket.put(task, "{".into(), Some(&version)).await;
    assert!(written.expect("an answer").is_some());

    let told = sidecar.run("jobs list").await.good();
    assert!(told.contains("1 file can't be read"), "{told}");
    assert!(told.contains(task.as_ref()), "{told}");
    let counts = sidecar.run("jobs list --json").await.json();
    let counts = &counts["counts"];
    assert_eq!(
        (&counts["damaged"], &counts["damaged_file"]),
        (&1.into(), &task.as_ref().into())
    );
}
