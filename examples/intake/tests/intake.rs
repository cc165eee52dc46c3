//! The flows of the intake contract, by the numbers of their description (F), on a real PostgreSQL.

use std::time::Duration;

use intake::App;
use reqwest::Method;
use serde_json::{Value, json};

async fn serve() -> (String, App) {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("SEMEL_TEST_POSTGRES_URL is not set: start a server with `cargo xtask services up postgres`");
    let app = App::open(&url).await.expect("a database");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = app.clone().router().expect("routes");
    tokio::spawn(async move { axum::serve(listener, router).await });
    (format!("http://{address}/api/intakes"), app)
}

fn fresh_key() -> String {
    format!("idem_{:032x}", semel::tokio_env().entropy.next_u128())
}

/// Status, body as it came, whether it says that it is a replay.
async fn send(method: Method, url: &str, key: &str, body: &Value) -> (u16, String, bool) {
    // All servers of one service have one name; their ports are nobody's business, as behind a load
    // balancer.
    let request = reqwest::Client::new().request(method, url).json(body);
    let request = request.header("host", "forms.example");
    let request = if key.is_empty() {
        request
    } else {
        request.header("idempotency-key", key)
    };
    let response = request.send().await.expect("an answer");
    let replayed = response
        .headers()
        .get("idempotent-replayed")
        .is_some_and(|value| value == "true");
    assert_eq!(
        replayed,
        response.headers().contains_key("x-original-request-time")
    );
    (
        response.status().as_u16(),
        response.text().await.expect("a body"),
        replayed,
    )
}

