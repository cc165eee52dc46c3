//! [`Tracing`]: a span for each request, sent to an OpenTelemetry collector over HTTP.
//!
//! A span carries the key's hash, so that retries of a request are found together; never the key, the path or the
//! payload. W3C trace context is taken from the client and handed to the service.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{
    FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HeaderExtractor, HeaderInjector, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use semel_core::event::{Ending, Event, Observer, Step};
use semel_core::{BoxFuture, Spawn};

use super::series::outcome;
use crate::api::hex;
use crate::config;

/// How long a collector may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The longest answer of a collector that is read.
const MOST: usize = 64 * 1024;

/// Begins and ends spans.
#[derive(Clone, Debug)]
pub(crate) struct Tracing {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
}

impl Tracing {
    /// Spans for the collector that the configuration names; on the runtime that this is called in.
    pub(crate) fn start(config: &config::Traces) -> Result<Option<Self>, String> {
        let Some(endpoint) = &config.otlp_endpoint else {
            return Ok(None);
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Sender::new().map_err(|error| error.to_string())?)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_timeout(LIMIT)
            .build()
            .map_err(|error| error.to_string())?;
        let ratio = f64::from(config.sample_percent) / 100.0;
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio)));
        let resource = Resource::builder_empty()
            .with_service_name(config.service_name.clone())
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(sampler)
            .with_resource(resource)
            .build();
        let tracer = provider.tracer("semel");
        Ok(Some(Self { tracer, provider }))
    }

    /// A span for a request, in the client's trace where it has one.
    pub(crate) fn begin<B>(&self, request: &Request<B>) -> Context {
        let parent = TraceContextPropagator::new().extract(&HeaderExtractor(request.headers()));
        let method = request.method().as_str().to_owned();
        let span = self
            .tracer
            .span_builder("request")
            .with_kind(SpanKind::Server)
            .with_attributes([KeyValue::new("http.request.method", method)])
            .start_with_context(&self.tracer, &parent);
        parent.with_span(span)
    }

    /// Answers a request within its span.
    pub(crate) async fn within<R>(
        &self,
        context: Context,
        answer: impl Future<Output = Response<R>>,
    ) -> Response<R> {
        let response = answer.with_context(context.clone()).await;
        let status = response.status();
        let code = i64::from(status.as_u16());
        let span = context.span();
        span.set_attribute(KeyValue::new("http.response.status_code", code));
        if status.is_server_error() {
            span.set_status(Status::error(""));
        }
        span.end();
        response
    }

    /// Sends what is still here; before a process ends.
    pub(crate) async fn flush(&self) {
        let provider = self.provider.clone();
        // It waits for a thread of its own, which in turn needs this runtime.
        let flushed = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(LIMIT));
        if let Ok(Err(error)) = flushed.await {
            tracing::warn!(%error, "not all traces were sent");
        }
    }
}

/// Hands the trace of the request that is being answered, if there is one, to whoever gets these headers.
pub(crate) fn hand_on(headers: &mut HeaderMap) {
    let context = Context::current();
    if context.span().span_context().is_valid() {
        TraceContextPropagator::new().inject_context(&context, &mut HeaderInjector(headers));
    }
}

/// Writes what the engine tells into the span of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spans;

impl Observer for Spans {
    fn observe(&self, event: &Event<'_>) {
        let attributes = match event.step {
            Step::Claimed { fence, attempt, .. } => vec![
                KeyValue::new("semel.fence", i64::try_from(fence.0).unwrap_or(i64::MAX)),
                KeyValue::new("semel.attempt", i64::from(attempt)),
            ],
            Step::Answered { how, .. } => {
                let mut attributes = vec![
                    KeyValue::new("semel.scope", event.namespace.scope().to_owned()),
                    KeyValue::new("semel.key_hash", hex(event.identity.as_bytes())),
                    KeyValue::new("semel.outcome", outcome(how)),
                ];
                if let Ending::Replayed(Some(number)) = how {
                    attributes.push(KeyValue::new("semel.replay_number", i64::from(number)));
                }
                attributes
            }
            _ => return,
        };
        Context::map_current(|context| context.span().set_attributes(attributes));
    }
}

/// Starts tasks that go on in the trace of whoever starts them.
pub(crate) struct Carrying(pub(crate) Arc<dyn Spawn>);

impl Spawn for Carrying {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if Context::map_current(Context::has_active_span) {
            self.0.spawn(Box::pin(task.with_current_context()));
        } else {
            self.0.spawn(task);
        }
    }
}

/// Sends spans, on our own runtime: whoever asks for it does so from a thread without one.
#[derive(Clone, Debug)]
struct Sender {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: tokio::runtime::Handle,
}

impl Sender {
    fn new() -> std::io::Result<Self> {
        let provider = rustls::crypto::ring::default_provider();
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(provider)?
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            runtime: tokio::runtime::Handle::current(),
        })
    }

    async fn send(self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = async {
            let response = self.client.request(request.map(Full::new)).await?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MOST).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(parts, body))
        };
        tokio::time::timeout(LIMIT, answer).await?
    }
}

impl HttpClient for Sender {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let sent = self.runtime.spawn(self.clone().send(request));
        Box::pin(async move { sent.await? })
    }
}
