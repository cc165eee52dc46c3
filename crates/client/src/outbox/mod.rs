//! [`Outbox`]: durable calls that survive a crash, in a folder with one file for each call without
//! an answer.
//!
//! A file is complete or absent: it is written under a temporary name, synced, and then linked to
//! its name, which only one process can do. So there are no locks to clean up, any number of
//! processes may share the folder, and another process, in Rust, Python or TypeScript, may send the
//! calls of a crashed one. Two processes that send the same call are safe, because both use the
//! same key.

mod call;
mod files;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use reqwest::Url;

pub use self::call::OutboxCall;
use self::files::{Entry, VERSION, make_private};
use crate::middleware::IdempotencyKey;

const MAX_NAME_BYTES: usize = 1024;

/// Why an outbox, or a call in it, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// The folder or a file can't be read or written.
    #[error("the outbox can't be used; nothing was sent")]
    Io(#[from] std::io::Error),
    /// A file is damaged, or of another version. It never counts as a call without a key.
    #[error("the outbox's file {file} can't be read; inspect it before anything is sent again")]
    Damaged {
        /// Its name.
        file: String,
    },
    /// The name can't be used.
    #[error("a call's name has 1 to 1024 bytes")]
    Name,
    /// A call of this name was begun with another request, or the name belongs to another call by
    /// now.
    #[error(
        "a call of this name was begun with another key or request; forget it first, or use another name"
    )]
    Changed,
    /// The request can't be stored.
    #[error("the request can't be stored: its body must be bytes, not a stream")]
    NotKeepable,
    /// The call has no stored request to send.
    #[error("this call was begun, but its request was not stored, so nothing was sent; forget it")]
    NeverSent,
    /// The request was stored without a host, and the outbox has no base.
    #[error(
        "this call was stored without its host, by a client with a base URL; nothing was sent now. Set the base URL with `Outbox::with_base`"
    )]
    Relative,
    /// There is no answer.
    #[error(transparent)]
    Call(#[from] reqwest_middleware::Error),
}

/// A folder of calls without an answer. Only its owner has access, because it contains requests.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = semel_client::client(reqwest::Client::new());
/// let outbox = semel_client::Outbox::open("/var/lib/shop/outbox").await?;
/// // The calls that an earlier process left.
/// for call in outbox.pending().await? {
///     if call.was_sent() {
///         let answer = call.resend(&client).await?;
///         // … process the answer, then:
///     }
///     call.forget().await?;
/// }
/// let call = outbox.begin("charge ord-1").await?; // the key is on disk
/// let request = client.post("http://127.0.0.1:8080/charges").json(&serde_json::json!({"cents": 500}));
/// let answer = call.send(&client, request).await?;
/// call.forget().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Outbox {
    folder: Arc<Path>,
    base: Option<Arc<Url>>,
}

/// Hides the base, which may contain a password.
impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outbox({})", self.folder.display())
    }
}

impl Outbox {
    /// Opens the folder, and creates it if it doesn't exist.
    ///
    /// # Errors
    /// If it can't be created.
    pub async fn open(folder: impl Into<PathBuf>) -> Result<Self, OutboxError> {
        let folder: PathBuf = folder.into();
        let outbox = Self {
            folder: folder.into(),
            base: None,
        };
        let this = outbox.clone();
        blocking(move || {
            make_private(&this.folder)?;
            this.sweep()
        })
        .await?;
        Ok(outbox)
    }

    /// Sets the base URL for calls that were stored as a path alone, by clients in Python and
    /// TypeScript with a base URL of their own. The path is appended to that of the base.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let outbox = semel_client::Outbox::open("/var/lib/shop/outbox").await?;
    /// let outbox = outbox.with_base("http://127.0.0.1:8080".parse()?);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_base(mut self, base: Url) -> Self {
        self.base = Some(Arc::new(base));
        self
    }

    /// Begins the call of this name, or continues it if an earlier process has begun it. Its key is
    /// on disk when this returns.
    ///
    /// # Errors
    /// If the folder can't be written, or the call of this name can't be read.
    pub async fn begin(&self, name: &str) -> Result<OutboxCall, OutboxError> {
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
            return Err(OutboxError::Name);
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let fresh = Entry {
            version: VERSION,
            name: name.to_owned(),
            key: IdempotencyKey::random().as_str().to_owned(),
            created: since.unwrap_or_default().as_secs_f64(),
            request: None,
        };
        let this = self.clone();
        let entry = blocking(move || this.link(&fresh)).await?;
        Ok(OutboxCall::new(self, entry))
    }

    /// Every call without an answer, the oldest first.
    ///
    /// # Errors
    /// If one of them can't be read.
    pub async fn pending(&self) -> Result<Vec<OutboxCall>, OutboxError> {
        let this = self.clone();
        let mut entries = blocking(move || this.all()).await?;
        entries.sort_by(|a, b| a.created.total_cmp(&b.created));
        let calls = entries
            .into_iter()
            .map(|entry| OutboxCall::new(self, entry));
        Ok(calls.collect())
    }
}

/// Runs disk operations on the thread pool for blocking work.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OutboxError> + Send + 'static,
) -> Result<T, OutboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| OutboxError::Io(std::io::Error::other("the runtime ended")))?
}
