//! [`IdempotencyService`]: the tower service that the layer creates. It runs the inner service as
//! the engine's effect.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, request};
use http_body::Body as HttpBody;
use semel_core::Code;
use semel_core::engine::{self, Report, Verdict};
use semel_core::policy::Mode;
use tower_service::Service;
use tracing::{Instrument as _, Span};

use crate::announce::{IDEMPOTENCY_KEY_RULES, put_lifetime};
use crate::body::{Body, BoxError};
use crate::entry::{Entry, KeyedRequest, RefusedRequest, enter, refuse_unread};
use crate::hooks::{AuthorizeReplay, KeyQuota};
use crate::key::IDEMPOTENCY_KEY;
use crate::lease::{HandlerLease, UnkeyedRequest};
use crate::problem::{ProblemDetails, Refusal};
use crate::repeatable::{self, put_result};
use crate::reply;
use crate::routing::{LayerState, MatchedRules};
use crate::rules::Rules;
use semel_core::event::Step;

/// The ID of a request in logs. It is generated if the caller sends none.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The service that [`crate::IdempotencyLayer`] wraps around another.
#[derive(Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    shared: Arc<LayerState>,
}

impl<S> IdempotencyService<S> {
    pub(crate) const fn new(inner: S, shared: Arc<LayerState>) -> Self {
        Self { inner, shared }
    }
}

impl<S: std::fmt::Debug> std::fmt::Debug for IdempotencyService<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Idempotency({:?})", self.inner)
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Send + 'static,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Calls the instance that reported readiness.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let shared = Arc::clone(&self.shared);
        let id = request_id(request.headers(), &shared);
        Box::pin(async move {
            let (rules, is_ambiguous) = match shared.rules(request.uri().path()) {
                MatchedRules::One(rules) => (rules, false),
                MatchedRules::Several(found) => one_of(&found, &request),
            };
            let response = match rules.covers(&request) {
                false => uncovered(&shared, rules, inner, request).await,
                true if is_ambiguous => {
                    let refused =
                        refuse_unread(&shared, rules, request, Refusal::PathAmbiguous).await;
                    Ok(refused_with(&shared, rules, refused))
                }
                true => covered(&shared, rules, inner, request).await,
            };
            response.map(|mut response| {
                response.headers_mut().entry(X_REQUEST_ID).or_insert(id);
                response
            })
        })
    }
}

/// Chooses the rules of an ambiguous path: those that refuse it, if there are any; else those of
/// the path as written.
fn one_of<'a, B>(found: &[&'a Arc<Rules>], request: &Request<B>) -> (&'a Arc<Rules>, bool) {
    let mut strict = found.iter();
    let strict = strict.find(|rules| rules.covers(request) && rules.is_enforced());
    match strict {
        Some(rules) => (rules, true),
        None => (found[0], false),
    }
}

/// Passes a request that needs no key, and announces keys in its response where that is due.
async fn uncovered<S, B, R>(
    shared: &LayerState,
    rules: &Rules,
    mut inner: S,
    mut request: Request<B>,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let asks_for_options = request.method() == Method::OPTIONS && rules.is_announced();
    if !rules.is_catalog_config(&request) {
        let mut response = inner.call(request.map(Body::new)).await.map(passed)?;
        if asks_for_options {
            let headers = response.headers_mut();
            put_lifetime(headers, rules.key_terms.lifetime);
            if let Some(value) = &rules.key_header {
                headers.insert(IDEMPOTENCY_KEY_RULES, value.clone());
            }
        }
        return Ok(response);
    }
    // A compressed body could not be changed.
    request.headers_mut().remove(header::ACCEPT_ENCODING);
    let response = inner.call(request.map(Body::new)).await?;
    let clock = &*shared.engine.env().clock;
    Ok(reply::announce_in_config(rules, response, clock).await)
}

fn passed<R>(response: Response<R>) -> Response<Body>
where
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    response.map(Body::new)
}

/// The caller's ID of the request, or a new one.
fn request_id(headers: &HeaderMap, shared: &LayerState) -> HeaderValue {
    let given = headers.get(X_REQUEST_ID).filter(|id| id.len() <= 128);
    given.cloned().unwrap_or_else(|| {
        let mut id = [0; 32];
        let bytes = shared.engine.env().entropy.next_u128().to_be_bytes();
        for (two, byte) in id.chunks_exact_mut(2).zip(bytes) {
            let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
            two.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        HeaderValue::from_bytes(&id).unwrap_or(HeaderValue::from_static("none"))
    })
}

async fn covered<S, B, R>(
    shared: &Arc<LayerState>,
    rules: &Arc<Rules>,
    mut inner: S,
    request: Request<B>,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>> + Send + 'static,
    S::Error: Send + 'static,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    if passes(rules, request.headers()) {
        rules.report(&shared.engine, Step::Passed);
        return unkeyed(&mut inner, request.map(Body::new)).await;
    }
    match enter(shared, rules, request).await {
        Entry::Unkeyed(request) => unkeyed(&mut inner, *request).await,
        Entry::Keyed(keyed) => run(shared, rules, inner, keyed).await,
        Entry::Refused(refused) => Ok(refused_with(shared, rules, refused)),
    }
}

