//! [`OutboxCall`]: one durable call of an outbox.

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientWithMiddleware, RequestBuilder};

use super::files::{Entry, StoredRequest, damaged};
use super::{Outbox, OutboxError, blocking};
use crate::middleware::{IdempotencyKey, SentBefore};

/// One call: its name, its key, and its request once that is stored.
pub struct OutboxCall {
    outbox: Outbox,
    /// Name and key, without the request.
    entry: Entry,
    /// The request, once it is on disk: the same for all attempts.
    request: Arc<OnceLock<StoredRequest>>,
}

/// Shows neither key nor payload.
impl std::fmt::Debug for OutboxCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Call(sent: {})", self.was_sent())
    }
}

impl OutboxCall {
    pub(super) fn new(outbox: &Outbox, mut entry: Entry) -> Self {
        let request = match entry.request.take() {
            Some(kept) => OnceLock::from(kept),
            None => OnceLock::new(),
        };
        Self {
            outbox: outbox.clone(),
            entry,
            request: Arc::new(request),
        }
    }

    /// The name that the caller gave it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// Whether its request was stored, so that it may have been sent.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        self.request.get().is_some()
    }

    /// Its key: the same for all attempts, in this process and in others.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn key(&self) -> Result<IdempotencyKey, OutboxError> {
        IdempotencyKey::new(&self.entry.key).map_err(|_| self.damaged())
    }

    fn damaged(&self) -> OutboxError {
        damaged(&self.outbox.path(&self.entry.name))
    }

    /// Stores the request, and sends it until there is an answer. Of its headers, only
    /// `Content-Type` is stored; all are sent.
    ///
    /// # Errors
    /// [`OutboxError::Changed`] if the call was begun with another request, or its name belongs to
    /// another call by now; otherwise why there is no answer.
    pub async fn send(
        &self,
        client: &ClientWithMiddleware,
        request: RequestBuilder,
    ) -> Result<Response, OutboxError> {
        let request = request.build().map_err(reqwest_middleware::Error::from)?;
        let kept = kept(&request)?;
        let sent_before = match self.request.get() {
            Some(before) if *before != kept => return Err(OutboxError::Changed),
            Some(_) => true,
            None => self.attach(kept).await?,
        };
        self.execute(client, request, sent_before).await
    }

    /// Stores the request, on disk and here. Returns whether it may have been sent before.
    async fn attach(&self, kept: StoredRequest) -> Result<bool, OutboxError> {
        let (outbox, request) = (self.outbox.clone(), Arc::clone(&self.request));
        let mut entry = self.entry.clone();
        entry.request = Some(kept.clone());
        blocking(move || {
            let sent_before = outbox.attach(&entry)?;
            // Set before anything else can fail: from now on the file says that the request may
            // have been sent.
            if *request.get_or_init(|| kept.clone()) != kept {
                return Err(OutboxError::Changed);
            }
            outbox.sync()?;
            Ok(sent_before)
        })
        .await
    }

    /// Sends the stored request again.
    ///
    /// # Errors
    /// [`OutboxError::NeverSent`] if none was stored; [`OutboxError::Relative`] if it was stored
    /// without a host and the outbox has no base; otherwise why there is no answer.
    pub async fn resend(&self, client: &ClientWithMiddleware) -> Result<Response, OutboxError> {
        let kept = self.request.get().ok_or(OutboxError::NeverSent)?;
        let method = kept.method.parse().map_err(|_| self.damaged())?;
        let body = STANDARD.decode(&kept.body_base64);
        let body = body.map_err(|_| self.damaged())?;
        let url = self.outbox.url_of(kept)?;
        let mut request = client.request(method, url).body(Bytes::from(body));
        if let Some(content_type) = &kept.content_type {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        let request = request.build().map_err(reqwest_middleware::Error::from)?;
        self.execute(client, request, true).await
    }

    async fn execute(
        &self,
        client: &ClientWithMiddleware,
        request: Request,
        sent_before: bool,
    ) -> Result<Response, OutboxError> {
        let mut extensions = http::Extensions::new();
        extensions.insert(self.key()?);
        if sent_before {
            extensions.insert(SentBefore);
        }
        let sent = client
            .execute_with_extensions(request, &mut extensions)
            .await;
        Ok(sent?)
    }

    /// Removes the call, after its answer is in safe hands. From then on, the name stands for a new
    /// call.
    ///
    /// A change by another process since this call was read stays: a request that it stored, or
    /// another call of the name.
    ///
    /// # Errors
    /// If the folder can't be written, or the call of this name can't be read.
    pub async fn forget(self) -> Result<(), OutboxError> {
        let mut entry = self.entry;
        entry.request = self.request.get().cloned();
        let outbox = self.outbox;
        blocking(move || outbox.remove(&entry)).await
    }
}

fn kept(request: &Request) -> Result<StoredRequest, OutboxError> {
    let content_type = request.headers().get(http::header::CONTENT_TYPE);
    let body = match request.body() {
        None => &[][..],
        Some(body) => body.as_bytes().ok_or(OutboxError::NotKeepable)?,
    };
    Ok(StoredRequest {
        method: request.method().to_string(),
        url: request.url().to_string(),
        content_type: content_type.and_then(|value| Some(value.to_str().ok()?.to_owned())),
        body_base64: STANDARD.encode(body),
    })
}

impl Outbox {
    /// The URL of a stored request, joined with the base if it is a path alone. The path of the
    /// base stays, as in the SDKs of other languages.
    fn url_of(&self, kept: &StoredRequest) -> Result<String, OutboxError> {
        if is_whole(&kept.url) {
            return Ok(kept.url.clone());
        }
        let mut base = self.base.as_deref().ok_or(OutboxError::Relative)?.clone();
        base.set_query(None);
        base.set_fragment(None);
        let (base, path) = (base.as_str(), &kept.url);
        let (base, path) = (base.trim_end_matches('/'), path.trim_start_matches('/'));
        Ok(format!("{base}/{path}"))
    }
}

/// Whether a URL begins with a scheme.
fn is_whole(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        !scheme.is_empty() && scheme.bytes().all(fits)
    })
}
