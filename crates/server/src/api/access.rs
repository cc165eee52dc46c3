//! Who may call: bearer tokens, each of one tenant; or everybody, on loopback.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use http::header;
use http::request::Parts;

use super::wire::Failure;

/// The shortest token taken.
pub const MIN_TOKEN_BYTES: usize = 16;

/// The longest token looked at.
const MAX_TOKEN_BYTES: usize = 1024;

/// Who may call the protocol API.
#[derive(Clone, Debug)]
pub enum Access {
    /// Everybody, naming any tenant. Only for a loopback address: see [`check_exposure`].
    Open,
    /// Whoever has one of these tokens.
    Tokens(Tokens),
}

/// Bearer tokens, each of one tenant. Kept as digests: a token can't be read back.
#[derive(Clone, Default)]
pub struct Tokens {
    // Found by digest: how long a search takes tells of the digest, which tells nothing of the token.
    tenants: HashMap<[u8; 32], Arc<str>>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens({})", self.tenants.len())
    }
}

/// Why a token or an address was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The token can't be used.
    #[error(
        "a token has {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} visible ASCII characters; make one with a generator"
    )]
    Token,
    /// Two tenants have the same token.
    #[error("a token belongs to one tenant; the same one is given for two")]
    Shared,
    /// The tenant can't be used.
    #[error(transparent)]
    Tenant(#[from] semel_core::NamespaceError),
    /// A file with a token can't be read.
    #[error("the token's file can't be read: {0}")]
    File(#[from] std::io::Error),
    /// Anybody could call.
    #[error(
        "{address} can be reached from other machines, and no credential is set; set one, or listen on 127.0.0.1"
    )]
    Exposed {
        /// The address.
        address: SocketAddr,
    },
}

/// The digest of a token that can be used.
pub(crate) fn digest(token: &str) -> Result<blake3::Hash, AccessError> {
    let visible = token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.len() < MIN_TOKEN_BYTES || token.len() > MAX_TOKEN_BYTES || !visible {
        return Err(AccessError::Token);
    }
    Ok(blake3::hash(token.as_bytes()))
}

impl Tokens {
    /// Adds a token of `tenant` (which may be empty, where there is only one).
    ///
    /// # Errors
    /// [`AccessError`] where the token can't be used, or is another tenant's.
    pub fn add(&mut self, tenant: &str, token: &str) -> Result<(), AccessError> {
        semel_core::Namespace::new("", tenant, "any")?;
        let tenant: Arc<str> = tenant.into();
        let digest = *digest(token.trim())?.as_bytes();
        match self.tenants.insert(digest, Arc::clone(&tenant)) {
            Some(other) if other != tenant => Err(AccessError::Shared),
            _ => Ok(()),
        }
    }

    fn tenant(&self, token: &str) -> Option<&Arc<str>> {
        self.tenants.get(blake3::hash(token.as_bytes()).as_bytes())
    }
}

/// Refuses to let everybody in from other machines.
///
/// # Errors
/// [`AccessError::Exposed`] where `address` isn't loopback and `access` is open.
pub fn check_exposure(address: SocketAddr, access: &Access) -> Result<(), AccessError> {
    let guarded = matches!(access, Access::Tokens(_));
    exposure(address, guarded)
}

pub(crate) fn exposure(address: SocketAddr, guarded: bool) -> Result<(), AccessError> {
    if guarded || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(AccessError::Exposed { address })
}

/// Who calls.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The tenant that the caller's token is of; `None` where anybody may name any.
    tenant: Option<Arc<str>>,
}

impl Caller {
    /// The tenant to act in: the token's own, whatever the request says, as long as it says no other.
    pub(crate) fn tenant(&self, named: Option<&str>) -> Result<String, Failure> {
        match (&self.tenant, named) {
            (Some(own), Some(named)) if **own != *named => Err(Failure::of(
                "forbidden",
                "the token is of another tenant than the request names; leave the tenant out",
            )),
            (Some(own), _) => Ok(own.to_string()),
            (None, named) => Ok(named.unwrap_or_default().to_owned()),
        }
    }

    /// Whether the caller may know of a record of `tenant`.
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
        match Access::from_ref(state) {
            Access::Open => {
                only_by_loopback_name(parts)?;
                Ok(Self { tenant: None })
            }
            Access::Tokens(tokens) => {
                let tenant = bearer(parts).and_then(|token| tokens.tenant(token));
                let tenant = Some(tenant.ok_or_else(Failure::unauthorized)?.clone());
                Ok(Self { tenant })
            }
        }
    }
}

/// The bearer token of a request, if it has exactly one.
pub(crate) fn bearer(parts: &Parts) -> Option<&str> {
    let mut lines = parts.headers.get_all(header::AUTHORIZATION).iter();
    let (line, None) = (lines.next()?, lines.next()) else {
        return None;
    };
    let (scheme, token) = line.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && token.len() <= MAX_TOKEN_BYTES).then_some(token)
}

/// An open listener takes requests for loopback names only: else any web page could have its own name
/// point here, and use a visitor's browser to call.
pub(crate) fn only_by_loopback_name(parts: &Parts) -> Result<(), Failure> {
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
    Failure::of(
        "forbidden",
        "without a credential, this address is called by a loopback name only",
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
    fn an_open_listener_is_called_by_loopback_names_only() {
        for host in [
            "localhost:80",
            "127.0.0.1",
            "[::1]:8080",
            "127.8.8.8:1",
            "LOCALHOST",
        ] {
            assert!(only_by_loopback_name(&parts(host)).is_ok(), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1:80",
            "[2001::1]",
            "",
        ] {
            assert!(only_by_loopback_name(&parts(host)).is_err(), "{host}");
        }
    }

    #[test]
    fn a_public_address_needs_a_credential() {
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
    fn a_token_is_one_tenants_and_long_enough() {
        let mut tokens = Tokens::default();
        assert!(tokens.add("acme", "short").is_err());
        assert!(tokens.add("acme", "with a space in it").is_err());
        tokens.add("acme", "0123456789abcdef\n").unwrap();
        tokens.add("acme", "0123456789abcdef").unwrap();
        assert!(tokens.add("other", "0123456789abcdef").is_err());
        assert_eq!(format!("{tokens:?}"), "Tokens(1)");
    }
}
