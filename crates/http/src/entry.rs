//! The first step of a request: reads key and fingerprint, or refuses the request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Request, Version};
use http_body::Body as HttpBody;
use semel_core::engine;
use semel_core::event::{ShadowDecision, Step};
use semel_core::policy::Mode;

use crate::body::{Body, BodyRoom, BoxError, ReadError, Reader};
use crate::credentials::has_credentials;
use crate::grpc::{self, Kind};
use crate::problem::Refusal;
use crate::routing::LayerState;
use crate::rules::Rules;

/// The result of the first step.
///
/// Requests are boxed, because they are large and are moved through several futures from here on.
pub(crate) enum Entry {
    /// A request without a key, which passes.
    Unkeyed(Box<Request<Body>>),
    /// A request with a key.
    Keyed(KeyedRequest),
    /// A refused request.
    Refused(RefusedRequest),
}

pub(crate) struct KeyedRequest {
    /// The request for the engine.
    pub(crate) request: engine::Request,
    /// The request for the handler.
    pub(crate) http: Box<Request<Body>>,
    pub(crate) kind: Kind,
    /// Whether the request has neither a principal nor credentials.
    pub(crate) is_anonymous: bool,
    /// The key to repeat in the response, if the profile asks for it.
    pub(crate) echo: Option<HeaderValue>,
    /// The lifetime of the key to announce in the response, if the route does so.
    pub(crate) lifetime: Option<Duration>,
}

pub(crate) struct RefusedRequest {
    pub(crate) refusal: Refusal,
    pub(crate) kind: Kind,
    /// Whether unread bytes would disturb the next request on the connection.
    pub(crate) must_close: bool,
}

/// What the engine needs, once a key was found.
struct KeyedParts {
    request: engine::Request,
    is_anonymous: bool,
    echo: Option<HeaderValue>,
    lifetime: Option<Duration>,
}

/// How long the rest of a refused request is read.
const DRAIN_TIME: Duration = Duration::from_secs(1);

pub(crate) async fn enter<B>(shared: &LayerState, rules: &Rules, request: Request<B>) -> Entry
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let mut reader = Reader::new(body);
    let kind = grpc::kind(&parts);
    let refusal = match find(shared, rules, kind, &parts, &mut reader).await {
        Ok(Some(found)) => {
            let http = Box::new(Request::from_parts(parts, reader.into_body()));
            return Entry::Keyed(KeyedRequest {
                request: found.request,
                http,
                kind,
                is_anonymous: found.is_anonymous,
                echo: found.echo,
                lifetime: found.lifetime,
            });
        }
        Ok(None) => {
            rules.report(&shared.engine, Step::Passed);
            return Entry::Unkeyed(Box::new(Request::from_parts(parts, reader.into_body())));
        }
        Err(refusal) => refusal,
    };
    let code = refusal.code();
    if rules.policy.mode == Mode::Observe && !is_final(rules, &refusal) {
        let would = ShadowDecision::Refuse(code);
        rules.report(&shared.engine, Step::Observed { decision: would });
        return Entry::Unkeyed(Box::new(Request::from_parts(parts, reader.into_body())));
    }
    Entry::Refused(refuse(shared, rules, &parts, &mut reader, refusal).await)
}

/// Refuses a request after a look at its head alone.
pub(crate) async fn refuse_unread<B>(
    shared: &LayerState,
    rules: &Rules,
    request: Request<B>,
    refusal: Refusal,
) -> RefusedRequest
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    refuse(shared, rules, &parts, &mut Reader::new(body), refusal).await
}

async fn refuse<B>(
    shared: &LayerState,
    rules: &Rules,
    parts: &Parts,
    reader: &mut Reader<B>,
    refusal: Refusal,
) -> RefusedRequest
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let code = refusal.code();
    rules.report(&shared.engine, Step::Refused { code });
    let must_close = !drain(shared, rules, parts, reader).await;
    RefusedRequest {
        refusal,
        kind: grpc::kind(parts),
        must_close: must_close && parts.version <= Version::HTTP_11,
    }
}

/// Whether a request is refused in observe mode, too (P39).
fn is_final(rules: &Rules, refusal: &Refusal) -> bool {
    match refusal {
        // The handler could not notice that the body is incomplete.
        Refusal::Unverified | Refusal::BodyBroken | Refusal::NoRoom => true,
        // A body that was not read cannot be verified.
        Refusal::BodyTooLarge { .. } | Refusal::BodySlow => rules.verify.is_some(),
        _ => false,
    }
}

