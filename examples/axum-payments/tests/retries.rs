//! Each route, asked twice.

use axum_payments::App;
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

fn fresh_key() -> String {
    format!("k-{:032x}", semel::tokio_env().entropy.next_u128())
}

async fn post(url: &str, key: &str, body: &Value) -> (u16, Value, bool) {
    let request = reqwest::Client::new()
        .post(url)
        .header("idempotency-key", key)
        .json(body);
    let response = request.send().await.expect("an answer");
    let replayed = response.headers().contains_key("idempotent-replayed");
    (
        response.status().as_u16(),
        response.json().await.expect("JSON"),
        replayed,
    )
}

async fn asked(app: &App, kind: &str, id: &str) -> i32 {
    let number: i64 = id
        .trim_start_matches(kind)
        .trim_start_matches('_')
        .parse()
        .expect("an id");
    let text = "SELECT asked FROM provider_payments WHERE id = $1";
    sqlx::query_scalar(text)
        .bind(number)
        .fetch_one(&app.pool)
        .await
        .expect("a payment")
}

#[tokio::test]
async fn a_charge_is_made_once() {
    let (url, app) = serve().await;
    let (url, key, order) = (
        format!("{url}/charges"),
        fresh_key(),
        json!({ "cents": 4200 }),
    );
    let (status, first, _) = post(&url, &key, &order).await;
    assert_eq!(status, 201);
    let (status, second, replayed) = post(&url, &key, &order).await;
    assert_eq!((status, &second, replayed), (201, &first, true));
    assert_eq!(
        asked(&app, "charge", first["id"].as_str().unwrap()).await,
        1
    );
    let (status, _, _) = post(&url, &key, &json!({ "cents": 1 })).await;
    assert_eq!(status, 422);
}

#[tokio::test]
async fn a_refund_is_made_once_and_a_refused_one_stays_refused() {
    let (url, app) = serve().await;
    let (url, key) = (format!("{url}/refunds"), fresh_key());
    let refund = json!({ "charge": "charge_1", "cents": 100 });
    let (_, first, _) = post(&url, &key, &refund).await;
    let (_, second, _) = post(&url, &key, &refund).await;
    assert_eq!(
        (first["id"].clone(), second["replayed"].clone()),
        (second["id"].clone(), json!(true))
    );
    assert_eq!(
        asked(&app, "refund", first["id"].as_str().unwrap()).await,
        1
    );
    let (key, nothing) = (fresh_key(), json!({ "charge": "charge_1", "cents": 0 }));
    for _ in 0..2 {
        let (status, problem, _) = post(&url, &key, &nothing).await;
        assert_eq!((status, problem["retryable"].clone()), (422, json!(false)));
    }
}

#[tokio::test]
async fn a_transfer_happens_exactly_once() {
    let (url, app) = serve().await;
    let (from, to) = (fresh_key(), fresh_key());
    let insert = "INSERT INTO accounts VALUES ($1, 500), ($2, 0)";
    sqlx::query(insert)
        .bind(&from)
        .bind(&to)
        .execute(&app.pool)
        .await
        .unwrap();
    let transfer = json!({ "from": from, "to": to, "cents": 400 });
    let (url, key) = (format!("{url}/transfers"), fresh_key());
    let (_, first, _) = post(&url, &key, &transfer).await;
    let (_, second, _) = post(&url, &key, &transfer).await;
    assert_eq!(
        (&first["entry"], &second["replayed"]),
        (&second["entry"], &json!(true))
    );
    let balance = "SELECT cents FROM accounts WHERE name = $1";
    let left: i64 = sqlx::query_scalar(balance)
        .bind(&from)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(left, 100);
    let (status, _, _) = post(&url, &fresh_key(), &transfer).await;
    assert_eq!(status, 422, "the account has not so much");
}
