//! Requests in, answers out: JSON within bounds, and one vocabulary of problems.

use std::time::Duration;

use axum::extract::{FromRef, FromRequest, FromRequestParts, Path, Query as AxumQuery, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::{Either, select};
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use semel_core::engine::Problem;
use semel_core::env::SystemEntropy;
use semel_core::{Env, Identity};
use semel_http::{Profile, Refusal, Told};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoResponses, ToSchema};

/// How a request is taken in.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    /// The largest body taken.
    pub(crate) max_bytes: usize,
    /// How long a body may take to arrive.
    pub(crate) patience: Duration,
    pub(crate) env: Env,
}

/// Why a request got no answer, as a problem document.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Box<Told>);

impl Failure {
    pub(crate) fn of(code: &'static str, detail: impl Into<String>) -> Self {
        Self(Box::new(Told::of_code(code, detail)))
    }

    /// The request breaks its own form.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::of("request_invalid", detail)
    }

    /// The request is well formed, and can't be granted.
    pub(crate) fn refused(detail: impl Into<String>) -> Self {
        Self::of("request_refused", detail)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::of(
            "unauthorized",
            "send a valid token: Authorization: Bearer TOKEN",
        )
    }

    pub(crate) fn not_found() -> Self {
        Self::of("not_found", "there is no such record, or it has expired")
    }

    pub(crate) fn of_engine(problem: &Problem) -> Self {
        Self(Box::new(Told::of_engine(problem, Profile::Ietf.terms())))
    }

    /// With one more member in the document.
    pub(crate) fn with(mut self, name: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.0.members.insert(name.to_owned(), value);
        self
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self(Box::new(Told::of_refusal(&refusal)))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.0.response(&SystemEntropy).map(axum::body::Body::new);
        if response.status() == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"semel\"");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// A JSON body, within bounds.
pub(crate) struct Json<T>(pub(crate) T);

impl<S, T> FromRequest<S> for Json<T>
where
    S: Send + Sync,
    Intake: FromRef<S>,
    T: DeserializeOwned,
{
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        if !is_json(request.headers()) {
            let detail = "send JSON, and say so: Content-Type: application/json";
            return Err(Failure::of("media_type_unsupported", detail));
        }
        let body = read(request, Intake::from_ref(state)).await?;
        serde_json::from_slice(&body)
            .map(Self)
            .map_err(|error| unreadable(&error))
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

async fn read(request: Request, intake: Intake) -> Result<Bytes, Failure> {
    let most = intake.max_bytes;
    let body = Box::pin(Limited::new(request.into_body(), most).collect());
    let collected = match select(body, intake.env.clock.sleep(intake.patience)).await {
        Either::Left((collected, _)) => collected,
        Either::Right(_) => return Err(Refusal::BodySlow.into()),
    };
    match collected {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = format!("the body has more than {most} bytes");
            Err(Failure::of("idempotency_body_too_large", detail))
        }
        Err(_) => Err(Refusal::BodyBroken.into()),
    }
}

/// Never repeats what was sent: only names of our own, and places.
fn unreadable(error: &serde_json::Error) -> Failure {
    let said = error.to_string();
    let missing = said
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split('`').next());
    let (line, column) = (error.line(), error.column());
    Failure::invalid(match (error.classify(), missing) {
        (_, Some(member)) => format!("the member {member} is missing"),
        (serde_json::error::Category::Data, _) => format!(
            "a member is not known, or not of its kind, before line {line}, column {column}"
        ),
        _ => format!("the body is not JSON at line {line}, column {column}"),
    })
}

/// A JSON answer.
pub(crate) fn answer(status: StatusCode, value: &impl Serialize) -> Response {
    let Ok(body) = serde_json::to_vec(value) else {
        return Failure::of(
            "idempotency_answer_unreadable",
            "the answer can't be written",
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

/// The parameters of a query.
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let query = AxumQuery::<T>::from_request_parts(parts, state).await;
        let detail = "a query parameter is not known, given twice, or not of its kind";
        query
            .map(|AxumQuery(query)| Self(query))
            .map_err(|_| Failure::invalid(detail))
    }
}

/// The identity in the address.
pub(crate) struct Id(pub(crate) Identity);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let bytes = path.ok().and_then(|Path(text)| unhex(&text));
        let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let detail =
            "the id has 64 lower-case hexadecimal digits, as given by a claim or a listing";
        bytes
            .map(|bytes| Self(Identity::from_bytes(bytes)))
            .ok_or_else(|| Failure::invalid(detail))
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing into a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Lower-case hexadecimal digits, in pairs.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}

/// A member that may be `null` and be there all the same.
pub(crate) fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

/// A member that may be left out, but isn't `null` where it is there.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// A whole number from 0 up, however it is spelt: `3.0` is one too.
pub(crate) fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
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

/// The largest whole number up to which every one has a floating-point form of its own: 2^53.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// The same for a member that may be left out.
pub(crate) fn whole_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    whole(from).map(Some)
}

/// Text for people and for audit: not empty, within bounds, no control characters.
pub(crate) fn check_text(name: &str, text: &str, most: usize) -> Result<(), Failure> {
    let fits = !text.is_empty() && text.len() <= most;
    if fits && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Ok(());
    }
    let detail = format!("{name} has 1 to {most} printable ASCII characters");
    Err(Failure::invalid(detail))
}

/// A problem document (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProblemDocument {
    /// `urn:semel:problem:` and the code.
    r#type: String,
    /// What it is, in a few words.
    title: String,
    /// The status of the answer.
    status: u16,
    /// What happened, and what to do.
    detail: String,
    /// A stable word for it.
    code: String,
    /// Whether the same request may get an answer later.
    retryable: bool,
    /// When asking again is worth it, in milliseconds.
    #[schema(nullable = false)]
    retry_after_ms: Option<u64>,
    /// Of the claim that it is about.
    #[schema(nullable = false)]
    claim_id: Option<String>,
}

macro_rules! problems {
    ($($name:ident $status:literal $what:literal)*) => {$(
        #[doc = $what]
        #[derive(IntoResponses)]
        #[response(status = $status, description = $what, content_type = "application/problem+json")]
        #[expect(dead_code, reason = "describes an answer")]
        pub(crate) struct $name(ProblemDocument);
    )*};
}

problems! {
    P400 400 "The request can't be read."
    P401 401 "No valid credential."
    P403 403 "The credential doesn't cover this."
    P404 404 "There is no such record, or it has expired."
    P408 408 "The body did not arrive in time."
    P409 409 "Another runs it, it is in doubt, the lease is lost, or the record has moved on: see `code`."
    P413 413 "The body is too large."
    P415 415 "The body isn't JSON."
    P422 422 "The key was used with another payload, or the request can't be granted."
    P429 429 "Too many wait."
    P500 500 "The record of this key can't be read."
    P503 503 "The store, or the audit trail, gave no answer."
}
