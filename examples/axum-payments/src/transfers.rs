//! Transfers: the record and the transfer are one transaction, so they happen exactly once.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use semel::Failure;
use serde::{Deserialize, Serialize};
use sqlx::Row as _;

use crate::App;
use crate::problem::Problem;

#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Transfer {
    from: String,
    to: String,
    cents: i64,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Receipt {
    entry: i64,
    replayed: bool,
}

pub(crate) async fn create(
    State(app): State<App>,
    headers: HeaderMap,
    Json(transfer): Json<Transfer>,
) -> Result<Json<Receipt>, Problem> {
    let key = Problem::required_key(&headers)?;
    let call = app.semel.operation("transfer").key(&key).payload(&transfer);
    let answer = call.run_in(&app.pool, async move |mut tx, _lease| {
        let Transfer { from, to, cents } = transfer;
        let take = "UPDATE accounts SET cents = cents - $2 WHERE name = $1 AND cents >= $2";
        let taken = sqlx::query(take)
            .bind(&from)
            .bind(cents)
            .execute(&mut *tx)
            .await?;
        if taken.rows_affected() == 0 || cents <= 0 {
            // Rolled back, and kept: the same key gets the same refusal.
            return Err(Failure::reject("the account has not so much"));
        }
        let give = "UPDATE accounts SET cents = cents + $2 WHERE name = $1";
        sqlx::query(give)
            .bind(&to)
            .bind(cents)
            .execute(&mut *tx)
            .await?;
        let note = "INSERT INTO ledger (taker, giver, cents) VALUES ($1, $2, $3) RETURNING id";
        let row = sqlx::query(note)
            .bind(&to)
            .bind(&from)
            .bind(cents)
            .fetch_one(&mut *tx)
            .await?;
        Ok(row.get::<i64, _>(0))
    });
    let answer = answer.await?;
    Ok(Json(Receipt {
        entry: answer.value,
        replayed: answer.replayed,
    }))
}

pub(crate) async fn accounts(
    State(app): State<App>,
) -> Result<Json<BTreeMap<String, i64>>, Problem> {
    let rows = sqlx::query("SELECT name, cents FROM accounts")
        .fetch_all(&app.pool)
        .await;
    let rows = rows.map_err(|_| Problem::unavailable())?;
    Ok(Json(
        rows.iter().map(|row| (row.get(0), row.get(1))).collect(),
    ))
}
