//! [`Operators`]: named operators, each with a token and a role.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use semel_core::Clock;
use serde::{Deserialize, Serialize};

use crate::api::{hex, time, unhex};

/// What an operator may do. Each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Looks at records, figures and histories, and at no answer.
    Read,
    /// Reads answers too; unlocks, resolves, resets; gives dead letters another chance.
    Operate,
    /// Erases and purges too.
    Admin,
}

impl Role {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

/// Who calls the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) name: Arc<str>,
    pub(super) role: Role,
    /// The only tenant whose records it may see.
    pub(super) tenant: Option<Arc<str>>,
    /// The day from which on the token is refused, in UTC.
    expires: Option<String>,
}

/// The operators of a file. A changed file counts from the next request on; one that can't be read leaves things as they
/// were.
#[derive(Clone)]
pub struct Operators {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    read: Arc<Mutex<Read>>,
}

struct Read {
    stamp: Stamp,
    by_digest: HashMap<[u8; 32], Known>,
}

type Stamp = Option<(SystemTime, u64)>;

/// Why a file of operators can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorsError {
    /// It can't be read.
    #[error("it can't be read: {0}")]
    File(#[from] std::io::Error),
    /// It isn't TOML, or has other members.
    #[error("{0}")]
    Form(String),
    /// A token isn't the digest of one.
    #[error("the token of {0} is no digest; `semel operator NAME` makes a token and its digest")]
    Token(String),
    /// A name can't be used, or is there twice.
    #[error("the name {0:?} is given twice, or has other characters than visible ASCII")]
    Name(String),
    /// A day isn't one.
    #[error("{0} expires on a day, such as 2027-01-31")]
    Day(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    #[serde(default)]
    operator: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    role: Role,
    token: String,
    tenant: Option<String>,
    expires: Option<String>,
}

/// How the digest of a token begins.
const DIGEST: &str = "blake3:";

/// A new token, and its digest as the file has it.
///
/// # Errors
/// Where the system gives no random numbers.
pub fn new_token() -> std::io::Result<(String, String)> {
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| std::io::Error::other("the system gives no random numbers"))?;
    let token = format!("semel_op_{}", hex(&bytes));
    let digest = format!("{DIGEST}{}", blake3::hash(token.as_bytes()).to_hex());
    Ok((token, digest))
}

impl Operators {
    /// Reads the file.
    ///
    /// # Errors
    /// [`OperatorsError`] says what is wrong with it.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, OperatorsError> {
        let read = Read {
            stamp: stamp(path),
            by_digest: read(path)?,
        };
        Ok(Self {
            path: path.to_owned(),
            clock,
            read: Arc::new(Mutex::new(read)),
        })
    }

    /// Whose token it is, unless it has expired.
    pub(super) fn find(&self, token: &str) -> Option<Known> {
        let mut current = self.read.lock();
        let stamp = stamp(&self.path);
        if stamp != current.stamp {
            // Once for each change: a broken file is told once.
            current.stamp = stamp;
            match read(&self.path) {
                Ok(by_digest) => current.by_digest = by_digest,
                Err(error) => {
                    tracing::warn!(file = %self.path.display(), %error, "operators are as they were");
                }
            }
        }
        // Found by digest: how long a search takes tells of the digest, which tells nothing of the token.
        let digest = blake3::hash(token.as_bytes());
        let known = current.by_digest.get(digest.as_bytes()).cloned()?;
        let today = time(self.clock.wall());
        let has_expired = known
            .expires
            .as_deref()
            .is_some_and(|day| today.get(..10) >= Some(day));
        (!has_expired).then_some(known)
    }
}

fn stamp(path: &Path) -> Stamp {
    let there = std::fs::metadata(path).ok()?;
    Some((there.modified().ok()?, there.len()))
}

fn read(path: &Path) -> Result<HashMap<[u8; 32], Known>, OperatorsError> {
    let text = std::fs::read_to_string(path)?;
    // The message of the error has the text in it, which has digests alone.
    let listed: Listed =
        toml::from_str(&text).map_err(|error| OperatorsError::Form(error.message().to_owned()))?;
    let mut by_digest = HashMap::new();
    let mut names = std::collections::HashSet::new();
    for line in listed.operator {
        let is_visible = line
            .name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() || byte == b' ');
        let fits = is_visible && (1..=128).contains(&line.name.len());
        if !fits || !names.insert(line.name.clone()) {
            return Err(OperatorsError::Name(line.name));
        }
        let digest = line.token.strip_prefix(DIGEST).and_then(unhex);
        let digest = digest.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let digest = digest.ok_or_else(|| OperatorsError::Token(line.name.clone()))?;
        if !line.expires.as_deref().is_none_or(is_day) {
            return Err(OperatorsError::Day(line.name));
        }
        let known = Known {
            name: line.name.as_str().into(),
            role: line.role,
            tenant: line.tenant.as_deref().map(Into::into),
            expires: line.expires,
        };
        if by_digest.insert(digest, known).is_some() {
            return Err(OperatorsError::Token(line.name));
        }
    }
    Ok(by_digest)
}

/// `2027-01-31`: days of this form compare as texts.
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
        write!(f, "Operators({})", self.read.lock().by_digest.len())
    }
}
