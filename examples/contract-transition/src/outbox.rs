//! The caller's side: what is to be asked for is written down with whatever made it necessary, and
//! asked for until there is an answer. A crash between the answer and the note of it only means
//! that the same is asked again.

use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool, Row as _};

/// The key of an event: made of what it is about, so that it is the same every time.
#[must_use]
pub fn key_of(event: &str) -> String {
    format!("pazar:proof:status_change:{event}")
}

/// Notes what is to be asked for, in the transaction of whatever makes it necessary.
///
/// # Errors
/// Where the database gives no answer.
pub async fn note(
    transaction: &mut PgConnection,
    event: &str,
    contract: i64,
    to: &str,
) -> sqlx::Result<()> {
    let note = "INSERT INTO outbox (key, contract_id, to_status) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING";
    let note = sqlx::query(note)
        .bind(key_of(event))
        .bind(contract)
        .bind(to);
    note.execute(transaction).await.map(drop)
}

/// Asks for what has no answer yet. → how many got one.
///
/// # Errors
/// Where the database gives no answer. A remote that gives none is asked again by the next call.
pub async fn replay(pool: &PgPool, remote: &str, only: Option<i64>) -> sqlx::Result<usize> {
    let open = "SELECT id, key, contract_id, to_status FROM outbox WHERE answer IS NULL \
                AND ($1::bigint IS NULL OR contract_id = $1) ORDER BY id";
    let mut answered = 0;
    for row in sqlx::query(open).bind(only).fetch_all(pool).await? {
        let id: i64 = row.get(0);
        let (key, contract, to): (String, i64, String) = (row.get(1), row.get(2), row.get(3));
        let count = "UPDATE outbox SET asked = asked + 1 WHERE id = $1";
        sqlx::query(count).bind(id).execute(pool).await?;
        let Some(answer) = ask(remote, &key, contract, &to).await else {
            continue;
        };
        let note = "UPDATE outbox SET answer = $2 WHERE id = $1";
        sqlx::query(note)
            .bind(id)
            .bind(answer.to_string())
            .execute(pool)
            .await?;
        answered += 1;
    }
    Ok(answered)
}

/// `None` where it is worth asking again: no answer, or one that says so.
pub async fn ask(remote: &str, key: &str, contract: i64, to: &str) -> Option<Value> {
    let body = json!({"idempotency_key": key, "contract_id": contract, "to": to});
    let url = format!("{remote}/v1/contract/transition");
    let answer = reqwest::Client::new()
        .post(url)
        .json(&body)
        .send()
        .await
        .ok()?;
    if answer.status().is_server_error() {
        return None;
    }
    answer.json().await.ok()
}
