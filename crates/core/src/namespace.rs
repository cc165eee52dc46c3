//! [`Namespace`]: environment, tenant and scope. Equal keys in two namespaces are different keys.

use std::fmt;
use std::sync::Arc;

/// The longest environment, tenant or scope, in bytes.
pub const MAX_PART_BYTES: usize = 128;

/// The longest principal, in bytes.
pub const MAX_PRINCIPAL_BYTES: usize = 1024;

/// The namespace of a key: environment, tenant and scope, and the caller if it is authenticated
/// (P2).
///
/// ```
/// use semel_core::Namespace;
///
/// let namespace = Namespace::new("production", "acme", "charge")?;
/// assert_eq!(namespace.scope(), "charge");
/// # Ok::<(), semel_core::NamespaceError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Namespace {
    // One allocation for all parts, shared by every record of the namespace.
    joined: Arc<str>,
    tenant_at: u16,
    scope_at: u16,
    principal_at: u16,
}

impl Namespace {
    /// Checks and joins the parts. `environment` and `tenant` may be empty (there is only one);
    /// `scope`, the operation, may not.
    ///
    /// # Errors
    /// [`NamespaceError`] if a part is too long, has control characters, or the scope is empty.
    pub fn new(environment: &str, tenant: &str, scope: &str) -> Result<Self, NamespaceError> {
        Self::with_principal(environment, tenant, scope, "")
    }

    /// A namespace for one authenticated caller: equal keys of two principals are different keys.
    /// An empty principal means that there is none.
    ///
    /// The principal is part of the identity only. Records and events don't show it, because there
    /// may be as many as there are users.
    ///
    /// # Errors
    /// As [`Namespace::new`].
    pub fn with_principal(
        environment: &str,
        tenant: &str,
        scope: &str,
        principal: &str,
    ) -> Result<Self, NamespaceError> {
        if scope.is_empty() {
            return Err(NamespaceError::NoScope);
        }
        let tenant_at = part("environment", environment, MAX_PART_BYTES)?;
        let scope_at = tenant_at + part("tenant", tenant, MAX_PART_BYTES)?;
        let principal_at = scope_at + part("scope", scope, MAX_PART_BYTES)?;
        part("principal", principal, MAX_PRINCIPAL_BYTES)?;
        Ok(Self {
            joined: [environment, tenant, scope, principal].concat().into(),
            tenant_at,
            scope_at,
            principal_at,
        })
    }

    /// The namespace of a key of which only the identity is known, for events.
    pub(crate) fn unknown() -> Self {
        let scope = "unknown";
        Self {
            joined: scope.into(),
            tenant_at: 0,
            scope_at: 0,
            principal_at: u16::try_from(scope.len()).unwrap_or(u16::MAX),
        }
    }

    /// The environment, such as `production`. Empty if there is only one.
    #[must_use]
    pub fn environment(&self) -> &str {
        &self.joined[..usize::from(self.tenant_at)]
    }

    /// The tenant. Empty if there is only one.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.joined[usize::from(self.tenant_at)..usize::from(self.scope_at)]
    }

    /// The scope: the operation that the key is for.
    #[must_use]
    pub fn scope(&self) -> &str {
        &self.joined[usize::from(self.scope_at)..usize::from(self.principal_at)]
    }

    /// Whether the namespace belongs to one authenticated caller.
    #[must_use]
    pub fn has_principal(&self) -> bool {
        !self.principal().is_empty()
    }

    /// The authenticated caller, for the identity. Empty if there is none.
    pub(crate) fn principal(&self) -> &str {
        &self.joined[usize::from(self.principal_at)..]
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}/{}",
            self.environment(),
            self.tenant(),
            self.scope()
        )
    }
}

/// Checks one part; answers with its length.
fn part(name: &'static str, text: &str, most: usize) -> Result<u16, NamespaceError> {
    if text.chars().any(char::is_control) {
        return Err(NamespaceError::Control { part: name });
    }
    match u16::try_from(text.len()) {
        Ok(length) if text.len() <= most => Ok(length),
        _ => Err(NamespaceError::TooLong {
            part: name,
            most,
            was: text.len(),
        }),
    }
}

/// Why a namespace was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// There is no scope.
    #[error("the scope is empty; name the operation, for example \"charge\"")]
    NoScope,
    /// A part is too long.
    #[error("the {part} has {was} bytes; at most {most} are allowed")]
    TooLong {
        /// Which part.
        part: &'static str,
        /// The most bytes allowed.
        most: usize,
        /// The number of bytes given.
        was: usize,
    },
    /// A part has control characters.
    #[error("the {part} has a control character; use printable text")]
    Control {
        /// Which part.
        part: &'static str,
    },
}
