//! Limits of tenants in the protocol API and in the jobs API.

use axum::Router;
use axum::http::Request;
use serde_json::{Value, json};

use crate::support::*;

async fn sidecar(settings: &str) -> Sidecar {
    let upstream = service(Router::new()).await;
    Sidecar::with_apis("memory://", upstream, settings).await
}

fn request(method: &str, tenant: &str, path: &str, body: &Value) -> Request<axum::body::Body> {
    let bearer = format!("Bearer {}", token_of(tenant));
    let request = plain(method, path, body.to_string());
    let request = with(request, "content-type", "application/json");
    with(request, "authorization", &bearer)
}

async fn call(sidecar: &Sidecar, tenant: &str, path: &str, body: Value) -> Answer {
    sidecar.send(request("POST", tenant, path, &body)).await
}

async fn claim(sidecar: &Sidecar, tenant: &str, key: &str) -> Answer {
    let body = json!({"scope": "charge", "key": key, "payload": {}});
    call(sidecar, tenant, "/_semel/v1/claims", body).await
}

async fn settle(sidecar: &Sidecar, won: &Answer, outcome: &str, answer: Option<&str>) -> Answer {
    let won = won.json();
    let path = format!(
        "/_semel/v1/claims/{}/settle",
        won["id"].as_str().expect("an id")
    );
    let lease = &won["lease"];
    let mut body = json!({"token": lease["token"], "fence": lease["fence"], "outcome": outcome});
    if let Some(answer) = answer {
        body["answer"] = json!({"body": answer});
    }
    call(sidecar, "acme", &path, body).await
}

fn used_up() -> (u16, String, bool) {
    (429, "idempotency_quota_exceeded".to_owned(), true)
}

#[tokio::test]
async fn api_calls_count_against_the_rate_of_their_tenant() {
    let sidecar = sidecar("limits.tenant_rate = 1\n").await;
    let mut refused = None;
    for number in 0..40 {
        let answer = claim(&sidecar, "acme", &format!("k-{number}")).await;
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    let refused = refused.expect("a refusal");
    assert_eq!(
        refused.problem_and_retry(),
        (429, "rate_limited".to_owned(), true)
    );
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(claim(&sidecar, "other", "k-1").await.status, 201);
}

#[tokio::test]
async fn api_calls_count_against_the_share_of_their_tenant() {
    // A tenant may have two requests at a time.
    let sidecar = sidecar("limits.requests = 6\nlimits.tenant_share = 34\n").await;
    let won = claim(&sidecar, "acme", "k-1").await;
    assert_eq!(won.status, 201, "{won:?}");
    let path = format!(
        "/_semel/v1/claims/{}",
        won.json()["id"].as_str().expect("an id")
    );
    let look = |path: &str| request("GET", "acme", path, &Value::Null);
    for _ in 0..2 {
        let waits = look(&format!("{path}?wait_ms=30000"));
        let mut client = sidecar.client(Protocol::Http1).await;
        tokio::spawn(async move { client.send(waits).await });
    }
    let mut answer = sidecar.send(look(&path)).await;
    for _ in 0..500 {
        if answer.status == 429 {
            break;
        }
        pause(10).await;
        answer = sidecar.send(look(&path)).await;
    }
    assert_eq!(
        answer.problem_and_retry(),
        (429, "too_many_requests".to_owned(), true)
    );
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    assert_eq!(claim(&sidecar, "other", "k-1").await.status, 201);
}

#[tokio::test]
async fn claims_count_against_the_quota_of_their_tenant() {
    let sidecar = sidecar("limits.tenant_keys = 2\n").await;
    let first = claim(&sidecar, "acme", "k-1").await;
    assert_eq!(first.status, 201, "{first:?}");
    let done = settle(&sidecar, &first, "complete", Some("done")).await;
    assert_eq!(done.status, 200, "{done:?}");
    let second = claim(&sidecar, "acme", "k-2").await;
    assert_eq!(second.status, 201, "{second:?}");
    let refused = claim(&sidecar, "acme", "k-3").await;
    assert_eq!(refused.problem_and_retry(), used_up());
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(claim(&sidecar, "acme", "k-1").await.status, 200, "a replay");
    assert_eq!(claim(&sidecar, "other", "k-3").await.status, 201);
    // A released key is not kept, and frees room once, however often its release is sent.
    for _ in 0..3 {
        assert_eq!(settle(&sidecar, &second, "release", None).await.status, 200);
    }
    assert_eq!(claim(&sidecar, "acme", "k-3").await.status, 201);
    assert_eq!(
        claim(&sidecar, "acme", "k-4").await.problem_and_retry(),
        used_up()
    );
}

#[tokio::test]
async fn answers_of_claims_count_against_the_stored_bytes() {
    let sidecar = sidecar("limits.tenant_stored = \"1KiB\"\n").await;
    let first = claim(&sidecar, "acme", "k-1").await;
    let second = claim(&sidecar, "acme", "k-2").await;
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 201));
    let large = "x".repeat(2000);
    let done = settle(&sidecar, &first, "complete", Some(&large)).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(
        claim(&sidecar, "acme", "k-3").await.problem_and_retry(),
        used_up()
    );
    // An open claim can still be settled: its effect has run.
    let done = settle(&sidecar, &second, "complete", Some(&large)).await;
    assert_eq!(done.status, 200, "{done:?}");
}

