//! Access to the protocol API: bearer tokens, each of one tenant, or open access on loopback.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use http::header;
use http::request::Parts;
use semel_core::{Clock, Code};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::tenant_limits::{TenantLimits, TenantQuota};
use super::token_file::{Grant, NewEntry, NewToken, TokenFile, TokenFileError};

/// The shortest accepted token.
pub const MIN_TOKEN_BYTES: usize = 16;

/// The longest accepted token.
const MAX_TOKEN_BYTES: usize = 1024;

/// Who may call the protocol API.
#[derive(Clone, Debug)]
pub enum Access {
    /// Everybody, for any tenant. Only on a loopback address: see [`check_exposure`].
    Open,
    /// Callers with one of these tokens.
    Tokens(Tokens),
}

/// Bearer tokens, each of one tenant. Only their digests are kept.
#[derive(Clone, Default)]
pub struct Tokens {
    // The lookup is by digest, so its timing reveals nothing about a token.
    tenants: HashMap<[u8; 32], Arc<str>>,
    file: Option<TokenFile<ApiGrant>>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens({}", self.tenants.len())?;
        if let Some(file) = &self.file {
            write!(f, ", {file:?}")?;
        }
        f.write_str(")")
    }
}

/// What an entry of the file grants: the protocol API and the jobs API, to its tenant.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiGrant {}

impl Grant for ApiGrant {
    const TABLE: &'static str = "token";
    const COMMAND: &'static str = "semel token";
    const PREFIX: &'static str = "semel_api_";
}

/// A token or an address is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The token has too few, too many or unusable characters.
    #[error(
        "a token has {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} visible ASCII characters; generate a \
         random one"
    )]
    Token,
    /// Two tenants have the same token.
    #[error("a token belongs to one tenant, but this one is listed for two")]
    Shared,
    /// The name of the tenant is invalid.
    #[error(transparent)]
    Tenant(#[from] semel_core::NamespaceError),
    /// The file with the token cannot be read.
    #[error("the token file can't be read: {0}")]
    File(#[from] std::io::Error),
    /// Other machines could call without a credential.
    #[error(
        "other machines can reach {address}, and no credential is set; set one, or listen on \
         127.0.0.1"
    )]
    Exposed {
        /// The address of the listener.
        address: SocketAddr,
    },
}

/// Checks the form of a token and hashes it.
pub(crate) fn digest(token: &str) -> Result<blake3::Hash, AccessError> {
    let visible = token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.len() < MIN_TOKEN_BYTES || token.len() > MAX_TOKEN_BYTES || !visible {
        return Err(AccessError::Token);
    }
    Ok(blake3::hash(token.as_bytes()))
}

impl Tokens {
    /// The tokens of a file. A change of the file takes effect with the next request: if the file
    /// is deleted, no token is valid. If a new file cannot be read, the tokens of the old one stay
    /// valid.
    ///
    /// # Errors
    /// [`TokenFileError`] if the file is unusable.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, TokenFileError> {
        Ok(Self {
            file: Some(TokenFile::open(path, clock)?),
            ..Self::default()
        })
    }

    /// Makes a token, and its entry of a file.
    ///
    /// # Errors
    /// [`TokenFileError`] if the file would not accept the entry.
    pub fn create_entry(new: NewEntry<'_>, clock: &dyn Clock) -> Result<NewToken, TokenFileError> {
        TokenFile::create_entry(new, &ApiGrant {}, clock)
    }

    /// Adds a token of `tenant`, which is empty where there are no tenants.
    ///
    /// # Errors
    /// [`AccessError`] if the token is invalid or belongs to another tenant.
    pub fn add(&mut self, tenant: &str, token: &str) -> Result<(), AccessError> {
        semel_core::Namespace::new("", tenant, "any")?;
        let tenant: Arc<str> = tenant.into();
        let digest = *digest(token.trim())?.as_bytes();
        match self.tenants.insert(digest, Arc::clone(&tenant)) {
            Some(other) if other != tenant => Err(AccessError::Shared),
            _ => Ok(()),
        }
    }

    fn tenant(&self, token: &str) -> Option<Arc<str>> {
        let added = self.tenants.get(blake3::hash(token.as_bytes()).as_bytes());
        added.cloned().or_else(|| {
            let account = self.file.as_ref()?.find(token)?;
            Some(account.tenant.unwrap_or_default())
        })
    }
}

/// Refuses open access from other machines.
///
/// # Errors
/// [`AccessError::Exposed`] if `access` is open and `address` is not a loopback address.
pub fn check_exposure(address: SocketAddr, access: &Access) -> Result<(), AccessError> {
    let guarded = matches!(access, Access::Tokens(_));
    require_guard(address, guarded)
}

/// Refuses an address that other machines reach without a credential.
pub(crate) fn require_guard(address: SocketAddr, guarded: bool) -> Result<(), AccessError> {
    if guarded || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(AccessError::Exposed { address })
}

/// The caller of the protocol API or of the jobs API.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The tenant of the caller's token; `None` with open access.
    tenant: Option<Arc<str>>,
    limits: Option<TenantLimits>,
}

