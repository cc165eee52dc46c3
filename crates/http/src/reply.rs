//! The last step of a request: records a response, and replays a recorded one.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::response::Parts;
use http::{Response, StatusCode};
use http_body::Body as HttpBody;
use semel_core::engine::{Replayed, Report, Verdict};
use semel_core::{Answer, AnswerBody, Clock, Code, Env};

use crate::announce::{OF_BYTES, with_lifetime};
use crate::body::{Body, BoxError, ReadError, Reader};
use crate::credentials::asks_to_sign_in;
use crate::grpc::{self, Kind};
use crate::head::{self, StoredHead};
use crate::lease::{EffectOutcome, HandlerLease};
use crate::paths::redacted;
use crate::problem::{NO_STORE, PROBLEM_JSON, ProblemDetails, render};
use crate::profile::Meaning;
use crate::rfc3339;
use crate::routing::LayerState;
use crate::rules::Rules;

/// Marks a response as a replay.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The time of the first request, by the store's clock.
pub const X_ORIGINAL_REQUEST_TIME: HeaderName = HeaderName::from_static("x-original-request-time");

/// The parts of the original response that a replay lacks: `body`, `headers` or both; `fields` if
/// the route redacts some.
pub const IDEMPOTENT_NOT_KEPT: HeaderName = HeaderName::from_static("idempotent-not-kept");

/// Turns a response into a report for the engine, on whichever task the effect runs.
pub(crate) struct ResponseRecorder {
    env: Env,
    rules: Arc<Rules>,
    kind: Kind,
    /// Whether the request has neither a principal nor credentials.
    is_anonymous: bool,
}

impl From<EffectOutcome> for Verdict {
    fn from(outcome: EffectOutcome) -> Self {
        match outcome {
            EffectOutcome::NoEffect => Self::NoEffect,
            EffectOutcome::Unknown => Self::Unknown,
        }
    }
}

impl ResponseRecorder {
    pub(crate) fn new(
        shared: &LayerState,
        rules: &Arc<Rules>,
        kind: Kind,
        is_anonymous: bool,
    ) -> Self {
        Self {
            env: shared.engine.env().clone(),
            rules: Arc::clone(rules),
            kind,
            is_anonymous,
        }
    }