#[tokio::test]
async fn a_settlement_that_is_sent_again_counts_once() {
    let sidecar = sidecar("limits.tenant_stored = \"3KiB\"\n").await;
    let first = claim(&sidecar, "acme", "k-1").await;
    let large = "x".repeat(2000);
    for _ in 0..3 {
        let done = settle(&sidecar, &first, "complete", Some(&large)).await;
        assert_eq!(done.status, 200, "{done:?}");
    }
    let second = claim(&sidecar, "acme", "k-2").await;
    assert_eq!(second.status, 201, "{second:?}");
    let done = settle(&sidecar, &second, "complete", Some(&large)).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(
        claim(&sidecar, "acme", "k-3").await.problem_and_retry(),
        used_up()
    );
}

#[tokio::test]
async fn checkpoints_count_while_they_are_kept() {
    let sidecar = sidecar("limits.tenant_stored = \"1KiB\"\n").await;
    let won = claim(&sidecar, "acme", "k-1").await;
    let renew = async |checkpoint: String| {
        let (won, lease) = (won.json(), &won.json()["lease"]);
        let path = format!(
            "/_semel/v1/claims/{}/renew",
            won["id"].as_str().expect("an id")
        );
        let body = json!({
            "token": lease["token"], "fence": lease["fence"], "checkpoint": checkpoint,
        });
        let renewed = call(&sidecar, "acme", &path, body).await;
        assert_eq!(renewed.status, 200, "{renewed:?}");
    };
    renew("x".repeat(2000)).await;
    assert_eq!(
        claim(&sidecar, "acme", "k-2").await.problem_and_retry(),
        used_up()
    );
    // The next checkpoint takes its place.
    renew("x".repeat(20)).await;
    assert_eq!(claim(&sidecar, "acme", "k-2").await.status, 201);
    renew("x".repeat(2000)).await;
    assert_eq!(
        claim(&sidecar, "acme", "k-3").await.problem_and_retry(),
        used_up()
    );
    let done = settle(&sidecar, &won, "complete", Some("done")).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(claim(&sidecar, "acme", "k-3").await.status, 201);
}

/// Behind a trusted proxy, all calls come from one address.
#[tokio::test]
async fn api_calls_count_against_the_address_that_a_trusted_proxy_names() {
    let quota = "limits.address_keys = 1\n";
    let trust = "listener.trusted_peers = [\"127.0.0.1/32\"]\nlistener.trust_forwarded = true\n";
    let ask = async |sidecar: &Sidecar, key: &str, address: &str| {
        let body = json!({"scope": "charge", "key": key, "payload": {}});
        let request = request("POST", "acme", "/_semel/v1/claims", &body);
        sidecar
            .send(with(request, "x-forwarded-for", address))
            .await
    };
    let behind = sidecar(&format!("{quota}{trust}")).await;
    assert_eq!(ask(&behind, "k-1", "192.0.2.1").await.status, 201);
    assert_eq!(
        ask(&behind, "k-2", "192.0.2.1").await.problem_and_retry(),
        used_up()
    );
    assert_eq!(ask(&behind, "k-2", "192.0.2.2").await.status, 201);
    // Nobody else chooses an address.
    let open = sidecar(&format!("{quota}listener.trust_forwarded = false\n")).await;
    assert_eq!(ask(&open, "k-1", "192.0.2.1").await.status, 201);
    assert_eq!(
        ask(&open, "k-2", "192.0.2.2").await.problem_and_retry(),
        used_up()
    );
}