impl Caller {
    /// The tenant of the token. A request that names another tenant is refused, and one that
    /// exceeds a limit of its tenant.
    pub(crate) fn resolve_tenant(&self, named: Option<&str>) -> Result<String, Failure> {
        let tenant = self.choose_tenant(named)?;
        self.admit(&tenant)?;
        Ok(tenant)
    }

    fn choose_tenant(&self, named: Option<&str>) -> Result<String, Failure> {
        match (&self.tenant, named) {
            (Some(own), Some(named)) if **own != *named => Err(Failure::new(
                Code::Forbidden,
                "the token belongs to another tenant than the request names; leave the tenant out",
            )),
            (Some(own), _) => Ok(own.to_string()),
            (None, named) => Ok(named.unwrap_or_default().to_owned()),
        }
    }

    /// Counts the request as one of the tenant.
    fn admit(&self, tenant: &str) -> Result<(), Failure> {
        match &self.limits {
            Some(TenantLimits(limits)) => limits.admit(tenant),
            None => Ok(()),
        }
    }

    /// The quota of the tenant, if it has one.
    pub(crate) fn quota(&self, tenant: &str) -> Option<Arc<dyn TenantQuota>> {
        self.limits.as_ref()?.0.quota(tenant)
    }

    /// Whether the caller may see records of `tenant`.
    pub(crate) fn may_see(&self, tenant: &str) -> bool {
        self.tenant.as_ref().is_none_or(|own| **own == *tenant)
    }
}

impl<S> FromRequestParts<S> for Caller
where
    S: Send + Sync,
    Access: FromRef<S>,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let limits = parts.extensions.get::<TenantLimits>().cloned();
        match Access::from_ref(state) {
            Access::Open => {
                require_loopback_host(parts)?;
                let tenant = None;
                Ok(Self { tenant, limits })
            }
            Access::Tokens(tokens) => {
                let tenant = bearer(parts).and_then(|token| tokens.tenant(token));
                let tenant = tenant.ok_or_else(Failure::unauthorized)?;
                let caller = Self {
                    tenant: Some(Arc::clone(&tenant)),
                    limits,
                };
                caller.admit(&tenant)?;
                Ok(caller)
            }
        }
    }
}

/// The bearer token of a request that has exactly one `Authorization` header.
pub(crate) fn bearer(parts: &Parts) -> Option<&str> {
    let mut lines = parts.headers.get_all(header::AUTHORIZATION).iter();
    let (line, None) = (lines.next()?, lines.next()) else {
        return None;
    };
    let (scheme, token) = line.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && token.len() <= MAX_TOKEN_BYTES).then_some(token)
}

/// Accepts requests for loopback host names only. Otherwise a web page could point its own name
/// here and call through a visitor's browser (DNS rebinding).
pub(crate) fn require_loopback_host(parts: &Parts) -> Result<(), Failure> {
    let header = parts.headers.get(header::HOST);
    let host = match (parts.uri.host(), header) {
        (Some(host), _) => host,
        (None, Some(header)) => header.to_str().map_err(|_| not_loopback())?,
        (None, None) => return Ok(()),
    };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback());
    is_loopback.then_some(()).ok_or_else(not_loopback)
}

fn not_loopback() -> Failure {
    Failure::new(
        Code::Forbidden,
        "this listener has no credential, so it answers only requests for a loopback host name",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(host: &str) -> Parts {
        let request = http::Request::builder()
            .uri("/v1/claims")
            .header("host", host);
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn open_access_requires_a_loopback_host_name() {
        for host in [
            "localhost:80",
            "127.0.0.1",
            "[::1]:8080",
            "127.8.8.8:1",
            "LOCALHOST",
        ] {
            assert!(require_loopback_host(&parts(host)).is_ok(), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1:80",
            "[2001::1]",
            "",
        ] {
            assert!(require_loopback_host(&parts(host)).is_err(), "{host}");
        }
    }

    #[test]
    fn public_address_needs_a_credential() {
        let mut tokens = Tokens::default();
        tokens.add("acme", "0123456789abcdef").unwrap();
        for public in ["0.0.0.0:1", "10.1.2.3:1", "[::]:1"] {
            let address = public.parse().unwrap();
            assert!(check_exposure(address, &Access::Open).is_err(), "{public}");
            assert!(check_exposure(address, &Access::Tokens(tokens.clone())).is_ok());
        }
        for loopback in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(check_exposure(loopback.parse().unwrap(), &Access::Open).is_ok());
        }
    }

    #[test]
    fn token_is_long_enough_and_belongs_to_one_tenant() {
        let mut tokens = Tokens::default();
        assert!(tokens.add("acme", "short").is_err());
        assert!(tokens.add("acme", "with a space in it").is_err());
        tokens.add("acme", "0123456789abcdef\n").unwrap();
        tokens.add("acme", "0123456789abcdef").unwrap();
        assert!(tokens.add("other", "0123456789abcdef").is_err());
        assert_eq!(format!("{tokens:?}"), "Tokens(1)");
    }
}
