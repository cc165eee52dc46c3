//! JSON requests of bounded size, and JSON responses.

use std::time::Duration;

use axum::extract::{FromRef, FromRequest, FromRequestParts, Path, Query as AxumQuery, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::{Either, select};
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use semel_core::{Code, Env, Identity};
use semel_http::Refusal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::failure::Failure;
use super::hex::unhex;

/// Limits on the body of a request.
#[derive(Clone, Debug)]
pub(crate) struct BodyLimits {
    /// The largest accepted body, in bytes.
    pub(crate) max_bytes: usize,
    /// How long the body may take to arrive.
    pub(crate) timeout: Duration,
    pub(crate) env: Env,
}

/// A JSON body within [`BodyLimits`].
pub(crate) struct Json<T>(pub(crate) T);

impl<S, T> FromRequest<S> for Json<T>
where
    S: Send + Sync,
    BodyLimits: FromRef<S>,
    T: DeserializeOwned,
{
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        if !is_json(request.headers()) {
            let detail = "send JSON with the header Content-Type: application/json";
            return Err(Failure::new(Code::MediaTypeUnsupported, detail));
        }
        let body = read_body(request, BodyLimits::from_ref(state)).await?;
        serde_json::from_slice(&body)
            .map(Self)
            .map_err(|error| parse_failure(&error))
    }
}

fn is_json(headers: &http::HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    kind.eq_ignore_ascii_case("application/json")
}

async fn read_body(request: Request, limits: BodyLimits) -> Result<Bytes, Failure> {
    let most = limits.max_bytes;
    let body = Box::pin(Limited::new(request.into_body(), most).collect());
    let collected = match select(body, limits.env.clock.sleep(limits.timeout)).await {
        Either::Left((collected, _)) => collected,
        Either::Right(_) => return Err(Refusal::BodySlow.into()),
    };
    match collected {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = format!("the body has more than {most} bytes");
            Err(Failure::new(Code::BodyTooLarge, detail))
        }
        Err(_) => Err(Refusal::BodyBroken.into()),
    }
}

/// Names the position and the missing member, never the content of the request.
fn parse_failure(error: &serde_json::Error) -> Failure {
    let text = error.to_string();
    let missing = text
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split('`').next());
    let (line, column) = (error.line(), error.column());
    Failure::invalid(match (error.classify(), missing) {
        (_, Some(member)) => format!("the member {member} is missing"),
        (serde_json::error::Category::Data, _) => format!(
            "a member is unknown or has the wrong type, before line {line}, column {column}"
        ),
        _ => format!("the body is not JSON at line {line}, column {column}"),
    })
}

/// A JSON response with `Cache-Control: no-store`.
pub(crate) fn json_response(status: StatusCode, value: &impl Serialize) -> Response {
    let Ok(body) = serde_json::to_vec(value) else {
        return Failure::new(
            Code::AnswerUnreadable,
            "the response can't be written as JSON",
        )
        .into_response();
    };
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (status, headers, body).into_response()
}

/// The query parameters of a request.
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let query = AxumQuery::<T>::from_request_parts(parts, state).await;
        let detail = "a query parameter is unknown, repeated, or of the wrong type";
        query
            .map(|AxumQuery(query)| Self(query))
            .map_err(|_| Failure::invalid(detail))
    }
}

/// The identity of a record, from the path.
pub(crate) struct RecordId(pub(crate) Identity);

impl<S: Send + Sync> FromRequestParts<S> for RecordId {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let bytes = path.ok().and_then(|Path(text)| unhex(&text));
        let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let detail = "an id has 64 lower-case hexadecimal digits, as in a claim or a listing";
        bytes
            .map(|bytes| Self(Identity::from_bytes(bytes)))
            .ok_or_else(|| Failure::invalid(detail))
    }
}

/// Reads a member that is set to `null` as `Some(null)`, and an absent one as `None`.
pub(crate) fn deserialize_nullable<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

/// Reads a member that may be absent but not `null`.
pub(crate) fn deserialize_present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Reads a whole number of at least 0. `3.0` is one too.
pub(crate) fn deserialize_whole<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let number = serde_json::Number::deserialize(from)?;
    let from_float = |float: f64| {
        let is_whole = float.fract() == 0.0 && (0.0..=MAX_EXACT).contains(&float);
        is_whole
            .then(|| format!("{float:.0}").parse().ok())
            .flatten()
    };
    let found = number
        .as_u64()
        .or_else(|| number.as_f64().and_then(from_float));
    found.ok_or_else(|| serde::de::Error::custom("not a whole number"))
}

/// 2^53: every whole number up to this one is exact in floating point.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Reads a whole number of at least 0, or an absent member.
pub(crate) fn deserialize_optional_whole<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<u64>, D::Error> {
    deserialize_whole(from).map(Some)
}

/// Refuses a scope that Semel uses itself, as for its canaries.
pub(crate) fn refuse_own_scope(scope: &str) -> Result<(), Failure> {
    match scope.starts_with("semel.") {
        true => Err(Failure::refused(
            "scopes that begin with semel. are Semel's own",
        )),
        false => Ok(()),
    }
}

/// Checks text for people: not empty, within the limit, without control characters.
pub(crate) fn check_text(name: &str, text: &str, most: usize) -> Result<(), Failure> {
    let fits = !text.is_empty() && text.len() <= most;
    if fits && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Ok(());
    }
    let detail = format!("{name} has 1 to {most} printable ASCII characters");
    Err(Failure::invalid(detail))
}