    /// The response for this caller, and the verdict for the record (P36).
    pub(crate) async fn report<R, E>(
        self,
        response: Response<R>,
        lease: &HandlerLease,
    ) -> Report<Result<Response<Body>, E>>
    where
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let (parts, body) = response.into_parts();
        let early = lease
            .marked()
            .map(Verdict::from)
            .or_else(|| self.not_kept(&parts));
        if let Some(verdict) = early {
            return report(Response::from_parts(parts, Body::new(body)), verdict);
        }
        let length = body.size_hint().exact().unwrap_or(0);
        let mut reader = Reader::new(body);
        let read = match self.is_stream(&parts) {
            true => Err(ReadError::TooSlow),
            false => {
                let most = self
                    .rules
                    .policy
                    .max_answer_bytes
                    .min(Answer::MAX_BODY_BYTES);
                let time = self.rules.limits.gather_time;
                reader.read(most, time, None, &*self.env.clock).await
            }
        };
        match read {
            Ok(()) => {
                let data = reader.bytes();
                let verdict = self.verdict(&parts, reader.trailers(), AnswerBody::Kept(data));
                report(Response::from_parts(parts, reader.into_body()), verdict)
            }
            // The body is stored completely or not at all, and the effect does not run again (P27).
            Err(ReadError::TooLarge | ReadError::TooSlow | ReadError::NoRoom) => {
                let verdict = self.verdict(&parts, None, AnswerBody::Omitted { bytes: length });
                report(Response::from_parts(parts, reader.into_body()), verdict)
            }
            Err(ReadError::Broken) => {
                let detail = "the response body broke off; retry with the same key";
                let details = ProblemDetails::new(Code::AnswerBroken, detail);
                let response = match self.kind {
                    Kind::Grpc => grpc::problem(&details, &*self.env.entropy),
                    _ => render(&details, self.rules.terms.errors, None, &*self.env.entropy),
                };
                report(response, lease.marked().map_or(Verdict::Retry, Into::into))
            }
        }
    }

    /// The verdict for a response whose status alone rules out storing it.
    fn not_kept(&self, parts: &Parts) -> Option<Verdict> {
        let meaning = match self.kind {
            Kind::Grpc if parts.status == StatusCode::OK => self.of_call(&parts.headers)?,
            _ => self.of_answer(parts),
        };
        match meaning {
            Meaning::NothingHappened => Some(Verdict::NoEffect),
            Meaning::Unclear => Some(Verdict::Retry),
            Meaning::Done | Meaning::Failed => None,
        }
    }

    /// What a response says about the effect. A response that asks for credentials is not stored if
    /// the request had none, because the next request may have them.
    fn of_answer(&self, parts: &Parts) -> Meaning {
        if self.is_anonymous && asks_to_sign_in(parts.status, &parts.headers) {
            return Meaning::NothingHappened;
        }
        self.rules.terms.meaning(parts.status)
    }

    /// What the status of a gRPC call says about the effect.
    fn of_call(&self, headers: &HeaderMap) -> Option<Meaning> {
        if self.is_anonymous && grpc::is_permission_denied(headers) {
            return Some(Meaning::NothingHappened);
        }
        grpc::meaning(headers)
    }

    fn is_stream(&self, parts: &Parts) -> bool {
        let media = parts.headers.get(header::CONTENT_TYPE);
        let events = |media: &HeaderValue| media.as_bytes().starts_with(b"text/event-stream");
        self.rules.streams || media.is_some_and(events)
    }

    fn verdict(&self, parts: &Parts, trailers: Option<&HeaderMap>, body: AnswerBody) -> Verdict {
        let trailers = trailers.filter(|_| self.kind == Kind::Grpc);
        let meaning = match (self.kind, trailers) {
            (Kind::Grpc, Some(trailers)) => self.of_call(trailers).unwrap_or(Meaning::Unclear),
            // A trailers-only response. Otherwise the call ended without a status, or it is an
            // unfinished stream, which does not run again.
            (Kind::Grpc, None) => self.of_call(&parts.headers).unwrap_or(match body {
                AnswerBody::Kept(_) => Meaning::Unclear,
                _ => Meaning::Done,
            }),
            _ => self.of_answer(parts),
        };
        let kept_trailers = trailers
            .into_iter()
            .flat_map(|trailers| self.kept(trailers));
        let head = head::pack(parts.status, self.kept(&parts.headers), kept_trailers);
        let body = self.stored(body);
        let answer = Answer { head, body };
        match meaning {
            Meaning::Done => Verdict::Complete(answer),
            Meaning::Failed => Verdict::Fail(answer),
            Meaning::NothingHappened => Verdict::NoEffect,
            Meaning::Unclear => Verdict::Retry,
        }
    }

    /// The body as the route has it stored.
    fn stored(&self, body: AnswerBody) -> AnswerBody {
        let AnswerBody::Kept(data) = body else {
            return body;
        };
        let paths = &self.rules.redact;
        let stored = match (self.rules.keeps_body, data.is_empty() || paths.is_empty()) {
            (false, _) => None,
            (true, true) => return AnswerBody::Kept(data),
            // What can't be redacted for sure is not stored.
            (true, false) => redacted(&data, paths).ok(),
        };
        let bytes = data.len() as u64;
        stored.map_or(AnswerBody::Omitted { bytes }, |text| {
            AnswerBody::Kept(text.into())
        })
    }

    /// The allowed headers, except those that `Connection` names, which end at the next hop.
    fn kept<'a>(
        &'a self,
        headers: &'a HeaderMap,
    ) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
        let any_named = headers.contains_key(header::CONNECTION);
        let named = move |name: &HeaderName| {
            if !any_named {
                return false;
            }
            let hop = headers.get_all(header::CONNECTION).iter();
            let mut values = hop.filter_map(|value| value.to_str().ok());
            values.any(|list| {
                let mut names = list.split(',');
                names.any(|one| one.trim().eq_ignore_ascii_case(name.as_str()))
            })
        };
        headers.iter().filter(move |(name, _)| {
            let listed =
                self.rules.keep.contains(name) || (self.kind == Kind::Grpc && grpc::keeps(name));
            listed && !named(name)
        })
    }
}

const fn report<E>(
    response: Response<Body>,
    verdict: Verdict,
) -> Report<Result<Response<Body>, E>> {
    Report::new(Ok(response), verdict)
}

/// A problem in the protocol of the request.
pub(crate) fn problem(
    shared: &LayerState,
    rules: &Rules,
    kind: Kind,
    details: &ProblemDetails,
) -> Response<Body> {
    let entropy = &*shared.engine.env().entropy;
    match kind {
        Kind::Grpc => grpc::problem(details, entropy),
        _ => render(
            details,
            rules.terms.errors,
            shared.documentation.as_deref(),
            entropy,
        ),
    }
}

