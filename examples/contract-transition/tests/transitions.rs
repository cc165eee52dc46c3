//! The tests that the transition's own description asks for (T6), and what it rules out (T1, T2).

use contract_transition::{App, SCOPE, TTL, outbox};
use serde_json::{Value, json};

async fn serve() -> (String, App) {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("SEMEL_TEST_POSTGRES_URL is not set: start a server with `cargo xtask services up postgres`");
    let app = App::open(&url).await.expect("a database");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = app.clone().router();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (format!("http://{address}"), app)
}

fn chance() -> u128 {
    semel::tokio_env().entropy.next_u128()
}

async fn contract(app: &App) -> i64 {
    let text = "INSERT INTO contracts DEFAULT VALUES RETURNING id";
    sqlx::query_scalar(text)
        .fetch_one(&app.pool)
        .await
        .expect("a contract")
}

async fn proofs(app: &App, contract: i64) -> i64 {
    let text = "SELECT count(*) FROM proofs WHERE contract_id = $1";
    sqlx::query_scalar(text)
        .bind(contract)
        .fetch_one(&app.pool)
        .await
        .expect("a count")
}

async fn post(url: &str, body: &Value) -> (u16, String) {
    let url = format!("{url}/v1/contract/transition");
    let answer = reqwest::Client::new()
        .post(url)
        .json(body)
        .send()
        .await
        .expect("an answer");
    (
        answer.status().as_u16(),
        answer.text().await.expect("a body"),
    )
}

#[tokio::test]
async fn t6_1_the_same_key_twice_is_one_transition_and_one_proof() {
    let (url, app) = serve().await;
    let contract = contract(&app).await;
    let key = outbox::key_of(&format!("{:x}", chance()));
    let ask = json!({"idempotency_key": key, "contract_id": contract, "to": "cancelled"});
    let (status, first) = post(&url, &ask).await;
    assert_eq!(status, 200, "{first}");
    let read: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(
        (&read["ok"], &read["from"], &read["to"]),
        (&true.into(), &"pending".into(), &"cancelled".into())
    );
    assert!(read["proof_id"].is_i64() && read["contract_version"] == "v2");
    assert_eq!(post(&url, &ask).await, (200, first.clone()));
    let each = (0..8).map(|_| {
        let (url, ask) = (url.clone(), ask.clone());
        async move { post(&url, &ask).await }
    });
    for again in futures(each).await {
        assert_eq!(again, (200, first.clone()));
    }
    assert_eq!(proofs(&app, contract).await, 1);
}

async fn futures<F: Future + Send + 'static>(all: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F::Output: Send + 'static,
{
    let tasks: Vec<_> = all.map(tokio::spawn).collect();
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await.expect("no panic"));
    }
    done
}

#[tokio::test]
async fn t6_2_the_answer_survives_a_restart() {
    let (url, app) = serve().await;
    let contract = contract(&app).await;
    let ask = json!({"idempotency_key": format!("k-{:x}", chance()), "contract_id": contract, "to": "active"});
    let first = post(&url, &ask).await;
    // Nothing is shared with the first but the database.
    let (restarted, _) = serve().await;
    assert_eq!(post(&restarted, &ask).await, first);
    assert_eq!(proofs(&app, contract).await, 1);
}

#[tokio::test]
async fn t6_3_an_expired_key_is_cleaned_up() {
    let (url, app) = serve().await;
    let contract = contract(&app).await;
    let tenant = u32::try_from(chance() & 0x7fff_ffff).unwrap();
    let ask = json!({"idempotency_key": "k-1", "tenant_id": tenant, "contract_id": contract, "to": "active"});
    post(&url, &ask).await;
    let kept = "SELECT retention_ms FROM semel.records WHERE scope = $1 AND tenant = $2";
    let kept: i64 = sqlx::query_scalar(kept)
        .bind(SCOPE)
        .bind(tenant.to_string())
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(u128::from(kept.unsigned_abs()), TTL.as_millis());
    let count = async || -> i64 {
        let count = "SELECT count(*) FROM semel.records WHERE scope = $1 AND tenant = $2";
        sqlx::query_scalar(count)
            .bind(SCOPE)
            .bind(tenant.to_string())
            .fetch_one(&app.pool)
            .await
            .unwrap()
    };
    while app.semel.store().sweep(10_000).await.unwrap() > 0 {}
    assert_eq!(count().await, 1, "it is not over yet");
    let expire = "UPDATE semel.records SET written_us = 1 WHERE scope = $1 AND tenant = $2";
    sqlx::query(expire)
        .bind(SCOPE)
        .bind(tenant.to_string())
        .execute(&app.pool)
        .await
        .unwrap();
    while count().await > 0 {
        app.semel.store().sweep(10_000).await.unwrap();
    }
}

#[tokio::test]
async fn t1_the_key_is_mandatory() {
    let (url, app) = serve().await;
    let contract = contract(&app).await;
    for ask in [
        json!({"contract_id": contract, "to": "active"}),
        json!({"idempotency_key": "", "contract_id": contract, "to": "active"}),
        json!({"idempotency_key": null, "contract_id": contract, "to": "active"}),
    ] {
        let (status, document) = post(&url, &ask).await;
        assert_eq!(status, 400, "{document}");
        assert!(document.contains(r#""ok":false"#), "{document}");
    }
    assert_eq!(proofs(&app, contract).await, 0);
}

#[tokio::test]
async fn t4_a_refused_transition_stays_refused_and_another_payload_is_a_conflict() {
    let (url, app) = serve().await;
    let contract = contract(&app).await;
    let key = format!("k-{:x}", chance());
    let ask = json!({"idempotency_key": key, "contract_id": contract, "to": "completed"});
    let first = post(&url, &ask).await;
    assert_eq!(first.0, 422, "{}", first.1);
    assert!(first.1.contains(r#""ok":false"#), "{}", first.1);
    // It could be done by now, and isn't: the key has its answer.
    sqlx::query("UPDATE contracts SET status = 'active' WHERE id = $1")
        .bind(contract)
        .execute(&app.pool)
        .await
        .unwrap();
    assert_eq!(post(&url, &ask).await, first);
    let other = json!({"idempotency_key": key, "contract_id": contract, "to": "cancelled"});
    assert_eq!(post(&url, &other).await.0, 409);
    assert_eq!(proofs(&app, contract).await, 0);
}

#[tokio::test]
async fn t2_an_outbox_that_asks_again_changes_nothing_twice() {
    let (url, app) = serve().await;
    let contract = contract(&app).await;
    let event = format!("{:x}", chance());
    let mut transaction = app.pool.begin().await.unwrap();
    outbox::note(&mut transaction, &event, contract, "active")
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    // Asked, answered, and the caller crashed before it noted the answer.
    let lost = outbox::ask(&url, &outbox::key_of(&event), contract, "active")
        .await
        .unwrap();
    // And a remote that can't be reached.
    let nobody = outbox::replay(&app.pool, "http://127.0.0.1:9", Some(contract)).await;
    assert_eq!(nobody.unwrap(), 0);
    assert_eq!(
        outbox::replay(&app.pool, &url, Some(contract))
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        outbox::replay(&app.pool, &url, Some(contract))
            .await
            .unwrap(),
        0
    );
    let answer: String = sqlx::query_scalar("SELECT answer FROM outbox WHERE key = $1")
        .bind(outbox::key_of(&event))
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(serde_json::from_str::<Value>(&answer).unwrap(), lost);
    assert_eq!(proofs(&app, contract).await, 1);
}
