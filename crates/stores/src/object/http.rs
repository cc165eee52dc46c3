//! The HTTP client under the client library. Ours, so that it sees every response's `Date`, never
//! retries on its own, and can make a deletion conditional.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use http::header::{DATE, HeaderValue, IF_MATCH};
use http_body_util::BodyExt as _;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use semel_core::Timestamp;

use super::time::ServerTime;

/// How long to try to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long an idle connection is kept: shorter than servers do, so that few are found closed.
const IDLE: Duration = Duration::from_secs(10);

tokio::task_local! {
    /// The request that the current task makes; the library has no other way to say more about a
    /// deletion.
    pub(super) static STAMP: Arc<Stamp>;
}

/// One request: the header to add to it, and its outcome.
#[derive(Debug)]
pub(super) struct Stamp {
    /// The end of its path. Requests for credentials pass here too, and their servers have other
    /// clocks. Empty for a listing, whose `Date` isn't used.
    name: String,
    if_match: Option<String>,
    status: AtomicU16,
    never_sent: AtomicBool,
}

impl Stamp {
    pub(super) fn new(name: &str, if_match: Option<String>) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            if_match,
            status: AtomicU16::new(0),
            never_sent: AtomicBool::new(false),
        })
    }

    /// The status of the response, if it came completely.
    pub(super) fn status(&self) -> Option<u16> {
        Some(self.status.load(Ordering::SeqCst)).filter(|status| *status != 0)
    }

    /// Notes that the head of a response came.
    pub(super) fn answered(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// Notes that the rest of the response didn't come: the status alone doesn't count as an
    /// answer.
    fn broke_off(&self) {
        self.status.store(0, Ordering::SeqCst);
    }

    /// Whether the server certainly never received it.
    pub(super) fn was_never_sent(&self) -> bool {
        self.never_sent.load(Ordering::SeqCst)
    }
}

/// Makes the client for a builder of the library.
#[derive(Clone)]
pub(super) struct Connector {
    client: Client<HttpsConnector<Tcp>, HttpRequestBody>,
    time: Arc<ServerTime>,
}

impl Connector {
    /// Trusts whom `tls` says, or the machine's own list.
    pub(super) fn new(
        tls: Option<rustls::ClientConfig>,
        time: Arc<ServerTime>,
    ) -> std::io::Result<Self> {
        let mut tcp = Tcp::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_LIMIT));
        let builder = HttpsConnectorBuilder::new();
        let builder = match tls {
            Some(tls) => builder.with_tls_config(tls),
            None => {
                builder.with_provider_and_native_roots(rustls::crypto::ring::default_provider())?
            }
        };
        let https = builder.https_or_http().enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(https);
        Ok(Self { client, time })
    }

    async fn send(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let stamp = STAMP.try_with(Arc::clone).ok();
        let stamp = stamp.filter(|stamp| request.uri().path().ends_with(&stamp.name));
        if let Some(tag) = stamp.as_ref().and_then(|stamp| stamp.if_match.as_ref())
            && let Ok(tag) = HeaderValue::from_str(tag)
        {
            request.headers_mut().insert(IF_MATCH, tag);
        }
        let clock = self.time.clock();
        let sent = clock.now();
        let response = self.client.request(request).await.map_err(|error| {
            if let Some(stamp) = &stamp
                && error.is_connect()
            {
                stamp.never_sent.store(true, Ordering::SeqCst);
            }
            let kind = if error.is_connect() {
                HttpErrorKind::Connect
            } else {
                HttpErrorKind::Interrupted
            };
            HttpError::new(kind, error)
        })?;
        if let Some(stamp) = &stamp {
            stamp.answered(response.status().as_u16());
            if !stamp.name.is_empty()
                && let Some(date) = response.headers().get(DATE).and_then(parse)
            {
                self.time.observe(date, sent, clock.now());
            }
        }
        let cut = move |error| {
            if let Some(stamp) = &stamp {
                stamp.broke_off();
            }
            HttpError::new(HttpErrorKind::Interrupted, error)
        };
        Ok(response.map(|body| HttpResponseBody::new(body.map_err(cut))))
    }
}

/// `Date`, to the second.
fn parse(value: &HeaderValue) -> Option<Timestamp> {
    let time = httpdate::parse_http_date(value.to_str().ok()?).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_micros(
        u64::try_from(since.as_micros()).ok()?,
    ))
}

impl HttpService for Connector {
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(self.send(request))
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}