/// The response of an earlier run, marked as a replay.
pub(crate) fn replay(
    shared: &LayerState,
    rules: &Rules,
    kind: Kind,
    replayed: &Replayed,
) -> Response<Body> {
    let answer = &replayed.replay.answer;
    let Ok(head) = StoredHead::decode(&answer.head) else {
        let detail = "the stored response was written by another door or by a newer version";
        let details = ProblemDetails::new(Code::AnswerUnreadable, detail);
        return problem(shared, rules, kind, &details);
    };
    let mut response = match (&answer.body, kind) {
        (AnswerBody::Kept(body), _) => {
            let trailers = (!head.trailers.is_empty()).then(|| Box::new(head.trailers));
            Response::new(Body::whole(body.clone(), trailers))
        }
        (AnswerBody::Omitted { .. } | AnswerBody::External { .. }, Kind::Grpc) => {
            grpc::problem(&not_kept(), &*shared.engine.env().entropy)
        }
        (AnswerBody::Omitted { bytes } | AnswerBody::External { bytes, .. }, _) => {
            Response::new(without_body(head.status, *bytes))
        }
    };
    let omitted = !matches!(answer.body, AnswerBody::Kept(_));
    if !(omitted && kind == Kind::Grpc) {
        *response.status_mut() = replayed_status(rules, head.status);
        *response.headers_mut() = head.headers;
    }
    let headers = response.headers_mut();
    if omitted && kind != Kind::Grpc {
        for about_the_body in [
            header::CONTENT_ENCODING,
            header::ETAG,
            header::CONTENT_DISPOSITION,
        ] {
            headers.remove(about_the_body);
        }
        headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
    }
    let redacts = !rules.redact.is_empty();
    let missing = match (omitted, head.headers_left_out, redacts) {
        (true, true, _) => Some("body, headers"),
        (true, false, _) => Some("body"),
        (false, true, true) => Some("fields, headers"),
        (false, true, false) => Some("headers"),
        (false, false, true) => Some("fields"),
        (false, false, false) => None,
    };
    if let Some(missing) = missing {
        headers.insert(IDEMPOTENT_NOT_KEPT, HeaderValue::from_static(missing));
    }
    headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    let at = rfc3339(replayed.replay.requested_at);
    if let Ok(at) = HeaderValue::from_str(&at) {
        headers.insert(X_ORIGINAL_REQUEST_TIME, at);
    }
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// How much of a catalog's configuration is read, to add the lifetime of keys.
const CONFIG_BYTES: usize = 1024 * 1024;

/// The configuration of an Iceberg catalog with the lifetime of keys in it. What can't be read as
/// such passes unchanged.
pub(crate) async fn announce_in_config<R>(
    rules: &Rules,
    response: Response<R>,
    clock: &dyn Clock,
) -> Response<Body>
where
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (mut parts, body) = response.into_parts();
    if !parts.status.is_success() || parts.headers.contains_key(header::CONTENT_ENCODING) {
        return Response::from_parts(parts, Body::new(body));
    }
    let mut reader = Reader::new(body);
    let time = rules.limits.gather_time;
    let read = reader.read(CONFIG_BYTES, time, None, clock).await;
    let lifetime = rules.key_terms.lifetime;
    let changed = read
        .ok()
        .and_then(|()| with_lifetime(&reader.bytes(), lifetime));
    let Some(changed) = changed else {
        return Response::from_parts(parts, reader.into_body());
    };
    for name in OF_BYTES {
        parts.headers.remove(name);
    }
    Response::from_parts(parts, Body::from(changed))
}

fn replayed_status(rules: &Rules, original: StatusCode) -> StatusCode {
    if rules.replays_as_ok && original.is_success() {
        StatusCode::OK
    } else {
        original
    }
}

fn not_kept() -> ProblemDetails {
    let detail = "the request is done; its response body was not stored";
    ProblemDetails::new(Code::BodyNotKept, detail)
}

/// The substitute for a body that was not stored: says that the request is done, and the
/// size of the body.
fn without_body(status: StatusCode, bytes: u64) -> Body {
    let details = not_kept();
    let mut document = serde_json::json!({
        "type": format!("urn:semel:problem:{}", details.code),
        "title": details.code.title(),
        "status": status.as_u16(),
        "detail": details.detail,
        "code": details.code.as_str(),
        "retryable": false,
    });
    if bytes > 0 {
        document["originalBytes"] = bytes.into();
    }
    Body::from(document.to_string())
}
