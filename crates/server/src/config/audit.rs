//! The settings of the audit trail: its file, its retention and its copies.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::Span;

/// The audit trail.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Audit {
    /// The file of the trail, as JSON lines. Full files are renamed with a timestamp. Without it
    /// the trail is in memory only.
    #[schemars(extend("format" = "file"))]
    pub file: Option<String>,
    /// How long to keep entries, in full files and in copies.
    pub retention: Span,
    /// A copy of the trail in a PostgreSQL table. Requires `file`.
    pub postgres: AuditPostgres,
    /// A copy of the trail in a NATS JetStream stream. Requires `file`.
    pub nats: AuditNats,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            file: None,
            retention: Span(Duration::from_secs(90 * 24 * 60 * 60)),
            postgres: AuditPostgres::default(),
            nats: AuditNats::default(),
        }
    }
}

/// A copy of the audit trail in PostgreSQL.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditPostgres {
    /// The URL of the database. The copy is in the table `semel_audit`, which is created if needed.
    /// Without a URL there is no copy.
    #[schemars(extend("format" = "store-url"))]
    pub url: Option<String>,
    /// A file that contains the URL. Use it instead of `url` if the URL contains a password.
    #[schemars(extend("format" = "file"))]
    pub url_file: Option<String>,
}

/// A copy of the audit trail in NATS JetStream.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditNats {
    /// The URL of the server, or several, separated by commas. Without a URL there is no copy.
    #[schemars(extend("format" = "store-url"))]
    pub url: Option<String>,
    /// A file that contains the URL. Use it instead of `url` if the URL contains a password.
    #[schemars(extend("format" = "file"))]
    pub url_file: Option<String>,
    /// A credentials file (`.creds`), if the server requires one.
    #[schemars(extend("format" = "file"))]
    pub credentials_file: Option<String>,
    /// The name of the stream. It is created with `audit.retention` if needed; an existing stream
    /// stays unchanged.
    pub stream: String,
    /// The prefix of subjects. A hash of the actor follows, so that the entries of one actor can be
    /// removed.
    pub subject: String,
}

impl Default for AuditNats {
    fn default() -> Self {
        Self {
            url: None,
            url_file: None,
            credentials_file: None,
            stream: "SEMEL_AUDIT".to_owned(),
            subject: "semel.audit".to_owned(),
        }
    }
}

impl AuditPostgres {
    /// Whether this copy is enabled.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        self.url.is_some() || self.url_file.is_some()
    }

    /// The URL of the database, from `url` or from `url_file`; `None` if neither is set.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read_url(&self) -> std::io::Result<Option<String>> {
        super::store::read_url(self.url.as_ref(), self.url_file.as_ref())
    }
}

impl AuditNats {
    /// Whether this copy is enabled.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        self.url.is_some() || self.url_file.is_some()
    }
}
