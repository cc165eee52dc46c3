//! [`Idempotency`]: the middleware that makes a call safe to repeat, and repeats it.

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::{Extensions, HeaderValue, Method};
use reqwest::{Body, Request, Response, ResponseBuilderExt as _};
use reqwest_middleware::{ClientWithMiddleware, Middleware, Next, Result};

use crate::course::Course;
use crate::error::Error;
use crate::judge::{Judged, Problem, judge};
use crate::left::Left;
use crate::policy::{RetryBudget, RetryPolicy};

/// The header that a key travels in.
const HEADER: &str = "idempotency-key";

/// Answers up to this size are read within the attempt, so that one that breaks off is asked for again.
const MOST_BUFFERED: usize = 16 * 1024 * 1024;

/// The key of one operation: given with the request, where it has a name of its own.
///
/// ```no_run
/// # async fn example(client: reqwest_middleware::ClientWithMiddleware) -> Result<(), Box<dyn std::error::Error>> {
/// use semel_client::IdempotencyKey;
///
/// let charge = client
///     .post("http://127.0.0.1:8080/charges")
///     .json(&serde_json::json!({"order": "ord-1", "cents": 500}))
///     .with_extension(IdempotencyKey::new("charge-ord-1")?)
///     .send()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct IdempotencyKey(HeaderValue);

impl IdempotencyKey {
    /// A key that the caller has.
    ///
    /// # Errors
    /// [`Error::Key`] where it isn't 1 to 255 visible ASCII characters.
    pub fn new(key: &str) -> std::result::Result<Self, Error> {
        let fits = (1..=255).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
        if !fits {
            return Err(Error::Key);
        }
        let mut value = HeaderValue::from_str(key).map_err(|_| Error::Key)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// A new one: make it when the operation begins, and keep it.
    #[must_use]
    pub fn random() -> Self {
        let text = format!("idem_{:032x}", rand::random::<u128>());
        // Letters and digits.
        let mut value =
            HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("idem_"));
        value.set_sensitive(true);
        Self(value)
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

/// Shows how it begins.
impl std::fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.as_str();
        write!(f, "IdempotencyKey({}…)", &text[..text.len().min(4)])
    }
}

/// In the extensions of a request that may have been sent with its key before, by this process or another: then it may
/// be done, whatever becomes of the attempts of now.
#[derive(Clone)]
pub(crate) struct SentBefore;

/// What became of a call, beside its answer: in the extensions of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// Under which it was asked: to be kept with the order.
    pub key: IdempotencyKey,
    /// How many attempts it took.
    pub attempts: u32,
    /// Whether an earlier attempt did it, and this is its answer.
    pub replayed: bool,
}

impl Called {
    /// Of an answer that came through [`Idempotency`].
    #[must_use]
    pub fn of(response: &Response) -> Option<&Self> {
        response.extensions().get()
    }
}

/// Gives POST and PATCH a key, once, and repeats what may be repeated with it. Other methods pass untouched, unless they
/// come with an [`IdempotencyKey`].
///
/// A key that the request has already (as a header or an extension) is kept.
#[derive(Clone, Debug, Default)]
pub struct Idempotency {
    policy: RetryPolicy,
    budget: Arc<RetryBudget>,
}

impl Idempotency {
    /// With another policy.
    #[must_use]
    pub fn policy(mut self, policy: RetryPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// With a budget that other clients share.
    #[must_use]
    pub fn budget(mut self, budget: Arc<RetryBudget>) -> Self {
        self.budget = budget;
        self
    }
}

/// A client with [`Idempotency`] as it is by default.
///
/// ```
/// let client = semel_client::client(reqwest::Client::new());
/// ```
#[must_use]
pub fn client(client: reqwest::Client) -> ClientWithMiddleware {
    let builder = reqwest_middleware::ClientBuilder::new(client);
    builder.with(Idempotency::default()).build()
}

#[async_trait]
impl Middleware for Idempotency {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let given = extensions.get::<IdempotencyKey>().cloned();
        let given = given.or_else(|| request.headers().get(HEADER).cloned().map(IdempotencyKey));
        let key = match given {
            Some(key) => key,
            None if matches!(*request.method(), Method::POST | Method::PATCH) => {
                IdempotencyKey::random()
            }
            None => return next.run(request, extensions).await,
        };
        request.headers_mut().insert(HEADER, key.0.clone());
        Box::pin(self.repeat(&key, &request, extensions, next)).await
    }
}

