//! Charges: the layer does everything. Without an `Idempotency-Key` a request passes as it always
//! did.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use semel::http::HandlerLease;
use serde::{Deserialize, Serialize};

use crate::{App, provider};

#[derive(Deserialize)]
pub(crate) struct Order {
    cents: i64,
}

#[derive(Serialize)]
pub(crate) struct Charge {
    id: String,
    cents: i64,
}

pub(crate) async fn create(
    State(app): State<App>,
    lease: Option<HandlerLease>,
    Json(order): Json<Order>,
) -> Result<(StatusCode, Json<Charge>), StatusCode> {
    // The same on every run of this request, so that the provider recognises a second one.
    let key = lease.map_or_else(|| "no-key".to_owned(), |lease| lease.derive_key("provider"));
    let paid = provider::pay(&app.pool, &key, "charge", order.cents).await;
    // A server error frees the key: the retry runs again.
    let id = paid.map_err(|_| StatusCode::BAD_GATEWAY)?;
    let charge = Charge {
        id,
        cents: order.cents,
    };
    Ok((StatusCode::CREATED, Json(charge)))
}
