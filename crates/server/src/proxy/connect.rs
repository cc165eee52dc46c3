//! Connections to the service: TCP and TLS, with a connect timeout.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use semel::http::{Body, BoxError};
use tower_service::Service;

use crate::config::{Protocol, Upstream};

pub(crate) type UpstreamClient = Client<ConnectTimeout<HttpsConnector<HttpConnector>>, Body>;

/// Builds a client with its own connection pool.
pub(crate) fn build_client(
    upstream: &Upstream,
    protocol: Protocol,
    tls: &ClientConfig,
) -> UpstreamClient {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let builder = HttpsConnectorBuilder::new()
        .with_tls_config(tls.clone())
        .https_or_http();
    let connector = match protocol {
        Protocol::Auto => builder.enable_all_versions().wrap_connector(http),
        Protocol::Http1 => builder.enable_http1().wrap_connector(http),
        Protocol::H2c => builder.enable_http2().wrap_connector(http),
    };
    let connector = ConnectTimeout {
        inner: connector,
        limit: upstream.connect_timeout.0,
    };
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(upstream.idle_timeout.0)
        .pool_max_idle_per_host(upstream.max_idle)
        .http2_only(protocol == Protocol::H2c)
        .http2_keep_alive_interval(Duration::from_secs(20))
        .build(connector)
}

/// A connector with a timeout, which includes the TLS handshake.
#[derive(Clone)]
pub(crate) struct ConnectTimeout<C> {
    inner: C,
    limit: Duration,
}

impl<C> Service<Uri> for ConnectTimeout<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.inner.call(uri);
        let limit = self.limit;
        Box::pin(async move {
            match tokio::time::timeout(limit, connecting).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(elapsed) => Err(elapsed.into()),
            }
        })
    }
}
