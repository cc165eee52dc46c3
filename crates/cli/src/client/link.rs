//! [`Link`]: sends a request to the admin API, over HTTP or in this process.

use std::future::Future;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use semel_server::audit::Trail;
use tower::ServiceExt as _;

use crate::exit::{self, Exit};

/// The connect timeout.
const CONNECT: Duration = Duration::from_secs(5);
/// The response timeout. A page of a listing reads many records.
const PATIENCE: Duration = Duration::from_secs(60);

/// An HTTP/1.1 client with and without TLS.
pub(crate) type HttpClient = Client<HttpsConnector<HttpConnector>, Body>;

/// Creates a client that trusts the certificates of a file, or those of this machine.
pub(crate) fn http_client(ca_file: Option<std::path::PathBuf>) -> Result<HttpClient, String> {
    let identity = Identity {
        ca_file,
        ..Identity::default()
    };
    match tls(&identity) {
        Ok(tls) => Ok(http(tls)),
        Err(Exit::Failed { message, .. }) => Err(message),
        Err(Exit::Ok) => Err(String::new()),
    }
}

fn http(tls: ClientConfig) -> HttpClient {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT));
    connector.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    Client::builder(TokioExecutor::new()).build(connector)
}

pub(super) enum Link {
    Remote {
        client: Box<HttpClient>,
        /// Scheme and authority.
        base: String,
        host: String,
    },
    Local {
        router: Router,
        /// The audit trail, which must be flushed before the command ends.
        trail: Trail,
        kept: bool,
    },
}

/// The TLS files for an admin listener.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity {
    pub(super) ca_file: Option<std::path::PathBuf>,
    pub(super) cert_file: Option<std::path::PathBuf>,
    pub(super) key_file: Option<std::path::PathBuf>,
}

impl Link {
    pub(super) fn remote(url: &str, identity: &Identity) -> Result<Self, Exit> {
        let wrong = || {
            let message = format!(
                "{url} is not the URL of an admin listener\n    fix: --admin http://127.0.0.1:9090"
            );
            Exit::failed(exit::CONFIG, message)
        };
        let uri: http::Uri = url.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong());
        };
        Ok(Self::Remote {
            client: Box::new(http(tls(identity)?)),
            host: authority.to_string(),
            base: uri.to_string().trim_end_matches('/').to_owned(),
        })
    }

    pub(super) fn uri(&self, path: &str) -> String {
        match self {
            Self::Remote { base, .. } => format!("{base}{path}"),
            Self::Local { .. } => path.to_owned(),
        }
    }

    pub(super) fn host(&self) -> &str {
        match self {
            Self::Remote { host, .. } => host,
            Self::Local { .. } => "localhost",
        }
    }

    pub(super) async fn send(
        &self,
        request: Request<Body>,
        name: &str,
    ) -> Result<Response<Body>, Exit> {
        match self {
            Self::Remote { client, .. } => match client.request(request).await {
                Ok(response) => Ok(response.map(Body::new)),
                Err(error) => {
                    let message = format!(
                        "{name} can't be reached: {}\n    fix: start `semel serve` with \
                         admin.address set, give its address with --admin URL, or work on the \
                         store itself with --store URL",
                        cause(&error)
                    );
                    Err(Exit::failed(exit::UNREACHABLE, message))
                }
            },
            Self::Local { router, .. } => match router.clone().oneshot(request).await {
                Ok(response) => Ok(response),
                Err(never) => match never {},
            },
        }
    }

    /// Applies the response timeout.
    pub(super) async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, Exit>>,
    ) -> Result<T, Exit> {
        let clock = semel::tokio_env().clock;
        match clock.timeout(PATIENCE, work).await {
            Ok(done) => done,
            Err(_) => {
                let message = format!("no answer within {} s", PATIENCE.as_secs());
                Err(Exit::failed(exit::UNREACHABLE, message))
            }
        }
    }
}

/// The root cause: "connection refused" says more than "client error".
pub(crate) fn cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

fn tls(identity: &Identity) -> Result<ClientConfig, Exit> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Exit::failed(exit::UNEXPECTED, error.to_string()))?;
    let builder = match &identity.ca_file {
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                let added = roots.add(certificate);
                added.map_err(|error| broken(file, &error))?;
            }
            builder.with_root_certificates(roots)
        }
        None => builder
            .with_native_roots()
            .map_err(|error| Exit::failed(exit::CONFIG, error.to_string()))?,
    };
    let (Some(cert), Some(key)) = (&identity.cert_file, &identity.key_file) else {
        return Ok(builder.with_no_client_auth());
    };
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| broken(key, &error))?;
    builder
        .with_client_auth_cert(certificates(cert)?, private)
        .map_err(|error| broken(cert, &error))
}

fn certificates(file: &std::path::Path) -> Result<Vec<CertificateDer<'static>>, Exit> {
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    found.map_err(|error| broken(file, &error))
}

fn broken(file: &std::path::Path, error: &dyn std::error::Error) -> Exit {
    Exit::failed(exit::CONFIG, format!("{}: {error}", file.display()))
}
