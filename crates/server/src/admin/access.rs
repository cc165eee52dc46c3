//! Who may call the admin API.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use http::request::Parts;

use super::operators::{Known, Operators, Role};
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
    /// The bearer token of one of these.
    Operators(Operators),
    /// A client certificate: the listener has checked it before a request gets here, and says so with a [`Peer`]. With
    /// names, only certificates of one of these.
    MutualTls(Arc<[String]>),
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
            Self::Operators(_) => "Operators(…)",
            Self::MutualTls(_) => "MutualTls",
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

/// A caller that has shown its credential, and may do what it asks for.
pub(crate) struct Operator {
    /// Whose certificate it came with.
    pub(crate) peer: Option<Arc<str>>,
    /// Who it is, where credentials have names.
    known: Option<Known>,
}

impl Operator {
    /// The name that its credential has.
    pub(super) fn name(&self) -> Option<&str> {
        let known = self.known.as_ref().map(|known| &*known.name);
        known.or(self.peer.as_deref())
    }

    /// The only tenant that it may see.
    pub(super) fn tenant(&self) -> Option<&str> {
        self.known.as_ref()?.tenant.as_deref()
    }

    /// Whether it may know of what belongs to `tenant`.
    pub(super) fn may_see(&self, tenant: &str) -> bool {
        self.tenant().is_none_or(|own| own == tenant)
    }

    /// The tenant to look in: its own, whatever it asks for, as long as it asks for no other.
    pub(super) fn asks_of(&self, named: Option<String>) -> Result<Option<String>, Failure> {
        match (self.tenant(), named) {
            (Some(own), Some(named)) if own != named => {
                Err(Failure::of("forbidden", "your token is of another tenant"))
            }
            (Some(own), _) => Ok(Some(own.to_owned())),
            (None, named) => Ok(named),
        }
    }

    /// Whether its role is at least `role`.
    pub(super) fn may(&self, role: Role) -> Result<(), Failure> {
        let own = self.known.as_ref().map_or(Role::Admin, |known| known.role);
        if own >= role {
            return Ok(());
        }
        let detail = format!(
            "this needs the role {}; yours is {}",
            role.name(),
            own.name()
        );
        Err(Failure::of("forbidden", detail))
    }
}

impl<S> FromRequestParts<S> for Operator
where
    S: Send + Sync,
    Credential: FromRef<S>,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let peer = parts.extensions.get::<Peer>();
        let mut known = None;
        match Credential::from_ref(state) {
            Credential::None => only_by_loopback_name(parts)?,
            Credential::Closed => return Err(closed()),
            // Not taken for granted: what a listener asks for can change while it listens.
            Credential::MutualTls(names) => {
                let shown = peer.filter(|peer| peer.has_certificate);
                let shown = shown.ok_or_else(Failure::unauthorized)?;
                let name = shown.certificate_name.as_deref().unwrap_or_default();
                if !names.is_empty() && !names.iter().any(|allowed| allowed == name) {
                    let detail = "this certificate is of nobody in admin.allowed_names";
                    return Err(Failure::of("forbidden", detail));
                }
            }
            Credential::Operators(operators) => {
                let found = bearer(parts).and_then(|token| operators.find(token));
                known = Some(found.ok_or_else(Failure::unauthorized)?);
            }
            Credential::Token(AdminToken(wanted)) => {
                let given = bearer(parts).map(|token| blake3::hash(token.as_bytes()));
                // Digests compare in constant time.
                if given != Some(wanted) {
                    return Err(Failure::unauthorized());
                }
            }
        }
        let peer = peer.and_then(|peer| peer.certificate_name.clone());
        let operator = Self { peer, known };
        operator.may(needed(parts))?;
        operator.reaches(parts.uri.path())?;
        Ok(operator)
    }
}

impl Operator {
    /// Operators of one tenant see its records, and nothing that tells of others.
    fn reaches(&self, path: &str) -> Result<(), Failure> {
        let is_of_records = path.starts_with("/admin/v1/records") || path == "/admin/v1/lookups";
        if self.tenant().is_none() || is_of_records {
            return Ok(());
        }
        let detail = "operators of one tenant may look at its records, and change them";
        Err(Failure::of("forbidden", detail))
    }
}

/// The role that a request needs at least.
fn needed(parts: &Parts) -> Role {
    let path = parts.uri.path();
    if parts.method.is_safe() || path == "/admin/v1/lookups" {
        return Role::Read;
    }
    let is_for_all = ["/admin/v1/erasures", "/admin/v1/purges"].contains(&path);
    if is_for_all {
        Role::Admin
    } else {
        Role::Operate
    }
}

fn closed() -> Failure {
    Failure::of(
        "forbidden",
        "the admin API answers nobody without a token; set admin.operators_file or admin.token_file, or admin.open = true",
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
            assert!(check_exposure(address, &Credential::MutualTls(Arc::default())).is_ok());
        }
        assert!(check_exposure("127.0.0.1:1".parse().unwrap(), &Credential::None).is_ok());
        assert!(Credential::token("short").is_err());
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
