//! [`Outbox`]: calls that survive their process, in a folder with one file for each call that has no answer yet.
//!
//! A file is whole or not there: it is written beside, made durable, and then linked to its name, which only one process
//! wins. So there is no lock to be left behind, any number of processes may share the folder, and another one, in Rust,
//! Python or TypeScript, may send what a dead one left. Two that send the same call do no harm: both have the same key.

mod call;
mod files;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use reqwest::Url;

pub use self::call::Call;
use self::files::{Entry, VERSION, make_private};
use crate::middleware::IdempotencyKey;

const MAX_NAME_BYTES: usize = 1024;

/// What can go wrong with an outbox, or with a call in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// The folder or a file can't be read or written.
    #[error("the outbox can't be used; nothing was sent")]
    Io(#[from] std::io::Error),
    /// A file isn't what this version writes. It is never taken for a call without a key.
    #[error("the outbox's file {file} can't be read; look at it before anything is sent again")]
    Damaged {
        /// Its name.
        file: String,
    },
    /// The name can't be used.
    #[error("a call's name has 1 to 1024 bytes")]
    Name,
    /// A call of this name was begun with another request, or the name is another call's by now.
    #[error(
        "a call of this name was begun with another key or request; forget it first, or use another name"
    )]
    Changed,
    /// The request can't be kept.
    #[error("the request can't be kept: its body must be bytes, not a stream")]
    NotKeepable,
    /// Nothing was kept to be sent.
    #[error("this call was begun, but its request was not kept, so nothing was sent; forget it")]
    NeverSent,
    /// The request was kept as a path alone, and nobody said where it goes.
    #[error(
        "this call was kept without its host, by a client with a base of its own; nothing was sent now. Say where it goes with `Outbox::with_base`"
    )]
    Relative,
    /// There is no answer.
    #[error(transparent)]
    Call(#[from] reqwest_middleware::Error),
}

/// A folder of calls without an answer. Made for its owner alone: requests are in it.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = semel_client::client(reqwest::Client::new());
/// let outbox = semel_client::Outbox::open("/var/lib/shop/outbox").await?;
/// // What a process before this one left.
/// for call in outbox.pending().await? {
///     if call.was_sent() {
///         let answer = call.resend(&client).await?;
///         // … put the answer where it belongs, then:
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

/// Without the base, which may have a password in it.
impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outbox({})", self.folder.display())
    }
}

impl Outbox {
    /// Uses the folder, and makes it where it isn't there.
    ///
    /// # Errors
    /// Where it can't be made.
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

    /// Where calls go that were kept as a path alone, as clients in Python and TypeScript with a base of their own may
    /// have kept them. Such a path is put behind the base's own.
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

    /// The call of this name, begun now or by a process before. Its key is on disk when this returns.
    ///
    /// # Errors
    /// Where the folder can't be written, or the call of this name can't be read.
    pub async fn begin(&self, name: &str) -> Result<Call, OutboxError> {
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
        Ok(Call::of(self, entry))
    }

    /// Every call without an answer, the oldest first.
    ///
    /// # Errors
    /// Where one of them can't be read.
    pub async fn pending(&self) -> Result<Vec<Call>, OutboxError> {
        let this = self.clone();
        let mut entries = blocking(move || this.all()).await?;
        entries.sort_by(|a, b| a.created.total_cmp(&b.created));
        let calls = entries.into_iter().map(|entry| Call::of(self, entry));
        Ok(calls.collect())
    }
}

/// Disks are waited for elsewhere than where requests are served.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OutboxError> + Send + 'static,
) -> Result<T, OutboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| OutboxError::Io(std::io::Error::other("the runtime ended")))?
}