impl Idempotency {
    async fn repeat(
        &self,
        key: &IdempotencyKey,
        request: &Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let sent_before = extensions.get::<SentBefore>().is_some();
        let mut course = Course::new(&self.policy, &self.budget, sent_before);
        loop {
            let (mut attempt, left) = Left::copy(request).ok_or(Error::OneShot)?;
            let limit = course.begin();
            *attempt.timeout_mut() = Some(limit);
            metrics::counter!("semel_client_attempts_total").increment(1);
            let asked = async { whole(next.clone().run(attempt, extensions).await?).await };
            let asked = tokio::time::timeout(limit, left.before(asked)).await;
            let pause = match asked {
                // reqwest's own limit should have ended it.
                Err(_) => course.next(None, true, false),
                Ok((had_left, Err(error))) => match never_sent(&error) {
                    None => return Err(error),
                    Some(never_sent) => course.next(None, true, never_sent && !had_left),
                },
                Ok((_, Ok((response, problem)))) => {
                    match judge(response.status(), response.headers(), &problem) {
                        Judged::Final => return Ok(told(response, key, course.attempts)),
                        Judged::Conflict => {
                            metrics::counter!("semel_client_conflicts_total").increment(1);
                            let status = response.status();
                            return Err(Error::Conflict { status }.into());
                        }
                        Judged::InDoubt => {
                            metrics::counter!("semel_client_in_doubt_total").increment(1);
                            return Err(Error::InDoubt.into());
                        }
                        Judged::Again {
                            after,
                            counts,
                            nothing_done,
                        } => course.next(after, counts, nothing_done),
                    }
                }
            };
            let pause = pause.inspect_err(|_| {
                metrics::counter!("semel_client_gave_up_total").increment(1);
            })?;
            metrics::counter!("semel_client_retries_total").increment(1);
            tokio::time::sleep(pause).await;
        }
    }
}

/// Whether the request never left, as far as the last hop says; `None` where asking again is no use.
fn never_sent(error: &reqwest_middleware::Error) -> Option<bool> {
    match error {
        reqwest_middleware::Error::Reqwest(error) if error.is_builder() || error.is_redirect() => {
            None
        }
        reqwest_middleware::Error::Reqwest(error) => Some(error.is_connect()),
        // Another middleware's: it knows why.
        reqwest_middleware::Error::Middleware(_) => None,
    }
}

/// The answer with its body read, up to a bound, and what it says of a problem. One that breaks off is an error.
async fn whole(response: Response) -> Result<(Response, Problem)> {
    let (status, url) = (response.status(), response.url().clone());
    let (version, headers) = (response.version(), response.headers().clone());
    let extensions = response.extensions().clone();
    let mut rest = response.bytes_stream();
    let mut body = BytesMut::new();
    while body.len() <= MOST_BUFFERED {
        match rest.try_next().await? {
            Some(bytes) => body.extend_from_slice(&bytes),
            None => {
                let body = body.freeze();
                let problem = Problem::of(status, &headers, &body);
                let made = rebuilt(status, version, headers, extensions, url, body.into());
                return Ok((made, problem));
            }
        }
    }
    // Larger than what is kept here: the caller reads the rest, and sees by itself where it breaks off.
    let first = stream::once(std::future::ready(Ok::<Bytes, reqwest::Error>(
        body.freeze(),
    )));
    let body = Body::wrap_stream(first.chain(rest));
    let made = rebuilt(status, version, headers, extensions, url, body);
    Ok((made, Problem::default()))
}

fn rebuilt(
    status: http::StatusCode,
    version: http::Version,
    headers: http::HeaderMap,
    extensions: Extensions,
    url: reqwest::Url,
    body: Body,
) -> Response {
    let mut made = http::Response::builder()
        .url(url)
        .body(body)
        .unwrap_or_default();
    *made.status_mut() = status;
    *made.version_mut() = version;
    *made.headers_mut() = headers;
    made.extensions_mut().extend(extensions);
    Response::from(made)
}

fn told(mut response: Response, key: &IdempotencyKey, attempts: u32) -> Response {
    let replayed = response.headers().get("idempotent-replayed");
    let replayed = replayed.is_some_and(|value| value == "true");
    if replayed {
        metrics::counter!("semel_client_replays_total").increment(1);
    }
    response.extensions_mut().insert(Called {
        key: key.clone(),
        attempts,
        replayed,
    });
    response
}
