//! The dashboard, as people use it: a real browser, a real sidecar, a real Redis. What the browser
//! does is in `tests/dashboard/scenarios.mjs`; what must have come of it is checked here, by the
//! API and the audit trail.
//!
//! `SEMEL_SHOTS=folder` keeps the screenshots, `SEMEL_DASHBOARD_SECONDS=60` gives the plots
//! something to show.

mod dev;
mod rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rig::{Rig, pause};
use semel_testkit::private::PostgresServer;
use serde_json::json;

fn seconds() -> u64 {
    let said = std::env::var("SEMEL_DASHBOARD_SECONDS").ok();
    said.and_then(|text| text.parse().ok()).unwrap_or(3)
}

#[tokio::test]
async fn a_first_look_asks_for_the_token_and_says_what_to_do() {
    let rig = Rig::start().await;
    rig.browse("empty", &json!({})).says("done").await;
}

/// Clients as there are: most requests are new, some are retries, a few of those come while the
/// first still runs, and now and then somebody uses a key for something else.
fn traffic(rig: &Arc<Rig>, until: &Arc<AtomicBool>) {
    for worker in 0..10_u64 {
        let (rig, until) = (Arc::clone(rig), Arc::clone(until));
        tokio::spawn(async move {
            for number in 0_u64.. {
                if until.load(Ordering::Relaxed) {
                    return;
                }
                let key = format!("order-{worker}-{number:06}");
                let body = json!({"amount": number % 90 + 10});
                let orders = number % 6 == 5;
                let path = if orders { "/orders" } else { "/charges" };
                rig.send(path, &key, &body).await;
                if number % 4 == worker % 4 {
                    rig.send(path, &key, &body).await;
                }
                match (number + worker) % 20 {
                    3 => {
                        let twice = format!("{key}-twice");
                        let (one, two) = (
                            rig.send("/charges", &twice, &body),
                            rig.send("/charges", &twice, &body),
                        );
                        tokio::join!(one, two);
                    }
                    7 => drop(rig.send("/charges", HOT, &json!({"amount": 1})).await),
                    11 => drop(rig.send(path, &key, &json!({"amount": 5})).await),
                    _ => {}
                }
                pause(25 + (number * 7 + worker * 13) % 40).await;
            }
        });
    }
}

const HOT: &str = "checkout-retry-loop-77";

#[tokio::test]
async fn traffic_is_seen_as_it_happens_in_light_and_in_dark() {
    let (rig, done) = (
        Arc::new(Rig::start().await),
        Arc::new(AtomicBool::new(false)),
    );
    traffic(&rig, &done);
    let args = json!({"hotKey": HOT, "hint": "checkout", "seconds": seconds()});
    rig.browse("load", &args).says("done").await;
    done.store(true, Ordering::Relaxed);
    let (_, live) = rig.operate("live", None).await;
    let replayed: u64 = live["samples"]
        .as_array()
        .expect("samples")
        .iter()
        .filter_map(|sample| sample["replayed"].as_u64())
        .sum();
    assert!(replayed > 0, "{live}");
    let first = format!("order-0-{:06}", 0);
    rig.tells_no_secret(&[HOT, &first]).await;
}

async fn until_in_doubt(rig: &Rig, id: &str) {
    for _ in 0..1000 {
        if rig.record(id).await["state"] == "in_doubt" {
            return;
        }
        pause(20).await;
    }
    panic!("{id} is never in doubt");
}

#[tokio::test]
async fn a_doubt_is_resolved_and_a_lease_unlocked_with_who_and_why() {
    let rig = Arc::new(Rig::start().await);
    let names = [
        "transfer-2041",
        "transfer-2057",
        "transfer-2063",
        "payout-88",
    ];
    for key in names {
        let rig = Arc::clone(&rig);
        // Nobody ever hears of it; after a while the sidecar gives up, and under `hold` that is a
        // doubt.
        tokio::spawn(async move { rig.send("/transfers", key, &json!({"to": "lost"})).await });
    }
    let policy = json!({"lease_ms": 1_500, "crash": "takeover"});
    rig.call(
        "/v1/claims",
        &json!({"scope": "/payouts", "key": "worker-job-512", "policy": policy}),
    )
    .await;
    let stuck = rig.id("/payouts", "worker-job-512").await;
    let mut doubts = Vec::new();
    for key in names {
        let id = rig.id("/transfers", key).await;
        until_in_doubt(&rig, &id).await;
        doubts.push(id);
    }
    let (doubt, other) = (&doubts[0], &doubts[1]);
    let args = json!({"doubt": doubt, "other": other, "stuck": stuck, "doubts": names.len()});
    rig.browse("doubts", &args).says("done").await;

    let record = rig.record(doubt).await;
    assert_eq!(record["state"], "completed", "{record}");
    assert_eq!(record["answer_summary"]["status"], 201, "{record}");
    let changes = rig.audited(doubt, "admin.resolve");
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(
        (&changes[0]["actor"], &changes[0]["detail"]["reason"]),
        (&json!("jo"), &json!("the bank has it: statement 4711"))
    );
    assert_eq!(rig.audited(doubt, "admin.resolve.begun").len(), 1);
    // Every caller gets that answer from now on.
    assert_eq!(
        rig.send("/transfers", names[0], &json!({"to": "lost"}))
            .await,
        201
    );

    assert_eq!(rig.record(other).await["state"], "released");
    assert_eq!(
        rig.audited(other, "admin.resolve")[0]["detail"]["resolution"],
        "released"
    );
    assert_eq!(rig.record(&stuck).await["state"], "released");
    let unlocked = rig.audited(&stuck, "admin.unlock");
    assert_eq!(unlocked.len(), 1, "escape changed nothing: {unlocked:?}");
    assert_eq!(
        unlocked[0]["detail"]["reason"],
        "the worker's machine is off"
    );
    rig.tells_no_secret(&names).await;
}

