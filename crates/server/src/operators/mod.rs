//! Operators of the admin API: credentials, roles, and the file of named operators.

mod credential;
mod sign_ins;

use std::path::Path;
use std::sync::Arc;

use semel_core::Clock;
use serde::{Deserialize, Serialize};

use crate::web::{Grant, NewEntry, NewToken, TokenFile, TokenFileError, create_token};
pub(crate) use credential::Operator;
pub use credential::{AdminToken, Credential, check_exposure};
pub(crate) use sign_ins::SignIns;

/// What an operator may do. Each role includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads records, statistics and histories, but no stored answers.
    Read,
    /// Also reads stored answers, unlocks, resolves and resets records, and retries dead letters.
    Operate,
    /// Also erases and purges.
    Admin,
}

impl Role {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

/// What an entry of the operators file grants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RoleGrant {
    pub(crate) role: Role,
}

impl Grant for RoleGrant {
    const TABLE: &'static str = "operator";
    const COMMAND: &'static str = "semel operator";
    const PREFIX: &'static str = "semel_op_";
}

/// A named operator.
pub(crate) type Account = crate::web::Account<RoleGrant>;

/// The operators of a file. A change of the file takes effect with the next request. If the new
/// file cannot be read, the operators of the old one stay valid.
#[derive(Clone, Debug)]
pub struct Operators(TokenFile<RoleGrant>);

/// Makes a random token, and its digest for the operators file.
///
/// # Errors
/// If the system provides no random numbers.
pub fn new_token() -> std::io::Result<(String, String)> {
    create_token::<RoleGrant>()
}

impl Operators {
    /// Reads the file.
    ///
    /// # Errors
    /// [`TokenFileError`] if the file is unusable.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, TokenFileError> {
        TokenFile::open(path, clock).map(Self)
    }

    /// Makes a token of a new operator, and its entry.
    ///
    /// # Errors
    /// [`TokenFileError`] if the file would not accept the entry.
    pub fn create_entry(
        new: NewEntry<'_>,
        role: Role,
        clock: &dyn Clock,
    ) -> Result<NewToken, TokenFileError> {
        TokenFile::create_entry(new, &RoleGrant { role }, clock)
    }

    /// The account of a token that has not expired.
    pub(crate) fn find(&self, token: &str) -> Option<Account> {
        self.0.find(token)
    }
}
