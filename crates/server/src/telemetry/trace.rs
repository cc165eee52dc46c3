//! OpenTelemetry traces: a span for each request, sent to a collector over OTLP/HTTP.
//!
//! A span has the hash of the key, so that retries of a request can be found together, but never
//! the key, the path or the payload. The W3C trace context of the client is propagated to the
//! service.

#![expect(clippy::disallowed_methods, reason = "a limit of real sockets")]

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

use crate::config;
use crate::web::hex;
use semel_telemetry::labels::outcome;

/// How long a collector may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The maximum size of a collector's response.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Starts and ends spans.
#[derive(Clone, Debug)]
pub(crate) struct Tracing {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
}

impl Tracing {
    /// Starts the export to the configured collector, on the current runtime.
    pub(crate) fn start(config: &config::Traces) -> Result<Option<Self>, String> {
        let Some(endpoint) = &config.otlp_endpoint else {
            return Ok(None);
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(ExportClient::new().map_err(|error| error.to_string())?)
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

    /// Starts a span for a request, in the client's trace if it has one.
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

    /// Handles a request within its span.
    pub(crate) async fn within<R>(
        &self,
        context: Context,
        handler: impl Future<Output = Response<R>>,
    ) -> Response<R> {
        let response = handler.with_context(context.clone()).await;
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

    /// Sends the remaining spans before the process ends.
    pub(crate) async fn flush(&self) {
        let provider = self.provider.clone();
        // The shutdown blocks on a thread that needs this runtime.
        let flushed = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(LIMIT));
        if let Ok(Err(error)) = flushed.await {
            tracing::warn!(%error, "some traces were not sent");
        }
    }
}

/// Adds the trace context of the current request to the headers of a forwarded one.
pub(crate) fn inject_trace_context(headers: &mut HeaderMap) {
    let context = Context::current();
    if context.span().span_context().is_valid() {
        TraceContextPropagator::new().inject_context(&context, &mut HeaderInjector(headers));
    }
}

/// Adds the engine's events to the span of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanObserver;

impl Observer for SpanObserver {
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
                if let Ending::Replayed {
                    number: Some(number),
                    ..
                } = how
                {
                    attributes.push(KeyValue::new("semel.replay_number", i64::from(number)));
                }
                attributes
            }
            _ => return,
        };
        Context::map_current(|context| context.span().set_attributes(attributes));
    }
}

/// Spawns tasks that keep the trace context of their caller.
pub(crate) struct TracedSpawn(pub(crate) Arc<dyn Spawn>);

impl Spawn for TracedSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if Context::map_current(Context::has_active_span) {
            self.0.spawn(Box::pin(task.with_current_context()));
        } else {
            self.0.spawn(task);
        }
    }
}

/// The HTTP client of the exporter. It uses our runtime, because the exporter's thread has none.
#[derive(Clone, Debug)]
struct ExportClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: tokio::runtime::Handle,
}

impl ExportClient {
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
        let response = async {
            let response = self.client.request(request.map(Full::new)).await?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MAX_RESPONSE_BYTES)
                .collect()
                .await?
                .to_bytes();
            Ok::<_, HttpError>(Response::from_parts(parts, body))
        };
        tokio::time::timeout(LIMIT, response).await?
    }
}

impl HttpClient for ExportClient {
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