#[tokio::test]
async fn a_key_is_looked_up_and_its_timeline_told() {
    let rig = Rig::start().await;
    let (scope, key) = ("/reports", "report-2026-11");
    let claim = json!({"scope": scope, "key": key, "policy": {"lease_ms": 300, "crash": "takeover"}, "actor": "nightly"});
    // A worker claims and vanishes; the next takes over, is renewed while it runs, and settles.
    rig.call("/v1/claims", &claim).await;
    pause(400).await;
    let again =
        json!({"scope": scope, "key": key, "policy": {"lease_ms": 5000}, "actor": "nightly"});
    let won = rig.call("/v1/claims", &again).await;
    let (id, lease) = (won["id"].as_str().expect("an id"), &won["lease"]);
    for _ in 0..3 {
        pause(300).await;
        let renewed = rig
            .call(
                &format!("/v1/claims/{id}/renew"),
                &json!({"token": lease["token"], "fence": lease["fence"]}),
            )
            .await;
        assert!(renewed.get("code").is_none(), "{renewed}");
    }
    let settled = json!({"token": lease["token"], "fence": lease["fence"], "outcome": "complete", "answer": {"body": {"report": 7}}});
    let settled = rig.call(&format!("/v1/claims/{id}/settle"), &settled).await;
    assert!(settled.get("code").is_none(), "{settled}");
    for _ in 0..2 {
        pause(200).await;
        rig.call("/v1/claims", &again).await;
    }
    let args = json!({"scope": scope, "key": key, "told": ["Claimed", "Taken over", "Renewed", "Settled: completed", "Replay 1", "Replay 2"]});
    rig.browse("timeline", &args).says("done").await;
    rig.tells_no_secret(&[key]).await;
}

#[tokio::test]
async fn an_outage_is_told_with_what_to_do_and_so_is_its_end() {
    // Soon told as an outage; in the other tests, a store that a busy machine makes slow is none.
    let mut rig = Rig::start_with("engine.store_timeout = \"500ms\"\n").await;
    let done = Arc::new(AtomicBool::new(false));
    let sending = Arc::new(rig.client.clone());
    let url = format!("http://{}/charges", rig.address);
    for worker in 0..4 {
        let (client, url, done) = (Arc::clone(&sending), url.clone(), Arc::clone(&done));
        tokio::spawn(async move {
            for number in 0_u64.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let key = format!("order-{worker}-{}", number - number % 3);
                drop(
                    client
                        .post(&url, &key, "{\"amount\": 500}".to_owned())
                        .await,
                );
                pause(40).await;
            }
        });
    }
    let mut browser = rig.browse("outage", &json!({"seconds": seconds()}));
    browser.says("before").await;
    let redis = rig.redis.as_mut().expect("Redis");
    redis.kill();
    browser.says("seen").await;
    let redis = rig.redis.as_mut().expect("Redis");
    redis.restart().await;
    browser.says("done").await;
    done.store(true, Ordering::Relaxed);
}

#[tokio::test]
async fn a_dead_letter_is_seen_and_gets_another_chance() {
    let postgres = PostgresServer::start(&[]).await;
    let rig = Rig::on(postgres.url(), "jobs.enabled = true\n").await;
    let mut ids = Vec::new();
    for (order, kind) in ["charge", "charge", "mail"].into_iter().enumerate() {
        let key = format!("order-{order}-of-a-customer");
        let asked = json!({"kind": kind, "params": {"order": order}, "idempotency_key": key});
        let told = rig.mesh("submit_request", &asked).await;
        ids.push(told["job_id"].as_str().expect("a job").to_owned());
    }
    let ask = json!({"worker": "till-7", "kinds": ["charge"], "max_jobs": 2, "lease_ms": 600_000});
    let taken = rig.mesh("lease", &ask).await;
    let dead = &taken["jobs"][0];
    assert_eq!(dead["job_id"], *ids[0], "the older one first");
    let failed = json!({"lease_token": dead["lease_token"], "error": "the card was refused", "retryable": false});
    let told = rig.mesh(&format!("jobs/{}/fail", ids[0]), &failed).await;
    assert_eq!(told["status"], "failed", "{told}");
    let args = json!({"dead": ids[0], "running": ids[1], "queued": ids[2], "error": "the card was refused"});
    rig.browse("jobs", &args).says("done").await;
    let (_, job) = rig.operate(&format!("jobs/{}", ids[0]), None).await;
    assert_eq!(
        (&job["state"], &job["attempt"]),
        (&json!("queued"), &json!(0)),
        "{job}"
    );
    let retried = rig.told("admin.job_retry");
    assert!(
        retried
            .iter()
            .any(|line| line["actor"] == "jo" && line["detail"]["job_id"] == *ids[0]),
        "{retried:?}"
    );
    let metrics = rig.metrics().await;
    for line in ["queued\"} 2", "running\"} 1", "dead\"} 0"] {
        let line = format!("semel_jobs{{state=\"{line}");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    rig.tells_no_secret(&["order-0-of-a-customer"]).await;
}
