//! Jobs over HTTP, on PostgreSQL and on a bucket (J1, J2, J5, J7).

use std::time::Duration;

use semel_server::config::Jobs as Settings;
use semel_server::jobs::{JobsState, open, router};
use serde_json::{Value, json};

use crate::support::{ACME, OTHER, Reply, Server, Setup, call, pause, serve};

/// A server with a job queue, in each store that supports one.
async fn benches(settings: &Settings) -> Vec<Bench> {
    let of = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let chance = semel::tokio_env().entropy.next_u128();
    let bucket = of("SEMEL_TEST_S3_URL").replace('?', &format!("/mesh-{chance:032x}?"));
    let mut benches = Vec::new();
    for store in [of("SEMEL_TEST_POSTGRES_URL"), bucket] {
        benches.push(Bench::start(&store, settings).await);
    }
    benches
}

struct Bench {
    server: Server,
    jobs: semel_jobs::Jobs,
    mesh: String,
    admin: String,
}

impl Bench {
    async fn start(store: &str, settings: &Settings) -> Self {
        let server = Server::with(store, Setup::default()).await;
        let jobs = open(settings, &server.semel).await.expect("a queue");
        let state = JobsState::new(
            jobs.clone(),
            server.access(),
            server.semel.key_rules().clone(),
            server.semel.engine().env().clone(),
        );
        let mesh = serve(router(state)).await;
        let admin = serve(server.admin_with(&jobs)).await;
        Self {
            server,
            jobs,
            mesh,
            admin,
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Reply {
        call(&self.mesh, "POST", path, Some(ACME), &body.to_string()).await
    }

    async fn submit(&self, key: &str, amount: u64) -> Reply {
        let body = json!({
            "idempotency_key": key, "kind": "charge", "params": {"amount": amount},
            "client": {"node_id": "till-7"},
        });
        self.post("/mesh/submit_request", &body).await
    }

    async fn lease(&self) -> Value {
        let body = json!({"worker": "w-1", "kinds": ["charge"], "max_jobs": 1, "wait_ms": 2000});
        let reply = self.post("/mesh/lease", &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.body["jobs"][0].clone()
    }

    async fn end(&self, leased: &Value, how: &str, more: Value) -> Reply {
        let mut body = json!({"lease_token": leased["lease_token"]});
        if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
            body.extend(more);
        }
        let id = leased["job_id"].as_str().expect("a job");
        self.post(&format!("/mesh/jobs/{id}/{how}"), &body).await
    }

    async fn see(&self, path: &str) -> Reply {
        call(&self.mesh, "GET", path, Some(ACME), "").await
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn j1_submission_response_matches_the_document() {
    for bench in benches(&Settings::default()).await {
        let first = bench.submit("k-1", 5).await;
        assert_eq!(first.status, 200, "{}", first.text);
        let mut members: Vec<_> = first.body.as_object().unwrap().keys().cloned().collect();
        members.sort();
        assert_eq!(members, ["dedup", "job_id", "ok", "request_id", "status"]);
        assert_eq!(first.body["ok"], true);
        assert_eq!(first.body["dedup"], false);
        assert_eq!(first.text("status"), "accepted");
        assert!(first.text("job_id").starts_with("job_"));
        assert_eq!(first.text("request_id").len(), 36);
        for _ in 0..9 {
            let again = bench.submit("k-1", 5).await;
            assert_eq!((again.status, again.text("status")), (200, "in_progress"));
            assert_eq!(again.body["dedup"], true);
            assert_eq!(again.text("job_id"), first.text("job_id"));
            assert_eq!(again.text("request_id"), first.text("request_id"));
        }
        let counts = bench.jobs.queue().counts().await.unwrap();
        assert_eq!(counts.queued, 1);
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn j7_2_collision_is_409_and_audited() {
    for bench in benches(&Settings::default()).await {
        let first = bench.submit("collides-1", 5).await;
        let other = bench.submit("collides-1", 6).await;
        assert_eq!((other.status, other.code()), (409, "idempotency_conflict"));
        assert_eq!(
            (&other.body["ok"], &other.body["retryable"]),
            (&false.into(), &false.into())
        );
        assert!(!other.text.contains("collides-1"));
        bench.submit("collides-1", 5).await;
        let audited = bench.server.audited().await;
        let has = |code: &str| audited.iter().any(|entry| entry["code"] == code);
        assert!(has("IDEMPOTENCY_KEY_COLLISION"), "{audited:?}");
        assert!(has("IDEMPOTENCY_HIT"), "{audited:?}");
        for entry in &audited {
            let who = (entry["actor"].as_str(), entry["operation"].as_str());
            assert_eq!(who, (Some("till-7"), Some("charge")), "{entry}");
        }
        // From the hit to the job.
        let hit = audited
            .iter()
            .find(|entry| entry["code"] == "IDEMPOTENCY_HIT");
        let made = |entry: &&Value| {
            entry["type"] == "job.submitted" && Some(&entry["id"]) == hit.map(|hit| &hit["id"])
        };
        let made: Vec<&Value> = audited.iter().filter(made).collect();
        assert_eq!(made.len(), 1, "{audited:?}");
        assert_eq!(made[0]["detail"]["job_id"], first.body["job_id"]);
        let collision = |entry: &&Value| entry["code"] == "IDEMPOTENCY_KEY_COLLISION";
        let collision = audited.iter().find(collision).unwrap();
        let hash = |name: &str| collision["detail"][name].as_str().unwrap().to_owned();
        let (old, new) = (hash("original_hash"), hash("current_hash"));
        assert_eq!((old.len(), new.len()), (8, 8), "{collision}");
        assert_ne!(old, new);
        assert_eq!(collision["key_prefix"], "colli");
        assert_eq!(collision["scope"], "job:charge");
        assert!(
            audited
                .iter()
                .all(|entry| !entry.to_string().contains("collides-1"))
        );
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn j7_3_completion_is_cached_byte_for_byte() {
    for bench in benches(&Settings::default()).await {
        let first = bench.submit("k-1", 5).await;
        let leased = bench.lease().await;
        assert_eq!(leased["job_id"], first.body["job_id"]);
        assert_eq!(leased["params"], json!({"amount": 5}));
        let body = format!(
            r#"{{"lease_token": {}, "result": {{"charge": 1.50, "of": [1,  2]}}}}"#,
            leased["lease_token"]
        );
        let path = format!("/mesh/jobs/{}/complete", first.text("job_id"));
        let done = call(&bench.mesh, "POST", &path, Some(ACME), &body).await;
        assert_eq!((done.status, done.text("status")), (200, "completed"));
        let again = bench.submit("k-1", 5).await;
        assert_eq!((again.status, again.text("status")), (200, "completed"));
        assert!(
            again
                .text
                .contains(r#""result":{"charge": 1.50, "of": [1,  2]}"#),
            "{}",
            again.text
        );
        let found = bench
            .see(&format!("/mesh/jobs/{}", first.text("job_id")))
            .await;
        assert_eq!(
            (found.text("state"), found.text("status")),
            ("done", "completed")
        );
        assert!(found.text.contains(r#"{"charge": 1.50, "of": [1,  2]}"#));
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn workers_renew_fail_and_lose_jobs() {
    for bench in benches(&Settings::default()).await {
        bench.submit("k-1", 5).await;
        let leased = bench.lease().await;
        let kept = bench
            .end(&leased, "heartbeat", json!({"lease_ms": 60_000}))
            .await;
        assert_eq!((kept.status, &kept.body["lease_ms"]), (200, &60_000.into()));
        let failed = json!({"error": "no luck", "delay_ms": 0});
        let again = bench.end(&leased, "fail", failed.clone()).await;
        assert_eq!((again.status, again.text("status")), (200, "in_progress"));
        let second = bench.lease().await;
        assert_eq!(
            (&second["job_id"], &second["attempt"]),
            (&leased["job_id"], &2.into())
        );
        for (how, more) in [
            ("complete", json!({})),
            ("heartbeat", json!({})),
            ("fail", failed),
        ] {
            let late = bench.end(&leased, how, more).await;
            assert_eq!(
                (late.status, late.code()),
                (409, "jobs_lease_lost"),
                "{how}"
            );
        }
        let for_good = json!({"error": "broken", "retryable": false});
        let dead = bench.end(&second, "fail", for_good).await;
        assert_eq!(dead.text("status"), "failed");
        let submitted = bench.submit("k-1", 5).await;
        assert_eq!(
            (submitted.text("status"), submitted.text("error")),
            ("failed", "broken")
        );
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn waiting_call_gets_the_result() {
    for bench in benches(&Settings::default()).await {
        let first = bench.submit("k-1", 5).await;
        let path = format!("/mesh/jobs/{}?wait_ms=20000", first.text("job_id"));
        let working = async {
            let leased = bench.lease().await;
            bench.end(&leased, "complete", json!({"result": 7})).await
        };
        let (found, _) = futures_util::future::join(bench.see(&path), working).await;
        assert_eq!(
            (found.text("status"), &found.body["result"]),
            ("completed", &7.into())
        );
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn batch_submission_has_a_result_for_each_job() {
    for bench in benches(&Settings::default()).await {
        bench.submit("k-0", 5).await;
        let mut requests: Vec<Value> = (0..5)
            .map(|n| json!({"idempotency_key": format!("k-{n}"), "kind": "charge", "params": {"amount": 5}}))
            .collect();
        requests.push(json!({"idempotency_key": "no spaces", "kind": "charge"}));
        requests.push(json!({"idempotency_key": "k-1", "kind": "charge", "params": 6}));
        requests.push(json!({"kind": "charge"}));
        let reply = bench
            .post("/mesh/submit_requests", &json!({"requests": requests}))
            .await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        let results = reply.body["results"].as_array().unwrap();
        assert_eq!(results.len(), 8);
        assert_eq!(results[0]["status"], "in_progress");
        assert!(
            results[2..5]
                .iter()
                .all(|result| result["status"] == "accepted")
        );
        assert_eq!(results[5]["code"], "idempotency_key_invalid");
        // Two conflicting values: the first one found is reported.
        let at_odds = [&results[1], &results[6]];
        assert!(at_odds.iter().any(|result| result["status"] == "accepted"));
        assert!(
            at_odds
                .iter()
                .any(|result| result["code"] == "idempotency_conflict")
        );
        assert_eq!(results[7]["status"], "accepted");
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn b1_full_queue_is_429_with_retry_after() {
    let settings = Settings {
        max_queued_per_kind: Some(2),
        ..Settings::default()
    };
    let bench = benches(&settings).await.remove(0);
    bench.submit("k-1", 5).await;
    bench.submit("k-2", 5).await;
    let full = bench.submit("k-3", 5).await;
    assert_eq!((full.status, full.code()), (429, "jobs_queue_full"));
    assert!(full.headers.contains_key("retry-after"));
    assert_eq!(full.body["retryable"], true);
    assert_eq!(bench.submit("k-2", 5).await.text("status"), "in_progress");
    bench.lease().await;
    while bench.submit("k-3", 5).await.status == 429 {
        pause(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn jobs_are_validated_and_tenants_isolated() {
    for bench in benches(&Settings::default()).await {
        for body in [
            json!({}),
            json!({"kind": ""}),
            json!({"kind": "a", "unknown": 1}),
            json!({"kind": "a", "priority": 10}),
            json!({"kind": "a", "max_attempts": 0}),
            json!({"kind": "a", "idempotency_ttl_sec": 999_999_999}),
            json!({"kind": "a".repeat(121)}),
            json!({"kind": "a", "idempotency_key": ""}),
        ] {
            let reply = bench.post("/mesh/submit_request", &body).await;
            assert_eq!(reply.status, 400, "{body}: {}", reply.text);
        }
        let body = json!({"kind": "a", "idempotency_key": "one"}).to_string();
        // Another key, and the same key with unbalanced quotes.
        for line in ["two", "\"one", "\"\"one\"\""] {
            let headers = [
                ("authorization", &*format!("Bearer {ACME}")),
                ("content-type", "application/json"),
                ("idempotency-key", line),
            ];
            let sent =
                crate::support::send(&bench.mesh, "POST", "/mesh/submit_request", &headers, &body);
            let reply = crate::support::read(sent.await).await;
            assert_eq!(reply.status, 400, "{line}: {}", reply.text);
        }

        let first = bench.submit("k-1", 5).await;
        let path = format!("/mesh/jobs/{}", first.text("job_id"));
        let other = call(&bench.mesh, "GET", &path, Some(OTHER), "").await;
        assert_eq!((other.status, other.code()), (404, "not_found"));
        assert_eq!(call(&bench.mesh, "GET", &path, None, "").await.status, 401);
        let ask = json!({"worker": "w", "kinds": ["charge"]}).to_string();
        let none = call(&bench.mesh, "POST", "/mesh/lease", Some(OTHER), &ask).await;
        assert_eq!(none.body["jobs"], json!([]));
        let named = json!({"worker": "w", "kinds": ["charge"], "tenant": "acme"}).to_string();
        let named = call(&bench.mesh, "POST", "/mesh/lease", Some(OTHER), &named).await;
        assert_eq!(named.status, 403);
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn operators_list_inspect_and_retry_jobs() {
    use crate::support::ADMIN;
    for bench in benches(&Settings::default()).await {
        let first = bench.submit("dead-letter-1", 5).await;
        let leased = bench.lease().await;
        bench
            .end(
                &leased,
                "fail",
                json!({"error": "broken", "retryable": false}),
            )
            .await;
        let list = call(
            &bench.admin,
            "GET",
            "/admin/v1/jobs?state=dead",
            Some(ADMIN),
            "",
        )
        .await;
        assert_eq!(list.status, 200, "{}", list.text);
        assert_eq!(list.body["jobs"][0]["job_id"], first.body["job_id"]);
        assert!(!list.text.contains("dead-letter-1"));
        let path = format!("/admin/v1/jobs/{}", first.text("job_id"));
        let one = call(&bench.admin, "GET", &path, Some(ADMIN), "").await;
        assert_eq!((one.text("state"), one.text("error")), ("dead", "broken"));
        let why = json!({"actor": "ann", "reason": "mended"}).to_string();
        let retry = format!("{path}/retry");
        let again = call(&bench.admin, "POST", &retry, Some(ADMIN), &why).await;
        assert_eq!(again.status, 200, "{}", again.text);
        let twice = call(&bench.admin, "POST", &retry, Some(ADMIN), &why).await;
        assert_eq!((twice.status, twice.code()), (409, "jobs_not_dead"));
        assert_eq!(bench.lease().await["job_id"], first.body["job_id"]);
        let audited = bench.server.audited().await;
        assert!(
            audited
                .iter()
                .any(|entry| entry["type"] == "admin.job_retry" && entry["actor"] == "ann")
        );
    }
}

/// A result may contain personal data: it is shown on request only, and that is recorded.
#[tokio::test]
async fn result_is_shown_on_request_only() {
    use crate::support::ADMIN;
    for bench in benches(&Settings::default()).await {
        bench.submit("with-a-result", 5).await;
        let leased = bench.lease().await;
        bench
            .end(&leased, "complete", json!({"result": "of Ann"}))
            .await;
        let path = format!("/admin/v1/jobs/{}", leased["job_id"].as_str().unwrap());
        for path in ["/admin/v1/jobs", &path] {
            let told = call(&bench.admin, "GET", path, Some(ADMIN), "").await;
            assert_eq!(told.status, 200, "{}", told.text);
            assert!(!told.text.contains("of Ann"), "{}", told.text);
        }
        let is_reading = |entry: &Value| entry["type"] == "admin.answer.read";
        assert!(!bench.server.audited().await.iter().any(is_reading));
        let asked = format!("{path}?result=true");
        let told = call(&bench.admin, "GET", &asked, Some(ADMIN), "").await;
        assert_eq!(told.text("result"), "of Ann");
        let audited = bench.server.audited().await;
        let reading = audited.iter().find(|entry| is_reading(entry)).unwrap();
        assert_eq!(reading["detail"]["job_id"], leased["job_id"]);
    }
}

#[tokio::test]
async fn unsupported_store_has_a_clear_error() {
    let server = Server::with("memory://", Setup::default()).await;
    let error = open(&Settings::default(), &server.semel).await.unwrap_err();
    assert!(error.to_string().contains("postgres://"), "{error}");
}
