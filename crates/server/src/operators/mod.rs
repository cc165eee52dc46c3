//! Operators of the admin API: credentials, roles, and the file of named operators.

mod credential;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use semel_core::Clock;
use serde::{Deserialize, Serialize};

use crate::web::{format_time, hex, unhex};
pub(crate) use credential::Operator;
pub use credential::{AdminToken, Credential, check_exposure};

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

/// A named operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
    /// The only tenant that it may access; `None` means all.
    pub(crate) tenant: Option<Arc<str>>,
    /// The first day on which the token is refused, in UTC.
    expires: Option<String>,
}

/// The operators of a file. A change of the file takes effect with the next request. If the new
/// file cannot be read, the operators of the old one stay valid.
#[derive(Clone)]
pub struct Operators {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    loaded: Arc<Mutex<LoadedFile>>,
}

struct LoadedFile {
    stamp: FileStamp,
    by_digest: HashMap<[u8; 32], Account>,
}

type FileStamp = Option<(SystemTime, u64)>;

/// The operators file is unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorsError {
    /// The file cannot be read.
    #[error("the file can't be read: {0}")]
    File(#[from] std::io::Error),
    /// The file is not TOML, or has unknown members.
    #[error("{0}")]
    Form(String),
    /// A token is not in the form of a digest.
    #[error("the token of {0} is not a digest; `semel operator NAME` makes a token and its digest")]
    Token(String),
    /// A name is invalid or is listed twice.
    #[error("the name {0:?} is listed twice, or has characters other than visible ASCII")]
    Name(String),
    /// An expiry date is malformed.
    #[error("the expiry date of {0} is malformed; write it like 2027-01-31")]
    Day(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OperatorsDocument {
    #[serde(default)]
    operator: Vec<OperatorEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OperatorEntry {
    name: String,
    role: Role,
    token: String,
    tenant: Option<String>,
    expires: Option<String>,
}

/// The prefix of a token's digest.
const DIGEST_PREFIX: &str = "blake3:";

/// Makes a random token, and its digest for the operators file.
///
/// # Errors
/// If the system provides no random numbers.
pub fn new_token() -> std::io::Result<(String, String)> {
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| std::io::Error::other("the system gives no random numbers"))?;
    let token = format!("semel_op_{}", hex(&bytes));
    let digest = format!("{DIGEST_PREFIX}{}", blake3::hash(token.as_bytes()).to_hex());
    Ok((token, digest))
}

impl Operators {
    /// Reads the file.
    ///
    /// # Errors
    /// [`OperatorsError`] if the file is unusable.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, OperatorsError> {
        let loaded = LoadedFile {
            stamp: file_stamp(path),
            by_digest: read_file(path)?,
        };
        Ok(Self {
            path: path.to_owned(),
            clock,
            loaded: Arc::new(Mutex::new(loaded)),
        })
    }

    /// The account of a token that has not expired.
    pub(crate) fn find(&self, token: &str) -> Option<Account> {
        let mut current = self.loaded.lock();
        let stamp = file_stamp(&self.path);
        if stamp != current.stamp {
            // One attempt for each change, so a broken file is logged once.
            current.stamp = stamp;
            match read_file(&self.path) {
                Ok(by_digest) => current.by_digest = by_digest,
                Err(error) => {
                    tracing::warn!(
                        file = %self.path.display(),
                        %error,
                        "the operators file is unusable; the previous operators stay valid"
                    );
                }
            }
        }
        // The lookup is by digest, so its timing reveals nothing about a token.
        let digest = blake3::hash(token.as_bytes());
        let account = current.by_digest.get(digest.as_bytes()).cloned()?;
        let today = format_time(self.clock.wall());
        let has_expired = account
            .expires
            .as_deref()
            .is_some_and(|day| today.get(..10) >= Some(day));
        (!has_expired).then_some(account)
    }
}

fn file_stamp(path: &Path) -> FileStamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn read_file(path: &Path) -> Result<HashMap<[u8; 32], Account>, OperatorsError> {
    let text = std::fs::read_to_string(path)?;
    // The error message quotes the file, which contains digests only.
    let document: OperatorsDocument =
        toml::from_str(&text).map_err(|error| OperatorsError::Form(error.message().to_owned()))?;
    let mut by_digest = HashMap::new();
    let mut names = std::collections::HashSet::new();
    for line in document.operator {
        let is_visible = line
            .name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() || byte == b' ');
        let fits = is_visible && (1..=128).contains(&line.name.len());
        if !fits || !names.insert(line.name.clone()) {
            return Err(OperatorsError::Name(line.name));
        }
        let digest = line.token.strip_prefix(DIGEST_PREFIX).and_then(unhex);
        let digest = digest.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let digest = digest.ok_or_else(|| OperatorsError::Token(line.name.clone()))?;
        if !line.expires.as_deref().is_none_or(is_day) {
            return Err(OperatorsError::Day(line.name));
        }
        let account = Account {
            name: line.name.as_str().into(),
            role: line.role,
            tenant: line.tenant.as_deref().map(Into::into),
            expires: line.expires,
        };
        if by_digest.insert(digest, account).is_some() {
            return Err(OperatorsError::Token(line.name));
        }
    }
    Ok(by_digest)
}

/// Whether the text has the form `2027-01-31`. Days of this form compare as text.
fn is_day(text: &str) -> bool {
    let form = "0000-00-00";
    text.len() == form.len()
        && text
            .bytes()
            .zip(form.bytes())
            .all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                _ => byte == form,
            })
}

impl std::fmt::Debug for Operators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Operators({})", self.loaded.lock().by_digest.len())
    }
}