/// A caller could otherwise claim the canary of a secret or of an encryption key.
#[tokio::test]
async fn scopes_of_semel_itself_are_refused() {
    let sidecar = sidecar("").await;
    let body = json!({"scope": "semel.canary", "key": "encryption-1", "payload": {}});
    let refused = call(&sidecar, "acme", "/_semel/v1/claims", body).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    let body = json!({"scope": "semelier", "key": "encryption-1", "payload": {}});
    let won = call(&sidecar, "acme", "/_semel/v1/claims", body).await;
    assert_eq!(won.status, 201, "{won:?}");
}

async fn submit(sidecar: &Sidecar, tenant: &str, key: &str) -> Answer {
    let body = json!({"kind": "charge", "idempotency_key": key, "params": {"amount": 5}});
    call(sidecar, tenant, "/mesh/submit_request", body).await
}

/// A sidecar with a job queue, in each store that supports one.
async fn with_jobs(settings: &str) -> Vec<Sidecar> {
    let of = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let chance = semel::tokio_env().entropy.next_u128();
    let bucket = of("SEMEL_TEST_S3_URL").replace('?', &format!("/mesh-{chance:032x}?"));
    let settings = format!("environment = \"e-{chance:032x}\"\njobs.enabled = true\n{settings}");
    let mut sidecars = Vec::new();
    for store in [of("SEMEL_TEST_POSTGRES_URL"), bucket] {
        let upstream = service(Router::new()).await;
        sidecars.push(Sidecar::with_apis(&store, upstream, &settings).await);
    }
    sidecars
}

#[tokio::test]
#[ignore = "needs servers"]
async fn jobs_count_against_the_quota_of_their_tenant() {
    for sidecar in with_jobs("limits.tenant_keys = 3\n").await {
        for key in ["k-1", "k-2"] {
            let answer = submit(&sidecar, "acme", key).await;
            assert_eq!(answer.json()["status"], "accepted", "{answer:?}");
        }
        assert_eq!(submit(&sidecar, "acme", "k-1").await.json()["dedup"], true);
        let job = |key: &str| json!({"kind": "charge", "idempotency_key": key, "params": 1});
        let many = json!({"requests": [job("k-3"), job("k-4"), {"kind": "charge"}]});
        let many = call(&sidecar, "acme", "/mesh/submit_requests", many).await;
        let results = many.json()["results"].clone();
        assert_eq!(results[0]["status"], "accepted", "{many:?}");
        for refused in [1, 2] {
            assert_eq!(
                results[refused]["code"], "idempotency_quota_exceeded",
                "{many:?}"
            );
        }
        let refused = submit(&sidecar, "acme", "k-5").await;
        assert_eq!(refused.problem_and_retry(), used_up());
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
        assert_eq!(submit(&sidecar, "acme", "k-1").await.json()["dedup"], true);
        let other = submit(&sidecar, "other", "k-5").await;
        assert_eq!(other.json()["status"], "accepted", "{other:?}");
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn job_calls_count_against_the_rate_of_their_tenant() {
    for sidecar in with_jobs("limits.tenant_rate = 1\n").await {
        let mut refused = None;
        for _ in 0..40 {
            let answer = submit(&sidecar, "acme", "k-1").await;
            if answer.status == 429 {
                refused = Some(answer);
                break;
            }
        }
        let refused = refused.expect("a refusal").problem_and_retry();
        assert_eq!(refused, (429, "rate_limited".to_owned(), true));
        assert_eq!(submit(&sidecar, "other", "k-1").await.status, 200);
    }
}