fn refused_with(shared: &LayerState, rules: &Rules, refused: RefusedRequest) -> Response<Body> {
    let mut details = ProblemDetails::from_refusal(&refused.refusal);
    let code = details.code;
    if matches!(code, Code::KeyRequired | Code::KeyInvalid | Code::KeyTooOld) {
        let document = rules.key_terms.document();
        details.members.insert("keyRules".to_owned(), document);
    }
    let mut response = reply::problem(shared, rules, refused.kind, &details);
    if rules.terms.first_sent && code != Code::KeyRequired {
        put_result(response.headers_mut(), false);
    }
    // Lets middleware around the layer see the refusal without parsing the document.
    response.extensions_mut().insert(refused.refusal);
    if refused.must_close {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// The fast path of requests without a key: nothing is read.
fn passes(rules: &Rules, headers: &HeaderMap) -> bool {
    !rules.requires_key
        && rules.verify.is_none()
        && rules.key.is_absent(headers)
        && !rules.claims_first_sent(headers)
}

async fn unkeyed<S, R>(
    inner: &mut S,
    mut request: Request<Body>,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    request.extensions_mut().insert(UnkeyedRequest);
    inner.call(request).await.map(passed)
}

async fn run<S, R>(
    shared: &Arc<LayerState>,
    rules: &Arc<Rules>,
    mut inner: S,
    keyed: KeyedRequest,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>> + Send + 'static,
    S::Error: Send + 'static,
    S::Future: Send + 'static,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let KeyedRequest {
        request,
        http,
        kind,
        is_anonymous,
        echo,
        lifetime,
    } = keyed;
    let quota = http.extensions().get::<KeyQuota>().cloned();
    if let Some(quota) = &quota
        && rules.policy.mode == Mode::Enforce
        && quota.refuses(&shared.engine, &request).await
    {
        let refused = RefusedRequest {
            refusal: Refusal::QuotaExceeded,
            kind,
            must_close: false,
        };
        return Ok(refused_with(shared, rules, refused));
    }
    let (guarded, mut http) = with_guard(rules, http);
    let gather = reply::ResponseRecorder::new(shared, rules, kind, is_anonymous);
    if !rules.extensions.is_empty() {
        http.extensions_mut().extend(rules.extensions.clone());
    }
    // The request's own span, even on another task.
    let span = Span::current();
    // The effect may move to its own task, and its caller may disconnect (P37), so it owns
    // everything it needs.
    let effect = move |lease: engine::Lease| {
        let effect = async move {
            let crash = lease.crash();
            let lease = HandlerLease::new(lease);
            http.extensions_mut().insert(lease.clone());
            let report = match inner.call(*http).await {
                Ok(response) => gather.report(response, &lease).await,
                Err(error) => Report::new(Err(error), failed(&lease)),
            };
            // Counted here, because the caller may have disconnected.
            if let Some(quota) = quota {
                quota.count_outcome(&report.verdict, crash);
            }
            report
        };
        effect.instrument(span)
    };
    let (mut response, accepted) = match shared.engine.execute(request, effect).await {
        engine::Response::Ran(ran) => (ran.value?, Some(true)),
        engine::Response::Unprotected(value) => (value?, None),
        engine::Response::Replayed(replayed) => match authorize(guarded).await {
            Ok(()) => (reply::replay(shared, rules, kind, &replayed), Some(true)),
            Err(refused) => (refused, None),
        },
        engine::Response::Problem(problem) => {
            let details = ProblemDetails::from_problem(&problem, rules.terms);
            let accepted = repeatable::is_accepted(details.code);
            (
                reply::problem(shared, rules, kind, &details),
                Some(accepted),
            )
        }
    };
    if let (true, Some(accepted)) = (rules.terms.first_sent, accepted) {
        put_result(response.headers_mut(), accepted);
    }
    if let Some(lifetime) = lifetime {
        put_lifetime(response.headers_mut(), lifetime);
    }
    if let Some(echo) = echo {
        response.headers_mut().insert(IDEMPOTENCY_KEY, echo);
    }
    Ok(response)
}

/// The route's check of replays and the head that it checks.
type Guarded = (Arc<dyn AuthorizeReplay>, request::Parts);

/// Keeps a copy of the request's head if the route checks its replays.
fn with_guard(rules: &Rules, http: Box<Request<Body>>) -> (Option<Guarded>, Box<Request<Body>>) {
    let Some(guard) = &rules.replay_guard else {
        return (None, http);
    };
    let (parts, body) = http.into_parts();
    let guarded = (Arc::clone(guard), parts.clone());
    (Some(guarded), Box::new(Request::from_parts(parts, body)))
}

async fn authorize(guarded: Option<Guarded>) -> Result<(), Response<Body>> {
    match guarded {
        Some((guard, head)) => guard.authorize(&head).await,
        None => Ok(()),
    }
}

/// The verdict if the inner service returns an error instead of a response.
fn failed(lease: &HandlerLease) -> Verdict {
    lease.marked().map_or(Verdict::Retry, Into::into)
}
