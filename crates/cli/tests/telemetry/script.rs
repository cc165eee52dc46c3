//! A scripted run, and the metrics, log lines and audit entries that must follow from it.

use semel_server::telemetry::table::{self, MetricKind};

use super::log_form::lines_have_the_form;
use super::support::{Rig, pause, post};

const ROUTES: &str = r#"
log.format = "json"
[[routes]]
path = "/orders"
operation = "create"
[[routes]]
path = "/large"
max_answer = "8B"
[[routes]]
path = "/fail"
crash = "hold"
[[routes]]
path = "/slow"
[[routes]]
path = "/slow/refuse"
on_busy = "refuse"
[[routes]]
path = "/observed"
mode = "observe"
"#;

#[tokio::test]
#[ignore = "needs servers"]
async fn metrics_match_the_script() {
    let rig = Rig::start(ROUTES).await;
    // One run, two replays, one mismatch, whose payload then runs under another key.
    for _ in 0..3 {
        assert_eq!(rig.post("/orders", Some("order-0001"), "{}").await.0, 200);
    }
    assert_eq!(rig.post("/orders", Some("order-0001"), "[1]").await.0, 422);
    assert_eq!(rig.post("/orders", Some("order-0002"), "[1]").await.0, 200);
    assert_eq!(rig.post("/orders", None, "{}").await.0, 200);
    assert_eq!(rig.post("/orders", Some("not a key"), "{}").await.0, 400);
    assert_eq!(rig.post("/large", Some("large-0001"), "{}").await.0, 200);
    // In doubt: it failed under `hold`.
    assert_eq!(rig.post("/fail", Some("fail-0001"), "{}").await.0, 500);
    let (status, _) = rig.post("/fail", Some("fail-0001"), "{}").await;
    assert!(status >= 400, "{status}");
    for _ in 0..2 {
        assert_eq!(rig.post("/observed", Some("seen-0001"), "{}").await.0, 200);
    }
    // First one request waits for another; then one request is refused as busy.
    let ask = |path| tokio::spawn(post(rig.address, path, Some("slow-0001"), "{}"));
    let (first, second) = (ask("/slow"), ask("/slow"));
    let is =
        |metrics: &super::support::Metrics, name, wanted| metrics.get(name, &[]) == Some(wanted);
    loop {
        let now = rig.metrics().await;
        if is(&now, "semel_running", 1.0) && is(&now, "semel_waiting", 1.0) {
            break;
        }
        pause().await;
    }
    let age = rig.metrics().await.get("semel_oldest_run_age_seconds", &[]);
    assert!(age > Some(0.0), "{age:?}");
    rig.gate.notify_one();
    for asked in [first, second] {
        assert_eq!(asked.await.unwrap().0, 200);
    }
    let first = ask("/slow/refuse");
    while !is(&rig.metrics().await, "semel_running", 1.0) {
        pause().await;
    }
    assert_eq!(
        rig.post("/slow/refuse", Some("slow-0001"), "{}").await.0,
        409
    );
    rig.gate.notify_one();
    assert_eq!(first.await.unwrap().0, 200);

    let metrics = rig.metrics().await;
    all_are_there(&metrics);
    for (name, labels, wanted) in FIGURES {
        metrics.is(name, labels, *wanted);
    }
    assert!(metrics.get("semel_store_records", &[]) >= Some(1.0));
}

#[track_caller]
fn all_are_there(metrics: &super::support::Metrics) {
    // Copies of the audit trail are tested in `tests/tests/audit.rs`, jobs in
    // `tests/tests/dashboard`.
    let elsewhere = [
        "semel_audit_behind_bytes",
        "semel_audit_sent_total",
        "semel_jobs",
    ];
    for metric in table::ALL
        .iter()
        .filter(|metric| !elsewhere.contains(&metric.name))
    {
        let suffix = if metric.kind == MetricKind::Histogram {
            "_count"
        } else {
            ""
        };
        let name = format!("{}{suffix}", metric.name);
        assert!(
            metrics.get(&name, &[]).is_some_and(|value| value >= 0.0),
            "{name} is missing:\n{}",
            metrics.0
        );
        assert!(
            metrics
                .0
                .contains(&format!("# HELP {} {}", metric.name, metric.help)),
            "{name}"
        );
        assert!(
            metrics
                .0
                .contains(&format!("# TYPE {} {}", metric.name, metric.kind.as_str())),
            "{name}"
        );
    }
}

