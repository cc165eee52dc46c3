//! TLS of the listeners and towards the service, by rustls.

use std::path::Path;
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::config::{Config, Tls};

/// The TLS settings are unusable.
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

fn read_certificates(file: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(Path::new(file)).and_then(Iterator::collect);
    let found: Vec<CertificateDer<'static>> = found.map_err(|error| TlsError::new(file, error))?;
    if found.is_empty() {
        return Err(TlsError::new(
            file,
            "the file has no certificate in PEM format",
        ));
    }
    Ok(found)
}

fn read_roots(file: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(file)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::new(file, error))?;
    }
    Ok(roots)
}

/// The TLS configuration of a listener; `None` without TLS.
///
/// # Errors
/// [`TlsError`] names the file and the error.
pub(crate) fn server_config(tls: &Tls) -> Result<Option<Arc<ServerConfig>>, TlsError> {
    let (Some(cert_file), Some(key_file)) = (&tls.cert_file, &tls.key_file) else {
        return Ok(None);
    };
    let chain = read_certificates(cert_file)?;
    let key = PrivateKeyDer::from_pem_file(Path::new(key_file))
        .map_err(|error| TlsError::new(key_file, error))?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(cert_file, error))?;
    let builder = match &tls.client_ca_file {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(
                Arc::new(read_roots(file)?),
                provider(),
            );
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

/// The TLS configuration towards the service and the services that authorize replays.
///
/// # Errors
/// [`TlsError`] names the file and the error.
pub(crate) fn client_config(config: &Config) -> Result<ClientConfig, TlsError> {
    let upstream = &config.upstream;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new("TLS", error))?;
    let routes = config.routes.iter().map(|entry| &entry.settings);
    let authorizers = routes
        .chain([&config.defaults])
        .filter_map(|route| route.replay_auth_url.as_ref());
    let mut urls = upstream.urls.iter().chain(authorizers);
    let needs_roots = urls.any(|url| url.starts_with("https:"));
    let builder = match &upstream.ca_file {
        Some(file) => builder.with_root_certificates(read_roots(file)?),
        None if needs_roots => builder
            .with_native_roots()
            .map_err(|error| TlsError::new("this machine's trusted certificates", error))?,
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}

/// The TLS configuration towards servers that this machine trusts.
///
/// # Errors
/// [`TlsError`] if the machine's certificates cannot be read.
pub(crate) fn with_native_roots() -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new("TLS", error))?;
    let builder = builder
        .with_native_roots()
        .map_err(|error| TlsError::new("this machine's trusted certificates", error))?;
    Ok(builder.with_no_client_auth())
}

/// The name in a client certificate: its first DNS name or URI, otherwise `cn=` and its common
/// name. Names of different kinds cannot collide, because malformed DNS names and URIs are ignored.
#[must_use]
pub(crate) fn read_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let names = alternatives.map(|names| names.value.general_names.as_slice());
    let first = names
        .unwrap_or_default()
        .iter()
        .find_map(|name| match name {
            GeneralName::DNSName(name) if is_dns_name(name) => Some((*name).to_owned()),
            GeneralName::URI(name) if has_scheme(name) => Some((*name).to_owned()),
            _ => None,
        });
    first.or_else(|| {
        let mut names = certificate.subject().iter_common_name();
        Some(format!("cn={}", names.next()?.as_str().ok()?))
    })
}

fn is_dns_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte);
    !name.is_empty() && name.bytes().all(fits)
}

fn has_scheme(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let scheme = name.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| !scheme.is_empty() && scheme.bytes().all(fits))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn name_of(alternatives: Vec<SanType>, common: &str) -> Option<String> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = alternatives;
        params.distinguished_name.push(DnType::CommonName, common);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        read_name(certificate.der())
    }

    #[test]
    fn names_of_different_kinds_never_collide() {
        let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
        let uri = |name: &str| SanType::URI(name.try_into().unwrap());
        let address = SanType::IpAddress([10, 0, 0, 7].into());
        for (alternatives, common, name) in [
            (vec![dns("acme.test")], "x", "acme.test"),
            (vec![dns("7")], "x", "7"),
            (vec![dns("10.0.0.7")], "x", "10.0.0.7"),
            (
                vec![uri("spiffe://shop/ns/pay")],
                "x",
                "spiffe://shop/ns/pay",
            ),
            (vec![uri("urn:acme"), dns("acme.test")], "x", "urn:acme"),
            // An address is no name, and what looks like another kind's is ignored.
            (vec![address.clone()], "x", "cn=x"),
            (vec![address, dns("acme.test")], "x", "acme.test"),
            (vec![uri("acme.test")], "x", "cn=x"),
            (vec![dns("urn:acme")], "x", "cn=x"),
            (vec![dns("cn=x")], "y", "cn=y"),
            (vec![], "acme.test", "cn=acme.test"),
            (vec![], "7", "cn=7"),
        ] {
            let found = name_of(alternatives.clone(), common);
            assert_eq!(found.as_deref(), Some(name), "{alternatives:?}");
        }
    }
}
