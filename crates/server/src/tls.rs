//! TLS on both sides, by rustls.

use std::path::Path;
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::config::{Tls, Upstream};

/// Why TLS can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {message}")]
pub struct TlsError {
    file: String,
    message: String,
}

impl TlsError {
    fn new(file: &str, message: impl std::fmt::Display) -> Self {
        Self {
            file: file.to_owned(),
            message: format!("{message}"),
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(file: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(Path::new(file)).and_then(Iterator::collect);
    let found: Vec<CertificateDer<'static>> = found.map_err(|error| TlsError::new(file, error))?;
    if found.is_empty() {
        return Err(TlsError::new(
            file,
            "there is no certificate in it; it should be PEM",
        ));
    }
    Ok(found)
}

fn roots(file: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::new(file, error))?;
    }
    Ok(roots)
}

/// The TLS of a listener; `None` where it has none.
///
/// # Errors
/// [`TlsError`] names the file and what is wrong with it.
pub(crate) fn server_config(tls: &Tls) -> Result<Option<Arc<ServerConfig>>, TlsError> {
    let (Some(cert_file), Some(key_file)) = (&tls.cert_file, &tls.key_file) else {
        return Ok(None);
    };
    let chain = certificates(cert_file)?;
    let key = PrivateKeyDer::from_pem_file(Path::new(key_file))
        .map_err(|error| TlsError::new(key_file, error))?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(cert_file, error))?;
    let builder = match &tls.client_ca_file {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots(file)?), provider());
            let verifier = if tls.client_optional {
                verifier.allow_unauthenticated()
            } else {
                verifier
            };
            let verifier = verifier
                .build()
                .map_err(|error| TlsError::new(file, error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(chain, key);
    let mut config = config.map_err(|error| TlsError::new(cert_file, error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}

/// The TLS towards the service.
///
/// # Errors
/// [`TlsError`] names the file and what is wrong with it.
pub(crate) fn client_config(upstream: &Upstream) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new("TLS", error))?;
    let needs_roots = upstream.urls.iter().any(|url| url.starts_with("https:"));
    let builder = match &upstream.ca_file {
        Some(file) => builder.with_root_certificates(roots(file)?),
        None if needs_roots => builder
            .with_native_roots()
            .map_err(|error| TlsError::new("this machine's trusted certificates", error))?,
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}

/// TLS towards a server that this machine trusts.
///
/// # Errors
/// [`TlsError`] where the machine's certificates can't be read.
pub(crate) fn with_native_roots() -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new("TLS", error))?;
    let builder = builder
        .with_native_roots()
        .map_err(|error| TlsError::new("this machine's trusted certificates", error))?;
    Ok(builder.with_no_client_auth())
}

/// What a client's certificate calls it: its first DNS name or URI, else its common name after `cn=`. Names of different
/// kinds never meet: what is no DNS name, and no URI with a scheme, is not taken for one.
#[must_use]
pub(crate) fn name_in(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let names = alternatives.map(|names| names.value.general_names.as_slice());
    let first = names
        .unwrap_or_default()
        .iter()
        .find_map(|name| match name {
            GeneralName::DNSName(name) if is_host(name) => Some((*name).to_owned()),
            GeneralName::URI(name) if has_scheme(name) => Some((*name).to_owned()),
            _ => None,
        });
    first.or_else(|| {
        let mut names = certificate.subject().iter_common_name();
        Some(format!("cn={}", names.next()?.as_str().ok()?))
    })
}

fn is_host(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte);
    !name.is_empty() && name.bytes().all(fits)
}

fn has_scheme(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let scheme = name.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| !scheme.is_empty() && scheme.bytes().all(fits))
}
