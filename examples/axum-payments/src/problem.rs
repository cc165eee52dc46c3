//! What a caller is told when there is no answer, for the routes that ask Semel by hand.

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use semel::Error;
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct Problem {
    #[serde(skip)]
    status: StatusCode,
    message: String,
    retryable: bool,
}

impl Problem {
    fn new(status: StatusCode, message: impl Into<String>, retryable: bool) -> Self {
        Self {
            status,
            message: message.into(),
            retryable,
        }
    }

    pub(crate) fn unavailable() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "try again", true)
    }

    pub(crate) fn required_key(headers: &HeaderMap) -> Result<String, Self> {
        let key = headers
            .get("idempotency-key")
            .and_then(|key| key.to_str().ok());
        let missing = || Self::new(StatusCode::BAD_REQUEST, "send an Idempotency-Key", false);
        key.map(str::to_owned).ok_or_else(missing)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Rejected(_) | Error::Problem(semel::Problem::Mismatch) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Error::Key(_) | Error::Canonical(_) | Error::Payload(_) => StatusCode::BAD_REQUEST,
            Error::Problem(semel::Problem::Busy { .. } | semel::Problem::InDoubt(_)) => {
                StatusCode::CONFLICT
            }
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string(), error.is_retryable())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(self)).into_response()
    }
}
