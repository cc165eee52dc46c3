//! [`IdempotencyMiddleware`]: gives a call its idempotency key, and retries it.

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::{Extensions, HeaderValue, Method};
use reqwest::{Body, Request, Response, ResponseBuilderExt as _};
use reqwest_middleware::{ClientWithMiddleware, Middleware, Next, Result};

use crate::body_sentinel::BodySentinel;
use crate::decision::{Decision, Problem, decide};
use crate::error::Error;
use crate::policy::{RetryBudget, RetryPolicy};
use crate::retry_state::RetryState;

/// The header that a key travels in.
const HEADER: &str = "idempotency-key";

/// Answers up to this size are read within the attempt, so that a truncated one is retried.
const MOST_BUFFERED: usize = 16 * 1024 * 1024;

/// The idempotency key of one operation. Give it with the request to choose the key.
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
    /// A key chosen by the caller.
    ///
    /// # Errors
    /// [`Error::Key`] if it isn't 1 to 255 visible ASCII characters.
    pub fn new(key: &str) -> std::result::Result<Self, Error> {
        let fits = (1..=255).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
        if !fits {
            return Err(Error::Key);
        }
        let mut value = HeaderValue::from_str(key).map_err(|_| Error::Key)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// A random key. Create it when the operation begins, and keep it for all attempts.
    #[must_use]
    pub fn random() -> Self {
        let text = format!("idem_{:032x}", rand::random::<u128>());
        // Only letters, digits and an underscore, so this can't fail.
        let mut value =
            HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("idem_"));
        value.set_sensitive(true);
        Self(value)
    }

    /// The text of the key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

/// Shows the first characters only.
impl std::fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.as_str();
        write!(f, "IdempotencyKey({}…)", &text[..text.len().min(4)])
    }
}

/// Marks a request, in its extensions, that may have been sent with its key before, by this process
/// or another. Its outcome is unknown until an answer comes.
#[derive(Clone)]
pub(crate) struct SentBefore;

/// Details of a call, in the extensions of its response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallInfo {
    /// The key of the call, for the caller's own records.
    pub key: IdempotencyKey,
    /// How many attempts it took.
    pub attempts: u32,
    /// Whether this is the stored answer of an earlier attempt.
    pub replayed: bool,
}

impl CallInfo {
    /// The details of a response that came through [`IdempotencyMiddleware`].
    #[must_use]
    pub fn from_response(response: &Response) -> Option<&Self> {
        response.extensions().get()
    }
}

/// Gives POST and PATCH requests one key for all attempts, and retries them. Other methods pass
/// unchanged, unless they have an [`IdempotencyKey`].
///
/// A key that the request already has, as a header or an extension, is kept.
#[derive(Clone, Debug, Default)]
pub struct IdempotencyMiddleware {
    policy: RetryPolicy,
    budget: Arc<RetryBudget>,
}

impl IdempotencyMiddleware {
    /// Sets the retry policy.
    #[must_use]
    pub fn policy(mut self, policy: RetryPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets a retry budget, which other clients may share.
    #[must_use]
    pub fn budget(mut self, budget: Arc<RetryBudget>) -> Self {
        self.budget = budget;
        self
    }
}

/// A client with the default [`IdempotencyMiddleware`].
///
/// ```
/// let client = semel_client::client(reqwest::Client::new());
/// ```
#[must_use]
pub fn client(client: reqwest::Client) -> ClientWithMiddleware {
    let builder = reqwest_middleware::ClientBuilder::new(client);
    builder.with(IdempotencyMiddleware::default()).build()
}

#[async_trait]
impl Middleware for IdempotencyMiddleware {
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

impl IdempotencyMiddleware {
    async fn repeat(
        &self,
        key: &IdempotencyKey,
        request: &Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let sent_before = extensions.get::<SentBefore>().is_some();
        let mut retries = RetryState::new(&self.policy, &self.budget, sent_before);
        loop {
            let (mut attempt, sentinel) = BodySentinel::watch(request).ok_or(Error::OneShot)?;
            let limit = retries.begin();
            *attempt.timeout_mut() = Some(limit);
            metrics::counter!("semel_client_attempts_total").increment(1);
            let answer = async { read_body(next.clone().run(attempt, extensions).await?).await };
            let answer = tokio::time::timeout(limit, sentinel.observe(answer)).await;
            let pause = match answer {
                // A safety net: reqwest's own timeout should have ended the attempt.
                Err(_) => retries.next(None, true, false),
                Ok((had_left, Err(error))) => match never_sent(&error) {
                    None => return Err(error),
                    Some(never_sent) => retries.next(None, true, never_sent && !had_left),
                },
                Ok((_, Ok((response, problem)))) => {
                    match decide(response.status(), response.headers(), &problem) {
                        Decision::Final => return Ok(with_info(response, key, retries.attempts)),
                        Decision::Conflict => {
                            metrics::counter!("semel_client_conflicts_total").increment(1);
                            let status = response.status();
                            return Err(Error::Conflict { status }.into());
                        }
                        Decision::InDoubt => {
                            metrics::counter!("semel_client_in_doubt_total").increment(1);
                            return Err(Error::InDoubt.into());
                        }
                        Decision::Again {
                            after,
                            counts,
                            nothing_done,
                        } => retries.next(after, counts, nothing_done),
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

/// Whether the last hop of the request was certainly never sent. `None` if a retry can't help.
fn never_sent(error: &reqwest_middleware::Error) -> Option<bool> {
    match error {
        reqwest_middleware::Error::Reqwest(error) if error.is_builder() || error.is_redirect() => {
            None
        }
        reqwest_middleware::Error::Reqwest(error) => Some(error.is_connect()),
        // An error of another middleware isn't retried.
        reqwest_middleware::Error::Middleware(_) => None,
    }
}

/// Reads the body of a response up to a bound, and parses its problem document. A truncated body is
/// an error.
async fn read_body(response: Response) -> Result<(Response, Problem)> {
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
                let problem = Problem::parse(status, &headers, &body);
                let made = rebuilt(status, version, headers, extensions, url, body.into());
                return Ok((made, problem));
            }
        }
    }
    // Larger than the buffer: the caller reads the rest, and notices a truncated body itself.
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

fn with_info(mut response: Response, key: &IdempotencyKey, attempts: u32) -> Response {
    let replayed = response.headers().get("idempotent-replayed");
    let replayed = replayed.is_some_and(|value| value == "true");
    if replayed {
        metrics::counter!("semel_client_replays_total").increment(1);
    }
    response.extensions_mut().insert(CallInfo {
        key: key.clone(),
        attempts,
        replayed,
    });
    response
}