/// The samples that the script determines: name, labels, value.
#[rustfmt::skip]
const FIGURES: &[(&str, &[&str], f64)] = &[
    ("semel_requests_total", &[r#"scope="/orders""#, r#"operation="create""#, r#"outcome="ran""#], 2.0),
    ("semel_effect_duration_seconds_count", &[r#"operation="create""#], 2.0),
    ("semel_replays_total", &[r#"operation="create""#, r#"state="completed""#], 2.0),
    ("semel_request_duration_seconds_count", &[r#"operation="create""#, r#"replayed="true""#], 2.0),
    ("semel_requests_total", &[r#"scope="/orders""#, r#"outcome="replayed""#], 2.0),
    ("semel_requests_total", &[r#"scope="/orders""#, r#"outcome="conflict""#], 1.0),
    ("semel_request_duration_seconds_count", &[r#"scope="/orders""#, r#"replayed="true""#], 2.0),
    ("semel_request_duration_seconds_count", &[r#"scope="/orders""#, r#"replayed="false""#], 3.0),
    ("semel_replays_total", &[r#"scope="/orders""#, r#"state="completed""#], 2.0),
    ("semel_claims_won_total", &[r#"scope="/orders""#, r#"kind="new""#], 2.0),
    ("semel_claims_won_total", &[r#"kind="takeover""#], 0.0),
    ("semel_mismatches_total", &[], 1.0),
    ("semel_mismatch_new_keys_total", &[], 1.0),
    ("semel_passed_total", &[], 1.0),
    ("semel_refused_total", &[], 1.0),
    ("semel_oversized_total", &[r#"scope="/large""#], 1.0),
    ("semel_in_doubt_total", &[r#"scope="/fail""#], 1.0),
    ("semel_effects_total", &[r#"scope="/fail""#, r#"verdict="retry""#], 1.0),
    ("semel_settled_total", &[r#"scope="/fail""#, r#"state="in_doubt""#], 1.0),
    ("semel_observed_total", &[r#"would="replay""#], 1.0),
    ("semel_wait_duration_seconds_count", &[r#"scope="/slow""#], 1.0),
    ("semel_busy_total", &[r#"why="policy""#], 1.0),
    ("semel_effect_duration_seconds_count", &[r#"scope="/orders""#], 2.0),
    ("semel_store_calls_total", &[r#"call="settle""#, r#"status="success""#], 7.0),
    ("semel_store_calls_total", &[r#"status="error""#], 0.0),
    ("semel_store_up", &[r#"backend="redis""#], 1.0),
    ("semel_breaker_state", &[], 0.0),
    ("semel_oldest_run_age_seconds", &[], 0.0),
    ("semel_store_connections_active", &[], 1.0),
    ("semel_audit_lost_total", &[], 0.0),
];

#[tokio::test]
#[ignore = "needs servers"]
async fn keys_payloads_and_secrets_are_nowhere_to_be_seen() {
    let token = "token-of-the-operators-4711";
    let file = semel_testkit::private::new_folder("token").join("token");
    std::fs::write(&file, token).unwrap();
    let settings = format!(
        "log.level = \"trace\"\nlog.debug_percent = 100\nadmin.token_file = \"{}\"\nmetrics.access = \"open\"\n{ROUTES}",
        file.display()
    );
    let mut rig = Rig::start(&settings).await;
    let (key, payload) = (
        "order-which-nobody-may-read-0815",
        "payload-which-nobody-may-read",
    );
    let body = format!("{{\"card\":\"{payload}\"}}");
    let mut told = Vec::new();
    for path in [
        "/orders",
        "/orders",
        "/fail",
        "/fail",
        "/large",
        "/observed",
        "/observed",
    ] {
        told.push(rig.post(path, Some(key), &body).await.1);
    }
    let (status, problem) = rig.post("/orders", Some(key), &format!("[{body}]")).await;
    assert_eq!(status, 422);
    told.push(problem);
    told.push(
        rig.post("/orders", Some(&format!("{key} {key}")), &body)
            .await
            .1,
    );
    rig.store.kill();
    let (status, problem) = rig.post("/orders", Some(&format!("{key}-2")), &body).await;
    assert_eq!(status, 503, "{problem}");
    told.push(problem);
    told.push(rig.metrics().await.0);
    // The log lines are there, with a prefix and a hash of the key.
    let replay = rig.says("idempotency.replay").await;
    let line: serde_json::Value = serde_json::from_str(&replay).unwrap();
    assert_eq!(line["component"], "idempotency");
    assert_eq!(line["scope"], "/orders");
    assert!(
        line["key"].as_str().unwrap().starts_with("order-wh..."),
        "{line}"
    );
    assert!(
        line["duration_ms"].is_u64() && line["timestamp"].is_string(),
        "{line}"
    );
    for event in [
        "processed",
        "conflict",
        "storage.error",
        "cache.oversized",
        "in_doubt",
        "observed",
        "cache.lookup",
    ] {
        rig.says(&format!("\"idempotency.{event}\"")).await;
    }
    lines_have_the_form(&rig.log.lock());
    told.push(rig.log.lock().join("\n"));
    let audit = std::fs::read_to_string(rig.folder.join("audit.jsonl")).unwrap();
    assert!(audit.contains("IDEMPOTENCY_HIT"), "{audit}");
    told.push(audit);
    for secret in [key, &key[8..], payload, token] {
        let shown = told.iter().find(|text| text.contains(secret));
        assert!(shown.is_none(), "{secret} is shown:\n{}", shown.unwrap());
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn operators_alone_read_the_figures_unless_they_are_open() {
    let file = semel_testkit::private::new_folder("token").join("token");
    std::fs::write(&file, "0123456789abcdef").unwrap();
    let rig = Rig::start(&format!("admin.token_file = \"{}\"\n", file.display())).await;
    let url = format!("http://{}/metrics", rig.admin);
    assert_eq!(super::support::get(&url).await.0, 401);
    let rig = Rig::start("metrics.access = \"off\"\n").await;
    let url = format!("http://{}/metrics", rig.admin);
    assert_eq!(super::support::get(&url).await.0, 404);
}

#[tokio::test]
#[ignore = "needs servers"]
async fn scopes_past_the_bound_are_counted_together() {
    let rig = Rig::start(&format!("metrics.max_scopes = 1\n{ROUTES}")).await;
    assert_eq!(rig.post("/orders", Some("order-0001"), "{}").await.0, 200);
    for path in ["/large", "/observed"] {
        assert_eq!(rig.post(path, Some("order-0001"), "{}").await.0, 200);
    }
    let metrics = rig.metrics().await;
    metrics.is("semel_claims_won_total", &[r#"scope="/orders""#], 1.0);
    metrics.is("semel_claims_won_total", &[r#"scope="other""#], 2.0);
    assert!(!metrics.0.contains("/large") && !metrics.0.contains("/observed"));
}
