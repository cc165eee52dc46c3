//! The transition.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use semel::{Error, Failure, Problem};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::Row as _;

use crate::App;

/// Where the keys live.
pub const SCOPE: &str = "contract.transition";

/// How long an answer is kept: longer than any outbox goes on asking.
pub const TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What is asked for.
#[derive(Deserialize)]
pub(crate) struct Ask {
    /// Mandatory, and not `null`: without it, an outbox that asks again would change the contract
    /// again.
    #[serde(default)]
    idempotency_key: Option<String>,
    #[serde(default)]
    tenant_id: u32,
    contract_id: i64,
    to: String,
}

/// What is answered, the first time and every time.
#[derive(Deserialize, Serialize)]
struct Done {
    ok: bool,
    from: String,
    to: String,
    contract_version: String,
    proof_id: i64,
}

/// What may follow what.
fn is_allowed(from: &str, to: &str) -> bool {
    matches!(
        (from, to),
        ("pending", "active" | "cancelled") | ("active", "completed" | "cancelled")
    )
}

pub(crate) async fn transition(
    State(app): State<App>,
    Json(ask): Json<Ask>,
) -> (StatusCode, Json<Value>) {
    let Some(key) = ask.idempotency_key.filter(|key| !key.is_empty()) else {
        return refused(StatusCode::BAD_REQUEST, "idempotency_key is mandatory");
    };
    let payload = json!({"contract_id": ask.contract_id, "to": ask.to});
    let call = app
        .semel
        .operation(SCOPE)
        .tenant(&ask.tenant_id.to_string())
        .retention(TTL)
        .key(&key)
        .payload(&payload);
    let (contract, to) = (ask.contract_id, ask.to);
    let done = call.run_in(&app.pool, async move |mut tx, _lease| {
        let look = "SELECT status, version FROM contracts WHERE id = $1 FOR UPDATE";
        let found = sqlx::query(look).bind(contract).fetch_optional(&mut *tx).await?;
        // A rejection is rolled back, and kept: the same key gets the same refusal.
        let Some(found) = found else {
            return Err(Failure::reject("there is no such contract"));
        };
        let (from, version): (String, i64) = (found.get(0), found.get(1));
        if !is_allowed(&from, &to) {
            return Err(Failure::reject(format!("a contract that is {from} can't become {to}")));
        }
        let change = "UPDATE contracts SET status = $2, version = version + 1 WHERE id = $1";
        sqlx::query(change).bind(contract).bind(&to).execute(&mut *tx).await?;
        let prove = "INSERT INTO proofs (contract_id, from_status, to_status) VALUES ($1, $2, $3) RETURNING id";
        let proof = sqlx::query(prove).bind(contract).bind(&from).bind(&to);
        let proof = proof.fetch_one(&mut *tx).await?;
        Ok(Done {
            ok: true,
            from,
            to,
            contract_version: format!("v{}", version + 1),
            proof_id: proof.get(0),
        })
    });
    match done.await {
        Ok(answer) => (StatusCode::OK, Json(json!(answer.value))),
        Err(Error::Rejected(rejection)) => {
            let reason = rejection.reason.as_str().unwrap_or_default();
            refused(StatusCode::UNPROCESSABLE_ENTITY, reason)
        }
        Err(Error::Problem(Problem::Mismatch)) => refused(
            StatusCode::CONFLICT,
            "the key was used for another transition",
        ),
        Err(Error::Key(error)) => refused(StatusCode::BAD_REQUEST, &error.to_string()),
        // Nothing happened, or it is not known yet: the same key again finds out.
        Err(_) => refused(
            StatusCode::SERVICE_UNAVAILABLE,
            "ask again with the same key",
        ),
    }
}

fn refused(status: StatusCode, reason: &str) -> (StatusCode, Json<Value>) {
    (status, Json(json!({"ok": false, "reason": reason})))
}