async fn post(url: &str, key: &str, body: &Value) -> (u16, String, bool) {
    send(Method::POST, url, key, body).await
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

async fn count(app: &App, text: &'static str, submission: &str) -> i64 {
    let id: i64 = submission
        .trim_start_matches("sub_")
        .parse()
        .expect("an id");
    sqlx::query_scalar(text)
        .bind(id)
        .fetch_one(&app.pool)
        .await
        .expect("a count")
}

const WEBHOOKS: &str = "SELECT count(*) FROM webhooks WHERE submission_id = $1";

#[tokio::test]
async fn f6_6_2_a_workflow_in_three_steps_each_retried_happens_once() {
    let (url, app) = serve().await;
    let workflow = fresh_key();
    let key = |step: &str| format!("workflow-{workflow}_step-{step}");
    let url = format!("{url}/vendor-onboarding/submissions");
    let (initial, tax) = (
        json!({"initialFields": {"companyName": "Acme Corp"}}),
        json!({"fields": {"taxId": "12-3456789"}}),
    );
    let (status, created, _) = post(&url, &key("create"), &initial).await;
    assert_eq!(status, 201, "{created}");
    assert_eq!(
        post(&url, &key("create"), &initial).await,
        (200, created.clone(), true)
    );
    let id = json_of(&created)["submissionId"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(json_of(&created)["state"], "draft");

    let fields = format!("{url}/{id}/fields");
    let (status, set, _) = send(Method::PATCH, &fields, &key("set-tax-info"), &tax).await;
    assert_eq!(status, 200, "{set}");
    assert_eq!(
        send(Method::PATCH, &fields, &key("set-tax-info"), &tax).await,
        (200, set, true)
    );

    let submit = format!("{url}/{id}/submit");
    let (status, submitted, _) = post(&submit, &key("submit"), &json!({})).await;
    assert_eq!(status, 201, "{submitted}");
    assert_eq!(
        json_of(&submitted),
        json!({"ok": true, "submissionId": id, "state": "submitted"})
    );
    for _ in 0..3 {
        assert_eq!(
            post(&submit, &key("submit"), &json!({})).await,
            (200, submitted.clone(), true)
        );
    }
    assert_eq!(count(&app, WEBHOOKS, &id).await, 1, "no second webhook");
}

#[tokio::test]
async fn f7_1_the_first_answer_is_201_and_its_replay_200_with_the_same_body() {
    let (url, app) = serve().await;
    let (url, key) = (format!("{url}/vendor-onboarding/submit"), fresh_key());
    let ask = json!({"fields": {"companyName": "Acme Corp", "taxId": "12-3456789"}});
    let (status, first, replayed) = post(&url, &key, &ask).await;
    assert_eq!((status, replayed), (201, false), "{first}");
    // The order of members means nothing; the values do.
    let same = json!({"fields": {"taxId": "12-3456789", "companyName": "Acme Corp"}});
    assert_eq!(post(&url, &key, &same).await, (200, first.clone(), true));
    assert_eq!(
        count(
            &app,
            WEBHOOKS,
            json_of(&first)["submissionId"].as_str().unwrap()
        )
        .await,
        1
    );
}

#[tokio::test]
async fn f2_4_2_the_same_key_with_another_payload_is_409_in_the_words_of_the_contract() {
    let (url, _) = serve().await;
    let (url, key) = (format!("{url}/vendor-onboarding/submit"), fresh_key());
    post(
        &url,
        &key,
        &json!({"fields": {"companyName": "Acme", "taxId": "1"}}),
    )
    .await;
    let (status, problem, _) = post(
        &url,
        &key,
        &json!({"fields": {"companyName": "Evil Corp", "taxId": "1"}}),
    )
    .await;
    let error = &json_of(&problem)["error"];
    assert_eq!(
        (status, &error["type"], &error["retryable"]),
        (409, &json!("conflict"), &json!(false))
    );
    assert!(!problem.contains(&key), "a problem never repeats the key");
}

#[tokio::test]
async fn f2_4_3_of_ten_at_once_one_submits_and_all_get_its_answer() {
    let (url, app) = serve().await;
    let (url, key) = (format!("{url}/access-request/submit"), fresh_key());
    // A second server on the same database: nothing else is shared.
    let (other, _) = serve().await;
    let other = format!("{other}/access-request/submit");
    let ask = json!({"fields": {"system": "billing"}});
    let each = (0..10).map(|n| {
        let (url, key, ask) = (
            if n % 2 == 0 { &url } else { &other }.clone(),
            key.clone(),
            ask.clone(),
        );
        tokio::spawn(async move { post(&url, &key, &ask).await })
    });
    let tasks: Vec<_> = each.collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("no panic"));
    }
    let first: Vec<_> = answers
        .iter()
        .filter(|(status, ..)| *status == 201)
        .collect();
    assert_eq!(first.len(), 1, "{answers:?}");
    assert!(
        answers
            .iter()
            .all(|(status, body, _)| *status < 300 && *body == first[0].1),
        "{answers:?}"
    );
    assert_eq!(
        count(
            &app,
            WEBHOOKS,
            json_of(&first[0].1)["submissionId"].as_str().unwrap()
        )
        .await,
        1
    );
}

#[tokio::test]
async fn f6_1_the_same_key_in_two_intakes_is_two_keys() {
    let (url, _) = serve().await;
    let key = fresh_key();
    let vendor = post(
        &format!("{url}/vendor-onboarding/submissions"),
        &key,
        &json!({}),
    )
    .await;
    let access = post(
        &format!("{url}/access-request/submissions"),
        &key,
        &json!({}),
    )
    .await;
    assert_eq!((vendor.0, access.0), (201, 201));
    assert_ne!(vendor.1, access.1);
    // And within one intake it is one, whichever call it is sent with.
    let (status, ..) = post(&format!("{url}/vendor-onboarding/submit"), &key, &json!({})).await;
    assert_eq!(status, 409);
}

#[tokio::test]
async fn f1_2_without_a_key_every_request_is_one_of_its_own() {
    let (url, _) = serve().await;
    let url = format!("{url}/access-request/submissions");
    let (first, second) = (
        post(&url, "", &json!({})).await,
        post(&url, "", &json!({})).await,
    );
    assert_eq!((first.0, second.0), (201, 201));
    assert_ne!(first.1, second.1);
}

