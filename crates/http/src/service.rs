//! [`Idempotency`]: the service that the layer makes. Key and fingerprint in, answer out; what happens
//! in between is the engine's.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Request, Response};
use http_body::Body as HttpBody;
use semel_core::engine::{self, Report, Verdict};
use tower_service::Service;
use tracing::{Instrument as _, Span};

use crate::body::{Body, BoxError};
use crate::entry::{Entry, Keyed, Refused, enter, turn_away};
use crate::key::IDEMPOTENCY_KEY;
use crate::layer::{Found, Shared};
use crate::lease::Lease;
use crate::problem::{Refusal, Told};
use crate::reply;
use crate::rules::Rules;
use semel_core::event::Step;

/// Names one request in logs; made where the caller sends none.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The service that [`crate::IdempotencyLayer`] makes of another.
#[derive(Clone)]
pub struct Idempotency<S> {
    inner: S,
    shared: Arc<Shared>,
}

/// In the extensions of covered requests without a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unkeyed;

impl<S> Idempotency<S> {
    pub(crate) const fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

impl<S: std::fmt::Debug> std::fmt::Debug for Idempotency<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Idempotency({:?})", self.inner)
    }
}

impl<S, B, R> Service<Request<B>> for Idempotency<S>
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
        // The one that said it was ready is the one to call.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let shared = Arc::clone(&self.shared);
        let id = request_id(request.headers(), &shared);
        Box::pin(async move {
            let (rules, is_ambiguous) = match shared.rules(request.uri().path()) {
                Found::One(rules) => (rules, false),
                Found::Several(found) => one_of(&found, &request),
            };
            let response = match rules.covers(&request) {
                false => inner.call(request.map(Body::new)).await.map(passed),
                true if is_ambiguous => {
                    let refused = turn_away(&shared, rules, request, Refusal::PathAmbiguous).await;
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

/// Of the rules of a path that may be read in several ways: those by which it is refused, where there are such; else those
/// of the path as it stands.
fn one_of<'a, B>(found: &[&'a Arc<Rules>], request: &Request<B>) -> (&'a Arc<Rules>, bool) {
    let mut strict = found.iter();
    let strict = strict.find(|rules| rules.covers(request) && rules.is_enforced());
    match strict {
        Some(rules) => (rules, true),
        None => (found[0], false),
    }
}

fn passed<R>(response: Response<R>) -> Response<Body>
where
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    response.map(Body::new)
}

/// The caller's name for the request, or a new one.
fn request_id(headers: &HeaderMap, shared: &Shared) -> HeaderValue {
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
    shared: &Arc<Shared>,
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
        shared.engine.report(rules.shown(), Step::Passed);
        return unkeyed(&mut inner, request.map(Body::new)).await;
    }
    match enter(shared, rules, request).await {
        Entry::Unkeyed(request) => unkeyed(&mut inner, request).await,
        Entry::Keyed(keyed) => run(shared, rules, inner, keyed).await,
        Entry::Refused(refused) => Ok(refused_with(shared, rules, refused)),
    }
}

fn refused_with(shared: &Shared, rules: &Rules, refused: Refused) -> Response<Body> {
    let told = Told::of_refusal(&refused.refusal);
    let mut response = reply::problem(shared, rules, refused.kind, &told);
    // For whatever is around the layer: a program shouldn't have to read the document.
    response.extensions_mut().insert(refused.refusal);
    if refused.must_close {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// The way of most requests without a key: nothing is read of them.
fn passes(rules: &Rules, headers: &HeaderMap) -> bool {
    !rules.requires_key && rules.verify.is_none() && rules.key.is_absent(headers)
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
    request.extensions_mut().insert(Unkeyed);
    inner.call(request).await.map(passed)
}

async fn run<S, R>(
    shared: &Arc<Shared>,
    rules: &Arc<Rules>,
    mut inner: S,
    keyed: Keyed,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>> + Send + 'static,
    S::Error: Send + 'static,
    S::Future: Send + 'static,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let Keyed {
        request,
        mut http,
        kind,
        is_anonymous,
        echo,
    } = keyed;
    let gather = reply::Gather::new(shared, rules, kind, is_anonymous);
    if !rules.extensions.is_empty() {
        http.extensions_mut().extend(rules.extensions.clone());
    }
    // The request's own span, also on another task.
    let span = Span::current();
    // The effect may move to a task of its own, and its caller may leave (P37): it owns all it needs.
    let effect = move |lease: engine::Lease| {
        let effect = async move {
            let lease = Lease::new(lease);
            http.extensions_mut().insert(lease.clone());
            match inner.call(http).await {
                Ok(response) => gather.report(response, &lease).await,
                Err(error) => Report {
                    value: Err(error),
                    verdict: failed(&lease),
                },
            }
        };
        effect.instrument(span)
    };
    let mut response = match shared.engine.execute(request, effect).await {
        engine::Response::Ran(ran) => ran.value?,
        engine::Response::Unprotected(value) => value?,
        engine::Response::Replayed(replayed) => reply::replay(shared, rules, kind, &replayed),
        engine::Response::Problem(problem) => {
            let told = Told::of_engine(&problem, rules.terms);
            reply::problem(shared, rules, kind, &told)
        }
    };
    if let Some(echo) = echo {
        response.headers_mut().insert(IDEMPOTENCY_KEY, echo);
    }
    Ok(response)
}

/// The verdict on a service that failed instead of answering.
fn failed(lease: &Lease) -> Verdict {
    lease.marked().map_or(Verdict::Retry, Into::into)
}
