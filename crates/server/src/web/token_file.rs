//! [`TokenFile`]: a file of named tokens, which holds only their digests.
//!
//! Operators and callers of the APIs have a file each, in the same form. A grant is what an entry
//! has besides its name, its tenant and its expiry date.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use semel_core::{Clock, Namespace};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::format_time;
use super::hex::{hex, unhex};

/// What an entry grants.
pub(crate) trait Grant: Serialize + DeserializeOwned + Clone {
    /// The name of the tables in the file.
    const TABLE: &'static str;
    /// The command that makes an entry.
    const COMMAND: &'static str;
    /// The prefix of tokens, by which scanners for leaked secrets know them.
    const PREFIX: &'static str;
}

/// An entry of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account<G> {
    pub(crate) name: Arc<str>,
    pub(crate) grant: G,
    pub(crate) tenant: Option<Arc<str>>,
    /// The first day on which the token is refused, in UTC.
    expires: Option<String>,
}

/// The tokens of a file. A change of the file takes effect with the next request: if the file is
/// deleted, no token is valid. If a new file cannot be read, the tokens of the old one stay valid.
#[derive(Clone)]
pub(crate) struct TokenFile<G> {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    loaded: Arc<Mutex<LoadedFile<G>>>,
}

struct LoadedFile<G> {
    stamp: Option<FileStamp>,
    by_digest: Accounts<G>,
}

type Accounts<G> = HashMap<[u8; 32], Account<G>>;

/// Changes with the file: its inode, its length, and when it was written.
type FileStamp = (u64, u64, i64, i64);

/// A file of tokens, or a new entry of it, is unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// The file cannot be read.
    #[error("the file can't be read: {0}")]
    File(#[from] std::io::Error),
    /// The file is not TOML, or has unknown members.
    #[error("{message}; write [[{table}]] entries, as `{command}` prints them")]
    Form {
        /// What is wrong. It quotes no line, because that may hold a token.
        message: String,
        /// The name of the tables in the file.
        table: &'static str,
        /// The command that makes an entry.
        command: &'static str,
    },
    /// A token is not in the form of a digest.
    #[error("the token of {name} is not a digest, or is listed twice; `{command}` makes a token")]
    Token {
        /// The name of the entry.
        name: String,
        /// The command that makes an entry.
        command: &'static str,
    },
    /// A name is invalid or is listed twice.
    #[error(
        "the name {0:?} is empty or listed twice, has more than 128 characters, or characters \
         other than visible ASCII"
    )]
    Name(String),
    /// A tenant is invalid.
    #[error("the tenant of {0}: {1}")]
    Tenant(String, semel_core::NamespaceError),
    /// An expiry date is malformed.
    #[error("the expiry date of {0} is malformed; write it like 2027-01-31")]
    Day(String),
    /// The expiry date of a new token is not in the future.
    #[error("the token would never be valid; write an expiry date after today, in UTC")]
    Expired,
}

/// A new token, and the entry that admits it.
#[derive(Clone, PartialEq, Eq)]
pub struct NewToken {
    /// The token.
    pub token: String,
    /// The entry, as text for the end of the file.
    pub entry: String,
}

/// What a new entry says besides its grant.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry<'a> {
    /// Its name, for the audit trail and for people.
    pub name: &'a str,
    /// Its tenant.
    pub tenant: Option<&'a str>,
    /// The first day on which the token is refused, in UTC.
    pub expires: Option<&'a str>,
}

/// The prefix of a token's digest.
const DIGEST_PREFIX: &str = "blake3:";

/// Makes a random token, and its digest as entries hold it.
pub(crate) fn create_token<G: Grant>() -> std::io::Result<(String, String)> {
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| std::io::Error::other("the system gives no random numbers"))?;
    let token = format!("{}{}", G::PREFIX, hex(&bytes));
    let digest = format!("{DIGEST_PREFIX}{}", blake3::hash(token.as_bytes()).to_hex());
    Ok((token, digest))
}

impl<G: Grant> TokenFile<G> {
    /// Reads the file.
    pub(crate) fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, TokenFileError> {
        let loaded = LoadedFile {
            stamp: file_stamp(path),
            by_digest: read_entries(&std::fs::read_to_string(path)?)?,
        };
        Ok(Self {
            path: path.to_owned(),
            clock,
            loaded: Arc::new(Mutex::new(loaded)),
        })
    }

    /// The account of a token that has not expired.
    pub(crate) fn find(&self, token: &str) -> Option<Account<G>> {
        let mut current = self.loaded.lock();
        self.refresh(&mut current);
        // The lookup is by digest, so its timing reveals nothing about a token.
        let digest = blake3::hash(token.as_bytes());
        let account = current.by_digest.get(digest.as_bytes()).cloned()?;
        let is_over = |day: &str| day <= today(&*self.clock).as_str();
        (!account.expires.as_deref().is_some_and(is_over)).then_some(account)
    }

