//! Who may call the admin API.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use http::request::Parts;

use crate::Peer;
use crate::api::{AccessError, Failure, bearer, digest, exposure, only_by_loopback_name};

/// What a caller of the admin API has to show.
#[derive(Clone)]
pub enum Credential {
    /// Nothing. Only for a loopback address: see [`check_exposure`].
    None,
    /// What nobody has: there is no token, and nothing says that none is needed.
    Closed,
    /// This bearer token.
    Token(AdminToken),
    /// A client certificate: the listener has checked it before a request gets here, and says so with a [`Peer`].
    MutualTls,
}

/// A bearer token, kept as its digest.
#[derive(Clone)]
pub struct AdminToken(blake3::Hash);

impl Credential {
    /// A token given as text.
    ///
    /// # Errors
    /// [`AccessError`] where it is too short to be one.
    pub fn token(token: &str) -> Result<Self, AccessError> {
        Ok(Self::Token(AdminToken(digest(token.trim())?)))
    }

    /// A token from a file that has nothing else in it.
    ///
    /// # Errors
    /// [`AccessError`] where the file can't be read, or has no token in it.
    pub fn token_file(path: &Path) -> Result<Self, AccessError> {
        Self::token(&std::fs::read_to_string(path)?)
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Closed => "Closed",
            Self::Token(_) => "Token(…)",
            Self::MutualTls => "MutualTls",
        })
    }
}

/// Refuses an admin listener that anybody could call from another machine.
///
/// # Errors
/// [`AccessError::Exposed`] where `address` isn't loopback and there is no credential.
pub fn check_exposure(address: SocketAddr, credential: &Credential) -> Result<(), AccessError> {
    exposure(address, !matches!(credential, Credential::None))
}

/// A caller that has shown its credential.
pub(crate) struct Operator {
    /// Whose certificate it came with.
    pub(crate) peer: Option<Arc<str>>,
}

impl<S> FromRequestParts<S> for Operator
where
    S: Send + Sync,
    Credential: FromRef<S>,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let peer = parts.extensions.get::<Peer>();
        match Credential::from_ref(state) {
            Credential::None => only_by_loopback_name(parts)?,
            Credential::Closed => return Err(closed()),
            // Not taken for granted: what a listener asks for can change while it listens.
            Credential::MutualTls if peer.is_some_and(|peer| peer.has_certificate) => {}
            Credential::MutualTls => return Err(Failure::unauthorized()),
            Credential::Token(AdminToken(wanted)) => {
                let given = bearer(parts).map(|token| blake3::hash(token.as_bytes()));
                // Digests compare in constant time.
                if given != Some(wanted) {
                    return Err(Failure::unauthorized());
                }
            }
        }
        let peer = peer.and_then(|peer| peer.certificate_name.clone());
        Ok(Self { peer })
    }
}

fn closed() -> Failure {
    Failure::of(
        "forbidden",
        "the admin API answers nobody without a token; set admin.token_file, or admin.open = true",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_admin_listener_needs_a_credential() {
        let token = Credential::token("0123456789abcdef").unwrap();
        for public in ["0.0.0.0:1", "192.0.2.1:1", "[::]:1"] {
            let address = public.parse().unwrap();
            assert!(check_exposure(address, &Credential::None).is_err());
            assert!(check_exposure(address, &token).is_ok());
            assert!(check_exposure(address, &Credential::MutualTls).is_ok());
        }
        assert!(check_exposure("127.0.0.1:1".parse().unwrap(), &Credential::None).is_ok());
        assert!(Credential::token("short").is_err());
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