#[tokio::test]
async fn f6_4_a_key_that_can_not_be_used_is_400() {
    let (url, _) = serve().await;
    let url = format!("{url}/access-request/submissions");
    for key in ["with space", &"k".repeat(256)] {
        let (status, problem, _) = post(&url, key, &json!({})).await;
        assert_eq!(
            (status, &json_of(&problem)["code"]),
            (400, &json!("idempotency_key_invalid"))
        );
    }
}

#[tokio::test]
async fn f2_4_4_after_the_retention_the_same_key_makes_a_new_submission() {
    let (url, app) = serve().await;
    // A key that is alone in how it begins.
    let (url, key) = (
        format!("{url}/access-request/submit"),
        fresh_key().replace("idem_", ""),
    );
    let ask = json!({"fields": {"system": "billing"}});
    let (_, first, _) = post(&url, &key, &ask).await;
    let id = json_of(&first)["submissionId"].as_str().unwrap().to_owned();
    // As if 25 hours had passed.
    let record = "UPDATE semel.records SET written_us = written_us - 90000000000 \
                  WHERE scope = 'intake:access-request' AND hint = $1";
    let aged = sqlx::query(record).bind(&key[..8]).execute(&app.pool).await;
    assert_eq!(aged.expect("an answer").rows_affected(), 1);
    let event =
        "UPDATE submission_events SET at = at - interval '25 hours' WHERE submission_id = $1";
    let number: i64 = id.trim_start_matches("sub_").parse().unwrap();
    let aged = sqlx::query(event).bind(number).execute(&app.pool).await;
    assert_eq!(aged.expect("an answer").rows_affected(), 1);
    // A server that has no copy of the answer.
    let (restarted, _) = serve().await;
    let url = format!("{restarted}/access-request/submit");
    let (status, second, replayed) = post(&url, &key, &ask).await;
    assert_eq!((status, replayed), (201, false), "{second}");
    assert_ne!(second, first);
    assert_eq!(post(&url, &key, &ask).await, (200, second, true));
}

