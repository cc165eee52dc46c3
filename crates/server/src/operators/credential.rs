//! [`Credential`]: how callers of the admin API authenticate; [`Operator`]: an authenticated
//! caller.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use http::request::Parts;
use semel::core::Code;

use super::{Account, Operators, Role, SignIns};
use crate::web::{
    AccessError, Failure, Peer, bearer, digest, require_guard, require_loopback_host,
};

/// How callers of the admin API authenticate.
#[derive(Clone)]
pub enum Credential {
    /// Without a credential. Only on a loopback address: see [`check_exposure`].
    None,
    /// The API refuses everybody: no credential is set, and open access is not enabled.
    Closed,
    /// With this bearer token.
    Token(AdminToken),
    /// With the bearer token of a named operator.
    Operators(Operators),
    /// With a client certificate (mutual TLS), which the listener has verified: see [`Peer`]. If
    /// there are names, the certificate must have one of them.
    MutualTls(Arc<[String]>),
}

/// The digest of a bearer token.
#[derive(Clone)]
pub struct AdminToken(blake3::Hash);

impl Credential {
    /// Authentication by this token.
    ///
    /// # Errors
    /// [`AccessError`] if the token is too short.
    pub fn token(token: &str) -> Result<Self, AccessError> {
        Ok(Self::Token(AdminToken(digest(token.trim())?)))
    }

    /// Authentication by the token in a file.
    ///
    /// # Errors
    /// [`AccessError`] if the file cannot be read or has no valid token.
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

/// Refuses an admin listener that other machines reach without a credential.
///
/// # Errors
/// [`AccessError::Exposed`] if there is no credential and `address` is not a loopback address.
pub fn check_exposure(address: SocketAddr, credential: &Credential) -> Result<(), AccessError> {
    require_guard(address, !matches!(credential, Credential::None))
}

/// A caller with a valid credential and a role that allows the request.
pub(crate) struct Operator {
    /// The name in its client certificate.
    pub(crate) peer: Option<Arc<str>>,
    /// Its account, if the credential is a named operator's.
    account: Option<Account>,
}

impl Operator {
    /// The name of the account or of the certificate.
    pub(crate) fn name(&self) -> Option<&str> {
        let account = self.account.as_ref().map(|account| &*account.name);
        account.or(self.peer.as_deref())
    }

    /// The only tenant that it may access; `None` means all.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.account.as_ref()?.tenant.as_deref()
    }

    /// Whether it may see records of `tenant`.
    pub(crate) fn may_see(&self, tenant: &str) -> bool {
        self.tenant().is_none_or(|own| own == tenant)
    }

    /// The tenant to query. An operator of one tenant who names another is refused.
    pub(crate) fn resolve_tenant(&self, named: Option<String>) -> Result<Option<String>, Failure> {
        match (self.tenant(), named) {
            (Some(own), Some(named)) if own != named => Err(Failure::new(
                Code::Forbidden,
                "your token belongs to another tenant",
            )),
            (Some(own), _) => Ok(Some(own.to_owned())),
            (None, named) => Ok(named),
        }
    }

    /// Refuses operators whose role is below `role`.
    pub(crate) fn require_role(&self, role: Role) -> Result<(), Failure> {
        let own = self
            .account
            .as_ref()
            .map_or(Role::Admin, |account| account.grant.role);
        if own >= role {
            return Ok(());
        }
        let detail = format!(
            "this needs the role {}; yours is {}",
            role.name(),
            own.name()
        );
        Err(Failure::new(Code::Forbidden, detail))
    }
}

impl<S> FromRequestParts<S> for Operator
where
    S: Send + Sync,
    Credential: FromRef<S>,
    SignIns: FromRef<S>,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let sign_ins = SignIns::from_ref(state);
        let account = match Credential::from_ref(state) {
            Credential::None => {
                require_loopback_host(parts)?;
                None
            }
            Credential::Closed => return Err(closed()),
            credential => {
                sign_ins.check(parts)?;
                match credential.authenticate(parts) {
                    Ok(account) => {
                        sign_ins.note_success(parts);
                        account
                    }
                    Err(failure) => {
                        sign_ins.note_failure(parts).await;
                        return Err(failure);
                    }
                }
            }
        };
        let peer = parts.extensions.get::<Peer>();
        let peer = peer.and_then(|peer| peer.certificate_name.clone());
        let operator = Self { peer, account };
        operator.require_role(required_role(parts))?;
        operator.require_path(parts.uri.path())?;
        Ok(operator)
    }
}

impl Credential {
    /// The account of the caller, if the credential has accounts.
    fn authenticate(&self, parts: &Parts) -> Result<Option<Account>, Failure> {
        match self {
            Self::None | Self::Closed => Err(closed()),
            // Checked again: a reload can change what the listener asks for.
            Self::MutualTls(names) => {
                let peer = parts.extensions.get::<Peer>();
                let verified = peer.filter(|peer| peer.has_certificate);
                let verified = verified.ok_or_else(Failure::unauthorized)?;
                let name = verified.certificate_name.as_deref().unwrap_or_default();
                if !names.is_empty() && !names.iter().any(|allowed| allowed == name) {
                    let detail = "the name of this certificate is not in admin.allowed_names";
                    return Err(Failure::new(Code::Forbidden, detail));
                }
                Ok(None)
            }
            Self::Operators(operators) => {
                let found = bearer(parts).and_then(|token| operators.find(token));
                found.ok_or_else(Failure::unauthorized).map(Some)
            }
            Self::Token(AdminToken(wanted)) => {
                let given = bearer(parts).map(|token| blake3::hash(token.as_bytes()));
                // Digests compare in constant time.
                if given == Some(*wanted) {
                    Ok(None)
                } else {
                    Err(Failure::unauthorized())
                }
            }
        }
    }
}

impl Operator {
    /// Limits operators of one tenant to paths that show its records only.
    fn require_path(&self, path: &str) -> Result<(), Failure> {
        let is_of_records = path.starts_with("/admin/v1/records") || path == "/admin/v1/lookups";
        if self.tenant().is_none() || is_of_records {
            return Ok(());
        }
        let detail = "operators of one tenant may only see and change the records of this tenant";
        Err(Failure::new(Code::Forbidden, detail))
    }
}

/// The lowest role that may send a request.
fn required_role(parts: &Parts) -> Role {
    let path = parts.uri.path();
    if parts.method.is_safe() || path == "/admin/v1/lookups" {
        return Role::Read;
    }
    let destructive = [
        "/admin/v1/erasures",
        "/admin/v1/data-erasures",
        "/admin/v1/purges",
    ];
    let is_destructive = destructive.contains(&path);
    if is_destructive {
        Role::Admin
    } else {
        Role::Operate
    }
}

fn closed() -> Failure {
    Failure::new(
        Code::Forbidden,
        "the admin API has no credential and is closed; set admin.operators_file or \
         admin.token_file, or admin.open = true",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_admin_listener_needs_a_credential() {
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
