//! The first step of a request: read key and fingerprint, or refuse.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Request, Version};
use http_body::Body as HttpBody;
use semel_core::engine;
use semel_core::event::{Step, Would};
use semel_core::policy::Mode;

use crate::body::{Body, BodyRoom, BoxError, Cut, Reader};
use crate::credentials::has_credentials;
use crate::grpc::{self, Kind};
use crate::layer::Shared;
use crate::problem::Refusal;
use crate::rules::Rules;

/// What a request turned out to be.
pub(crate) enum Entry {
    /// None of the layer's business: no key.
    Unkeyed(Request<Body>),
    /// One with a key.
    Keyed(Keyed),
    /// One that is not let in.
    Refused(Refused),
}

pub(crate) struct Keyed {
    /// For the engine.
    pub(crate) request: engine::Request,
    /// For the handler.
    pub(crate) http: Request<Body>,
    pub(crate) kind: Kind,
    /// Whether nothing says whose request it is.
    pub(crate) is_anonymous: bool,
    /// What to repeat to the caller, where the profile says so.
    pub(crate) echo: Option<HeaderValue>,
}

pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) kind: Kind,
    /// Whether what is left of the request stands in the way of the next on its connection.
    pub(crate) must_close: bool,
}

/// What was found out.
struct Found {
    request: engine::Request,
    is_anonymous: bool,
    echo: Option<HeaderValue>,
}

/// How long what is left of a refused request is read.
const DRAIN_TIME: Duration = Duration::from_secs(1);

pub(crate) async fn enter<B>(shared: &Shared, rules: &Rules, request: Request<B>) -> Entry
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let kind = grpc::kind(&parts.headers);
    let mut reader = Reader::new(body);
    let refusal = match find(shared, rules, kind, &parts, &mut reader).await {
        Ok(Some(found)) => {
            let http = Request::from_parts(parts, reader.into_body());
            return Entry::Keyed(Keyed {
                request: found.request,
                http,
                kind,
                is_anonymous: found.is_anonymous,
                echo: found.echo,
            });
        }
        Ok(None) => {
            shared.engine.report(rules.shown(), Step::Passed);
            return Entry::Unkeyed(Request::from_parts(parts, reader.into_body()));
        }
        Err(refusal) => refusal,
    };
    let code = refusal.code();
    if rules.policy.mode == Mode::Observe && !is_final(rules, &refusal) {
        let would = Would::Refuse(code);
        shared
            .engine
            .report(rules.shown(), Step::Observed { would });
        return Entry::Unkeyed(Request::from_parts(parts, reader.into_body()));
    }
    Entry::Refused(refuse(shared, rules, &parts, &mut reader, refusal).await)
}

/// Refuses a request of which nothing was looked at but its head.
pub(crate) async fn turn_away<B>(
    shared: &Shared,
    rules: &Rules,
    request: Request<B>,
    refusal: Refusal,
) -> Refused
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    refuse(shared, rules, &parts, &mut Reader::new(body), refusal).await
}

async fn refuse<B>(
    shared: &Shared,
    rules: &Rules,
    parts: &Parts,
    reader: &mut Reader<B>,
    refusal: Refusal,
) -> Refused
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let code = refusal.code();
    shared.engine.report(rules.shown(), Step::Refused { code });
    let must_close = !drained(shared, rules, parts, reader).await;
    Refused {
        refusal,
        kind: grpc::kind(&parts.headers),
        must_close: must_close && parts.version <= Version::HTTP_11,
    }
}

/// Whether a request is refused also where keys are only observed (P39).
fn is_final(rules: &Rules, refusal: &Refusal) -> bool {
    match refusal {
        // Of a body that broke off nothing is left that would tell the handler so: it would take what came for all of it.
        Refusal::Unverified | Refusal::BodyBroken | Refusal::NoRoom => true,
        // What can't be read can't be verified.
        Refusal::BodyTooLarge { .. } | Refusal::BodySlow => rules.verify.is_some(),
        _ => false,
    }
}

/// Reads what is left, so that the next request on the connection isn't taken for it; whether nothing
/// is left then.
async fn drained<B>(shared: &Shared, rules: &Rules, parts: &Parts, reader: &mut Reader<B>) -> bool
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    // A client that waits to be told to send would be told so by the reading.
    let waits = parts.headers.contains_key(header::EXPECT) && !reader.is_touched();
    let clock = &*shared.engine.env().clock;
    !waits
        && reader
            .drain(rules.limits.drain_bytes, DRAIN_TIME, clock)
            .await
}

async fn find<B>(
    shared: &Shared,
    rules: &Rules,
    kind: Kind,
    parts: &Parts,
    reader: &mut Reader<B>,
) -> Result<Option<Found>, Refusal>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    // First, as nothing else that is found out about a request matters if it isn't genuine.
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
    // What the head alone decides is decided before a byte of the body is waited for.
    let mut key = None;
    if !rules.key.needs_body() {
        key = rules.key.find(parts, &[], &shared.key_rules)?;
        if key.is_none() {
            return none(rules);
        }
    }
    let namespace = rules.namespace(parts)?;
    let policy = rules.policy_for(parts)?;
    let body = match verified {
        Some(body) => body,
        None => read(shared, rules, parts, reader).await?,
    };
    if rules.key.needs_body() {
        key = rules.key.find(parts, &body, &shared.key_rules)?;
    }
    let Some(key) = key else {
        return none(rules);
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
    Ok(Some(Found {
        request: engine::Request::new(&shared.engine, namespace, &key, fingerprint, policy),
        is_anonymous,
        echo: echo.flatten(),
    }))
}

const fn none(rules: &Rules) -> Result<Option<Found>, Refusal> {
    if rules.requires_key {
        Err(Refusal::KeyRequired)
    } else {
        Ok(None)
    }
}

async fn read<B>(
    shared: &Shared,
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
        Err(Cut::TooLarge) => Err(Refusal::BodyTooLarge { most }),
        Err(Cut::TooSlow) => Err(Refusal::BodySlow),
        Err(Cut::Broken) => Err(Refusal::BodyBroken),
        Err(Cut::NoRoom) => Err(Refusal::NoRoom),
    }
}
