//! Refunds: a part of a handler, made to happen once by hand.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use semel::Failure;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::{App, provider};

#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Request {
    charge: String,
    cents: i64,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Refund {
    id: String,
    replayed: bool,
}

pub(crate) async fn create(
    State(app): State<App>,
    headers: HeaderMap,
    Json(request): Json<Request>,
) -> Result<Json<Refund>, Problem> {
    let key = Problem::required_key(&headers)?;
    let call = app
        .semel
        .operation("refund")
        .hold()
        .key(&key)
        .payload(&request);
    let pool = app.pool.clone();
    let answer = call.run(async move |lease| {
        if request.cents <= 0 {
            return Err(Failure::reject("a refund gives something back"));
        }
        let key = lease.derive_key("provider");
        Ok(provider::pay(&pool, &key, "refund", request.cents).await?)
    });
    let answer = answer.await?;
    Ok(Json(Refund {
        id: answer.value,
        replayed: answer.replayed,
    }))
}