#[tokio::test]
async fn f7_3_a_replay_is_an_event_of_its_own_and_numbered() {
    let (url, _) = serve().await;
    let (url, key) = (format!("{url}/access-request"), fresh_key());
    let ask = json!({"fields": {"system": "billing"}});
    let (_, first, _) = post(&format!("{url}/submit"), &key, &ask).await;
    let id = json_of(&first)["submissionId"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        post(&format!("{url}/submit"), &key, &ask).await;
    }
    let look = format!("{url}/submissions/{id}");
    let events = loop {
        let (_, found, _) = send(Method::GET, &look, "", &json!({})).await;
        let events = json_of(&found)["events"].clone();
        if events.as_array().is_some_and(|events| events.len() >= 3) {
            break events;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(events[0]["type"], "submission.submitted");
    for (event, number) in [(&events[1], 1), (&events[2], 2)] {
        assert_eq!(event["type"], "submission.replayed");
        let prefix = format!("{}…", &key[..8]);
        assert_eq!(
            event["payload"],
            json!({"idempotencyKey": prefix, "originalEventId": events[0]["eventId"], "replayNumber": number})
        );
        assert_eq!(event["submissionId"], id.as_str());
        let time = event["timestamp"].as_str().expect("a time");
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    }
}

#[tokio::test]
async fn f7_3_a_replay_names_the_agent_that_sent_it_again() {
    let (url, _) = serve().await;
    let (url, key) = (format!("{url}/access-request"), fresh_key());
    let ask = json!({"fields": {"system": "billing"}});
    let submit = async |agent: &str| {
        let client = reqwest::Client::new();
        let request = client.post(format!("{url}/submit")).json(&ask);
        let request = request.header("host", "forms.example");
        let request = request.header("idempotency-key", &key);
        let sent = request.header(intake::AGENT, agent).send().await;
        let text = sent.expect("an answer").text().await.expect("a body");
        let id = json_of(&text)["submissionId"].as_str().map(str::to_owned);
        id.unwrap_or_else(|| panic!("{text}"))
    };
    let id = submit("agent_xyz").await;
    assert_eq!(submit("agent_xyz").await, id);
    assert_ne!(submit("agent_other").await, id, "keys belong to an agent");
    let look = format!("{url}/submissions/{id}");
    let replayed = loop {
        let (_, found, _) = send(Method::GET, &look, "", &json!({})).await;
        let events = json_of(&found)["events"].clone();
        if events.as_array().is_some_and(|events| events.len() >= 2) {
            break events[1].clone();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(replayed["type"], "submission.replayed");
    assert_eq!(
        replayed["actor"],
        json!({"type": "agent", "id": "agent_xyz"})
    );
}

#[tokio::test]
async fn a_submit_that_lacks_fields_frees_its_key() {
    let (url, app) = serve().await;
    let url = format!("{url}/access-request/submissions");
    let (_, created, _) = post(&url, &fresh_key(), &json!({})).await;
    let id = json_of(&created)["submissionId"]
        .as_str()
        .unwrap()
        .to_owned();
    let (submit, key) = (format!("{url}/{id}/submit"), fresh_key());
    let (status, refused, _) = post(&submit, &key, &json!({})).await;
    assert_eq!(
        (status, &json_of(&refused)["error"]["type"]),
        (422, &json!("missing"))
    );
    let fields = json!({"fields": {"system": "billing"}});
    let set = send(
        Method::PATCH,
        &format!("{url}/{id}/fields"),
        &fresh_key(),
        &fields,
    )
    .await;
    assert_eq!(set.0, 200);
    assert_eq!(
        post(&submit, &key, &json!({})).await.0,
        201,
        "the same key, and now it runs"
    );
    assert_eq!(count(&app, WEBHOOKS, &id).await, 1);
}

#[tokio::test]
async fn a_run_after_a_crash_finds_what_the_run_before_it_did() {
    let (url, app) = serve().await;
    // A key that is alone in how it begins.
    let (url, key) = (
        format!("{url}/access-request/submit"),
        fresh_key().replace("idem_", ""),
    );
    let ask = json!({"fields": {"system": "billing"}});
    let (_, first, _) = post(&url, &key, &ask).await;
    let id = json_of(&first)["submissionId"].as_str().unwrap().to_owned();
    // As if the process had vanished after its transaction and before the record was settled: a
    // lease that is long over.
    let lapse = "UPDATE semel.records SET state = 1, head = NULL, body = NULL, written_us = written_us - 60000000 \
                 WHERE scope = 'intake:access-request' AND hint = $1";
    let lapsed = sqlx::query(lapse).bind(&key[..8]).execute(&app.pool).await;
    assert_eq!(lapsed.expect("an answer").rows_affected(), 1);
    let (restarted, _) = serve().await;
    let url = format!("{restarted}/access-request/submit");
    let (status, again, replayed) = post(&url, &key, &ask).await;
    assert_eq!((status, again, replayed), (201, first, false));
    assert_eq!(count(&app, WEBHOOKS, &id).await, 1);
}

#[tokio::test]
async fn f9_1_7_the_service_counts_what_happens_to_keys() {
    let (url, _) = serve().await;
    let (call, key) = (format!("{url}/access-request/submit"), fresh_key());
    let ask = json!({"fields": {"system": "ledger"}});
    for status in [201, 200] {
        assert_eq!(post(&call, &key, &ask).await.0, status);
    }
    let base = url.strip_suffix("/api/intakes").expect("the API's path");
    let page = reqwest::get(format!("{base}/metrics"))
        .await
        .expect("an answer");
    let page = page.text().await.expect("text");
    for line in [
        r#"semel_requests_total{scope="intake:access-request",outcome="ran"} 1"#,
        r#"semel_requests_total{scope="intake:access-request",outcome="replayed"} 1"#,
    ] {
        assert!(page.contains(line), "{line} is missing:\n{page}");
    }
    assert!(!page.contains(&key));
}