    /// Reads the file again if it has changed.
    fn refresh(&self, current: &mut LoadedFile<G>) {
        let stamp = file_stamp(&self.path);
        if stamp == current.stamp {
            return;
        }
        // One attempt for each change, so a broken file is logged once.
        current.stamp = stamp;
        let read = std::fs::read_to_string(&self.path).map_err(TokenFileError::from);
        match read.and_then(|text| read_entries(&text)) {
            Ok(by_digest) => current.by_digest = by_digest,
            Err(TokenFileError::File(error)) if error.kind() == ErrorKind::NotFound => {
                current.by_digest.clear();
                tracing::error!(
                    file = %self.path.display(),
                    "the file of tokens is gone, and no token of it is valid any more"
                );
            }
            Err(error) => tracing::warn!(
                file = %self.path.display(),
                %error,
                "the file of tokens is unusable; the previous tokens stay valid"
            ),
        }
    }

    /// Makes a token and its entry. What the file would not accept is refused.
    pub(crate) fn create_entry(
        new: NewEntry<'_>,
        grant: &G,
        clock: &dyn Clock,
    ) -> Result<NewToken, TokenFileError> {
        let (token, digest) = create_token::<G>()?;
        let mut line =
            toml::Table::try_from(grant).map_err(|error| form::<G>(error.to_string()))?;
        let own = [("name", Some(new.name)), ("token", Some(&digest))];
        let optional = [("tenant", new.tenant), ("expires", new.expires)];
        for (name, value) in own.into_iter().chain(optional) {
            if let Some(value) = value {
                line.insert(name.to_owned(), value.into());
            }
        }
        let line = toml::to_string(&line).map_err(|error| form::<G>(error.to_string()))?;
        let entry = format!("[[{}]]\n{line}", G::TABLE);
        read_entries::<G>(&entry)?;
        if new.expires.is_some_and(|day| day <= today(clock).as_str()) {
            return Err(TokenFileError::Expired);
        }
        Ok(NewToken { token, entry })
    }
}

/// The current day in UTC. Days of this form compare as text.
fn today(clock: &dyn Clock) -> String {
    let mut now = format_time(clock.wall());
    now.truncate("0000-00-00".len());
    now
}

fn file_stamp(path: &Path) -> Option<FileStamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), found.ctime(), found.ctime_nsec()))
}

fn form<G: Grant>(message: String) -> TokenFileError {
    TokenFileError::Form {
        message,
        table: G::TABLE,
        command: G::COMMAND,
    }
}

fn read_entries<G: Grant>(text: &str) -> Result<Accounts<G>, TokenFileError> {
    let mut document: toml::Table = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|at| text.get(..at.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        form::<G>(format!("line {line}: {}", error.message()))
    })?;
    let entries = match document.remove(G::TABLE) {
        None => Vec::new(),
        Some(toml::Value::Array(entries)) => entries,
        Some(_) => return Err(form::<G>(format!("{} is no array of tables", G::TABLE))),
    };
    if let Some(unknown) = document.keys().next() {
        return Err(form::<G>(format!("unknown field {unknown:?}")));
    }
    let mut by_digest = HashMap::new();
    let mut names = HashSet::new();
    for entry in entries {
        let (digest, account) = read_entry::<G>(entry)?;
        let name = account.name.to_string();
        if !names.insert(name.clone()) {
            return Err(TokenFileError::Name(name));
        }
        if by_digest.insert(digest, account).is_some() {
            let command = G::COMMAND;
            return Err(TokenFileError::Token { name, command });
        }
    }
    Ok(by_digest)
}

fn read_entry<G: Grant>(entry: toml::Value) -> Result<([u8; 32], Account<G>), TokenFileError> {
    let toml::Value::Table(mut entry) = entry else {
        return Err(form::<G>("an entry is no table".to_owned()));
    };
    let mut take = |name: &str| match entry.remove(name) {
        None => Ok(None),
        Some(toml::Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(form::<G>(format!("{name} is no string"))),
    };
    let missing = |name: &str| form::<G>(format!("missing field `{name}`"));
    let name = take("name")?.ok_or_else(|| missing("name"))?;
    let token = take("token")?.ok_or_else(|| missing("token"))?;
    let (tenant, expires) = (take("tenant")?, take("expires")?);
    let is_visible = name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if !is_visible || !(1..=128).contains(&name.len()) {
        return Err(TokenFileError::Name(name));
    }
    let grant: Result<G, _> = toml::Value::Table(entry).try_into();
    let grant = grant.map_err(|error| form::<G>(format!("{name}: {}", error.message())))?;
    let digest = token.strip_prefix(DIGEST_PREFIX).and_then(unhex);
    let digest = digest.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let digest = digest.ok_or_else(|| TokenFileError::Token {
        name: name.clone(),
        command: G::COMMAND,
    })?;
    if let Some(tenant) = &tenant
        && let Err(error) = Namespace::new("", tenant, "any")
    {
        return Err(TokenFileError::Tenant(name, error));
    }
    if !expires.as_deref().is_none_or(is_day) {
        return Err(TokenFileError::Day(name));
    }
    let account = Account {
        name: name.into(),
        grant,
        tenant: tenant.map(Into::into),
        expires,
    };
    Ok((digest, account))
}

/// Whether the text has the form `2027-01-31`.
fn is_day(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else {
        return false;
    };
    let is_within = |text: &str, digits: usize, most: u16| {
        let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        let number: Option<u16> = text.parse().ok();
        is_number && number.is_some_and(|number| (1..=most).contains(&number))
    };
    is_within(year, 4, 9999) && is_within(month, 2, 12) && is_within(day, 2, 31)
}

impl<G> std::fmt::Debug for TokenFile<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenFile({})", self.loaded.lock().by_digest.len())
    }
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewToken(…)")
    }
}
