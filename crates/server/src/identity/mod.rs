//! Identification of tenants and principals: headers, JSON web tokens and certificates.

mod crypto;
mod fetch;
mod keys;
mod tokens;

use std::sync::Arc;

use http::request::Parts;
use semel::core::Env;
use serde_json::Value;

use crate::config::{Config, IdentitySettings, IdentitySource};
use crate::tls::TlsError;
use crate::web::Peer;
use tokens::TokenVerifier;
pub(crate) use tokens::{RequestToken, TokenProblem};

/// A function that finds a tenant or a principal in a request's head.
pub(crate) type IdentityFinder = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// A key for the verification of tokens is unusable.
#[derive(Debug, thiserror::Error)]
#[error("jwt.key_file: {0}")]
pub struct KeyFileError(String);

/// A principal that no namespace accepts. A request with an invalid token gets it, so that it is
/// refused and not treated like a request without a token.
const UNUSABLE: &str = "\0";

/// The finders of tenants and principals.
pub(crate) struct IdentityFinders {
    pub(crate) tenant: Option<IdentityFinder>,
    pub(crate) principal: Option<IdentityFinder>,
    tokens: Option<Arc<TokenVerifier>>,
}

impl IdentityFinders {
    pub(crate) fn new(config: &Config) -> Result<Self, KeyFileError> {
        let uses_tokens = [&config.tenants, &config.principals]
            .map(|settings| settings.from == IdentitySource::Jwt);
        let tokens = match uses_tokens.contains(&true) {
            true => Some(Arc::new(TokenVerifier::new(&config.jwt)?)),
            false => None,
        };
        Ok(Self {
            tenant: build_finder(&config.tenants, tokens.as_ref(), false),
            principal: build_finder(&config.principals, tokens.as_ref(), true),
            tokens,
        })
    }

    /// Starts fetching the JWKS from its URL, as long as the finders are in use.
    pub(crate) fn fetch_keys(&self, env: &Env) -> Result<(), TlsError> {
        match &self.tokens {
            Some(tokens) => fetch::start(tokens, env),
            None => Ok(()),
        }
    }
}

/// A function that finds tenant and principal of a request's head. For `fuzz/`.
///
/// # Errors
/// If a key of the tokens is unusable.
#[doc(hidden)]
pub fn identity_reader(
    config: &Config,
) -> Result<impl Fn(&Parts) -> [Option<String>; 2] + Send + Sync + use<>, KeyFileError> {
    let IdentityFinders {
        tenant, principal, ..
    } = IdentityFinders::new(config)?;
    Ok(move |parts: &Parts| {
        [&tenant, &principal].map(|find| find.as_ref().and_then(|find| find(parts)))
    })
}

fn build_finder(
    settings: &IdentitySettings,
    tokens: Option<&Arc<TokenVerifier>>,
    is_principal: bool,
) -> Option<IdentityFinder> {
    match settings.from {
        IdentitySource::None => None,
        IdentitySource::Header => {
            let name = settings.header.clone()?;
            Some(Arc::new(move |parts: &Parts| {
                let mut lines = parts.headers.get_all(&name).iter();
                // Two values are ambiguous, so neither counts.
                match (lines.next(), lines.next()) {
                    (Some(one), None) => one.to_str().ok().map(str::to_owned),
                    _ => None,
                }
            }))
        }
        IdentitySource::Host => Some(Arc::new(host_name)),
        IdentitySource::Certificate => Some(Arc::new(|parts: &Parts| {
            let peer = parts.extensions.get::<Peer>()?;
            peer.certificate_name.as_deref().map(str::to_owned)
        })),
        IdentitySource::Jwt => {
            let (tokens, claim) = (Arc::clone(tokens?), settings.claim.clone());
            Some(Arc::new(move |parts: &Parts| match tokens.read(parts) {
                Ok(claims) => claim_as_name(claims.get(&claim)?),
                Err(TokenProblem::Absent) => None,
                Err(_) => is_principal.then(|| UNUSABLE.to_owned()),
            }))
        }
    }
}

/// The host that a request names, in one form: lower case, without port and trailing dot.
fn host_name(parts: &Parts) -> Option<String> {
    let mut lines = parts.headers.get_all(http::header::HOST).iter();
    let header = match (lines.next(), lines.next()) {
        (Some(one), None) => one.to_str().ok(),
        _ => None,
    };
    let authority = parts.uri.authority().cloned();
    let authority = authority.or_else(|| header?.parse().ok())?;
    let host = authority.host().trim_end_matches('.');
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

/// A claim as a name. Numbers get the prefix `#` to differ from texts with the same digits, and
/// texts that begin with `#` get another one.
fn claim_as_name(claim: &Value) -> Option<String> {
    match claim {
        Value::String(text) if text.starts_with('#') => Some(format!("#{text}")),
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(format!("#{number}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(uri: &str, headers: &[&str]) -> Option<String> {
        let mut request = http::Request::builder().uri(uri);
        for value in headers {
            request = request.header("host", *value);
        }
        host_name(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn host_names_have_one_form() {
        let name = Some("a.shop.example".to_owned());
        assert_eq!(host("/", &["a.shop.example"]), name);
        assert_eq!(host("/", &["A.Shop.Example.:8443"]), name);
        assert_eq!(host("http://a.shop.example:80/x", &["other.example"]), name);
        assert_eq!(host("/", &["[::1]:80"]), Some("[::1]".to_owned()));
        assert_eq!(host("/", &[]), None);
        assert_eq!(host("/", &["a.example", "b.example"]), None);
        assert_eq!(host("/", &["user@a.example"]), Some("a.example".to_owned()));
    }
}
