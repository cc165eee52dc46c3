//! The settings of the store and of the body store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::encryption::Encryption;
use super::units::Size;

/// The store that keeps the records.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// The URL of the store: `redis://127.0.0.1`, `postgres://user@host/database`,
    /// `mysql://user@host/database`, `sqlite:///path`, `s3://bucket/prefix`, or `memory://` for
    /// experiments.
    #[schemars(extend("format" = "store-url"))]
    pub url: Option<String>,
    /// A file that contains the URL. Use it instead of `url` if the URL contains a password.
    #[schemars(extend("format" = "file"))]
    pub url_file: Option<String>,
    /// A file with at least 16 random bytes, the same on every node. With this secret, a reader of
    /// the store cannot test guesses of keys and payloads.
    #[schemars(extend("format" = "file"))]
    pub secret_file: Option<String>,
    /// The id of the secret, which records carry. It is the same on every node. A store and
    /// environment that were used with one secret accept no other.
    #[schemars(range(min = 1))]
    pub secret_id: Option<u16>,
    /// A bucket for large response bodies: `s3://bucket/prefix`, `gs://…` or `az://…`. The record
    /// keeps their length and digest. Every node needs the same bucket. `semel lifecycle` prints
    /// the rule by which the bucket removes expired bodies.
    #[schemars(extend("format" = "store-url"))]
    pub body_store: Option<String>,
    /// Bodies larger than this go to `body_store`.
    pub body_store_above: Size,
    /// Whether to compress response bodies of 1 KiB and more in the store. See
    /// `docs/how-to/make-records-smaller.md` for what their sizes then tell.
    pub compress: bool,
    /// Encryption of stored responses and checkpoints.
    pub encryption: Encryption,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            url: None,
            url_file: None,
            secret_file: None,
            secret_id: None,
            body_store: None,
            body_store_above: Size(64 * 1024),
            compress: false,
            encryption: Encryption::default(),
        }
    }
}

impl Store {
    /// The URL of the store, from `url` or from `url_file`; `None` if neither is set.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read_url(&self) -> std::io::Result<Option<String>> {
        read_url(self.url.as_ref(), self.url_file.as_ref())
    }
}

/// A URL, or the one in a file.
pub(super) fn read_url(
    url: Option<&String>,
    file: Option<&String>,
) -> std::io::Result<Option<String>> {
    match (url, file) {
        (Some(url), _) => Ok(Some(url.clone())),
        (None, Some(file)) => Ok(Some(std::fs::read_to_string(file)?.trim().to_owned())),
        (None, None) => Ok(None),
    }
}