/// Reads the rest, so that it is not mistaken for the next request. Returns whether nothing is
/// left.
async fn drain<B>(shared: &LayerState, rules: &Rules, parts: &Parts, reader: &mut Reader<B>) -> bool
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    // Reading would tell a client with `Expect: 100-continue` to send its body.
    let waits = parts.headers.contains_key(header::EXPECT) && !reader.is_touched();
    let clock = &*shared.engine.env().clock;
    !waits
        && reader
            .drain(rules.limits.drain_bytes, DRAIN_TIME, clock)
            .await
}

async fn find<B>(
    shared: &LayerState,
    rules: &Rules,
    kind: Kind,
    parts: &Parts,
    reader: &mut Reader<B>,
) -> Result<Option<KeyedParts>, Refusal>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    // The signature comes first: nothing else matters if the request is not genuine.
    let mut verified = None;
    if let Some(verify) = &rules.verify {
        let body = read(shared, rules, parts, reader).await?;
        if !verify(parts, &body, shared.engine.env().clock.wall()) {
            return Err(Refusal::Unverified);
        }
        if rules.policy.mode == Mode::Off {
            return Ok(None);
        }
        verified = Some(body);
    }
    // Decides by the head before it waits for the body.
    let mut key = None;
    if !rules.key.needs_body() {
        key = rules.key.find(parts, &[], &shared.key_rules)?;
        match &key {
            Some(key) => rules.check_key(key, parts, &*shared.engine.env().clock)?,
            None => return without_key(rules, parts),
        }
    }
    let principal = rules.principal(parts);
    let namespace = rules.namespace(parts, principal.as_deref())?;
    let policy = rules.policy_for(parts)?;
    let body = match verified {
        Some(body) => body,
        None => read(shared, rules, parts, reader).await?,
    };
    if rules.key.needs_body() {
        key = rules.key.find(parts, &body, &shared.key_rules)?;
        if let Some(key) = &key {
            rules.check_key(key, parts, &*shared.engine.env().clock)?;
        }
    }
    let Some(key) = key else {
        return without_key(rules, parts);
    };
    if kind == Kind::Web || (kind == Kind::Grpc && !grpc::is_one_message(&body)) {
        return Err(Refusal::UnaryOnly);
    }
    let credentials = rules.credentials(&namespace, parts);
    let is_anonymous = credentials
        .as_ref()
        .is_some_and(|counted| !has_credentials(counted));
    let secret = shared.engine.secret();
    let counted = credentials.unwrap_or_default();
    let fingerprint = rules.payload.fingerprint(secret, parts, &counted, &body)?;
    let echo = rules
        .terms
        .echoes_key
        .then(|| HeaderValue::from_str(key.as_str()).ok());
    let lifetime = rules.is_announced().then(|| rules.lifetime(&policy));
    let mut request = engine::Request::new(&shared.engine, namespace, &key, fingerprint, policy);
    if let Some(subject) = rules.data_subject(parts)? {
        request = request.with_data_subject(subject);
    }
    Ok(Some(KeyedParts {
        request: name(request, rules, principal),
        is_anonymous,
        echo: echo.flatten(),
        lifetime,
    }))
}

/// Says who asks, and for which operation, for events.
fn name(mut request: engine::Request, rules: &Rules, principal: Option<String>) -> engine::Request {
    if let Some(principal) = principal.filter(|principal| !principal.is_empty()) {
        request = request.with_actor(principal);
    }
    if let Some(operation) = &rules.operation {
        request = request.with_operation(Arc::clone(operation));
    }
    request
}

fn without_key(rules: &Rules, parts: &Parts) -> Result<Option<KeyedParts>, Refusal> {
    if rules.claims_first_sent(&parts.headers) {
        Err(Refusal::FirstSent)
    } else if rules.requires_key {
        Err(Refusal::KeyRequired)
    } else {
        Ok(None)
    }
}

async fn read<B>(
    shared: &LayerState,
    rules: &Rules,
    parts: &Parts,
    reader: &mut Reader<B>,
) -> Result<Bytes, Refusal>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let limits = &rules.limits;
    let (most, clock) = (limits.request_bytes, &*shared.engine.env().clock);
    let room = parts.extensions.get::<BodyRoom>();
    match reader.read(most, limits.request_time, room, clock).await {
        Ok(()) => Ok(reader.bytes()),
        Err(ReadError::TooLarge) => Err(Refusal::BodyTooLarge { most }),
        Err(ReadError::TooSlow) => Err(Refusal::BodySlow),
        Err(ReadError::Broken) => Err(Refusal::BodyBroken),
        Err(ReadError::NoRoom) => Err(Refusal::NoRoom),
    }
}
