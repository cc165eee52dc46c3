//! [`Outbox`]: calls that survive their process, in a folder with one file for each call that has no answer yet.
//!
//! A file is whole or not there: it is written beside, made durable, and then linked to its name, which only one process
//! wins. So there is no lock to be left behind, any number of processes may share the folder, and another one, in Rust,
//! Python or TypeScript, may send what a dead one left. Two that send the same call do no harm: both have the same key.

mod files;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::Response;
use reqwest_middleware::{ClientWithMiddleware, RequestBuilder};

use self::files::{Entry, Kept, VERSION, file_name, make_private};
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
    /// A call of this name was begun with another request.
    #[error(
        "a call of this name was begun with another request; forget it first, or use another name"
    )]
    Changed,
    /// The request can't be kept.
    #[error("the request can't be kept: its body must be bytes, not a stream")]
    NotKeepable,
    /// Nothing was kept to be sent.
    #[error("this call was begun, but its request was not kept, so nothing was sent; forget it")]
    NeverSent,
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
///     let answer = call.resend(&client).await?;
///     // … put the answer where it belongs, then:
///     call.forget().await?;
/// }
/// let call = outbox.begin("charge ord-1").await?; // the key is on disk
/// let request = client.post("http://127.0.0.1:8080/charges").json(&serde_json::json!({"cents": 500}));
/// let answer = call.send(&client, request).await?;
/// call.forget().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Outbox {
    folder: Arc<Path>,
}

/// One call: its name, its key, and what it sends once that is known.
#[derive(Debug)]
pub struct Call {
    outbox: Outbox,
    entry: Entry,
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
        };
        let this = outbox.clone();
        blocking(move || {
            make_private(&this.folder)?;
            this.sweep()
        })
        .await?;
        Ok(outbox)
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
        Ok(Call {
            outbox: self.clone(),
            entry,
        })
    }

    /// Every call without an answer, the oldest first.
    ///
    /// # Errors
    /// Where one of them can't be read.
    pub async fn pending(&self) -> Result<Vec<Call>, OutboxError> {
        let this = self.clone();
        let mut entries = blocking(move || this.all()).await?;
        entries.sort_by(|a, b| a.created.total_cmp(&b.created));
        let call = |entry| Call {
            outbox: self.clone(),
            entry,
        };
        Ok(entries.into_iter().map(call).collect())
    }
}

impl Call {
    /// What the caller calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// Whether its request was kept, so that something may have been sent.
    #[must_use]
    pub const fn was_sent(&self) -> bool {
        self.entry.request.is_some()
    }

    /// Its key: the same for all attempts, in this process and in others.
    ///
    /// # Errors
    /// Where the file says nonsense.
    pub fn key(&self) -> Result<IdempotencyKey, OutboxError> {
        let damaged = |_| OutboxError::Damaged {
            file: file_name(&self.outbox.path(&self.entry.name)),
        };
        IdempotencyKey::new(&self.entry.key).map_err(damaged)
    }

    /// Keeps the request, and sends it until there is an answer. Its headers are sent, but not kept, except for its
    /// `Content-Type`.
    ///
    /// # Errors
    /// [`OutboxError::Changed`] where the call was begun with another request; else why there is no answer.
    pub async fn send(
        &self,
        client: &ClientWithMiddleware,
        request: RequestBuilder,
    ) -> Result<Response, OutboxError> {
        let request = request.build().map_err(reqwest_middleware::Error::from)?;
        let content_type = request.headers().get(http::header::CONTENT_TYPE);
        let body = match request.body() {
            None => &[][..],
            Some(body) => body.as_bytes().ok_or(OutboxError::NotKeepable)?,
        };
        let kept = Kept {
            method: request.method().to_string(),
            url: request.url().to_string(),
            content_type: content_type.and_then(|value| Some(value.to_str().ok()?.to_owned())),
            body_base64: STANDARD.encode(body),
        };
        match &self.entry.request {
            Some(before) if *before != kept => return Err(OutboxError::Changed),
            Some(_) => {}
            None => {
                let (this, mut entry) = (self.outbox.clone(), self.entry.clone());
                entry.request = Some(kept);
                blocking(move || {
                    std::fs::rename(this.write(&entry)?, this.path(&entry.name))?;
                    Ok(this.sync()?)
                })
                .await?;
            }
        }
        self.execute(client, request).await
    }

    /// Sends again what was kept.
    ///
    /// # Errors
    /// [`OutboxError::NeverSent`] where nothing was; else why there is no answer.
    pub async fn resend(&self, client: &ClientWithMiddleware) -> Result<Response, OutboxError> {
        let kept = self.entry.request.as_ref().ok_or(OutboxError::NeverSent)?;
        let damaged = || OutboxError::Damaged {
            file: file_name(&self.outbox.path(&self.entry.name)),
        };
        let method = kept.method.parse().map_err(|_| damaged())?;
        let body = STANDARD.decode(&kept.body_base64).map_err(|_| damaged())?;
        let mut request = client.request(method, &kept.url).body(Bytes::from(body));
        if let Some(content_type) = &kept.content_type {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        let request = request.build().map_err(reqwest_middleware::Error::from)?;
        self.execute(client, request).await
    }

    async fn execute(
        &self,
        client: &ClientWithMiddleware,
        request: reqwest::Request,
    ) -> Result<Response, OutboxError> {
        let mut extensions = http::Extensions::new();
        extensions.insert(self.key()?);
        let sent = client
            .execute_with_extensions(request, &mut extensions)
            .await;
        Ok(sent?)
    }

    /// The answer is where the caller wants it. From here on, the name is a new call.
    ///
    /// # Errors
    /// Where the folder can't be written.
    pub async fn forget(self) -> Result<(), OutboxError> {
        blocking(move || {
            match std::fs::remove_file(self.outbox.path(&self.entry.name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
            Ok(self.outbox.sync()?)
        })
        .await
    }
}

/// Disks are waited for elsewhere than where requests are served.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OutboxError> + Send + 'static,
) -> Result<T, OutboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| OutboxError::Io(std::io::Error::other("the runtime ended")))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_under_another_calls_name_is_never_that_call() {
        let name = format!("semel-outbox-{:016x}", rand::random::<u64>());
        let folder = std::env::temp_dir().join(name);
        let outbox = Outbox::open(&folder).await.unwrap();
        let call = outbox.begin("charge ord-1").await.unwrap();
        // As a copy by hand would leave it.
        let (one, other) = (outbox.path("charge ord-1"), outbox.path("charge ord-2"));
        std::fs::copy(&one, &other).unwrap();
        let begun = outbox.begin("charge ord-2").await;
        assert!(matches!(begun, Err(OutboxError::Damaged { .. })));
        let pending = outbox.pending().await;
        assert!(matches!(pending, Err(OutboxError::Damaged { .. })));
        // Nor is one without a usable key begun with a new one.
        let text = std::fs::read_to_string(&one).unwrap();
        let key = call.key().unwrap();
        std::fs::write(&one, text.replace(key.as_str(), "two words")).unwrap();
        let begun = outbox.begin("charge ord-1").await;
        assert!(matches!(begun, Err(OutboxError::Damaged { .. })));
        // Nor is one that isn't text where nobody reads it.
        let mut bytes = text.replacen('{', "{\"?\":\"?\",", 1).into_bytes();
        bytes[6] = 0x8f;
        std::fs::write(&one, bytes).unwrap();
        let begun = outbox.begin("charge ord-1").await;
        assert!(matches!(begun, Err(OutboxError::Damaged { .. })));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
