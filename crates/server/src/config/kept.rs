//! The settings of the audit trail: where it is kept, and for how long.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::Span;

/// The audit trail.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Audit {
    /// The file that it is kept in, as JSON lines; full ones get a time behind their name. In memory only, where not set.
    #[schemars(extend("format" = "file"))]
    pub file: Option<String>,
    /// How long entries are kept: in full files, and in copies.
    pub retention: Span,
    /// A copy in a table of PostgreSQL. It is made from the file, so it needs one.
    pub postgres: AuditPostgres,
    /// A copy in a stream of NATS JetStream. It is made from the file, so it needs one.
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
    /// The database's URL; the table `semel_audit` is made there. No copy, where not set.
    #[schemars(extend("format" = "store-url"))]
    pub url: Option<String>,
    /// A file that has the URL, for one with a password in it. Instead of `url`.
    #[schemars(extend("format" = "file"))]
    pub url_file: Option<String>,
}

/// A copy of the audit trail in NATS JetStream.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditNats {
    /// The server's URL, or several with commas between them. No copy, where not set.
    #[schemars(extend("format" = "store-url"))]
    pub url: Option<String>,
    /// A file that has the URL, for one with a password in it. Instead of `url`.
    #[schemars(extend("format" = "file"))]
    pub url_file: Option<String>,
    /// A file of credentials (`.creds`), where the server wants them.
    #[schemars(extend("format" = "file"))]
    pub credentials_file: Option<String>,
    /// The stream. Made where it isn't there, with `audit.retention`; one that is there is left as it is.
    pub stream: String,
    /// How subjects begin. What follows is a hash that stands for the actor, so that an actor's entries can be removed.
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
    /// Whether there is to be a copy.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        self.url.is_some() || self.url_file.is_some()
    }
}

impl AuditNats {
    /// Whether there is to be a copy.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        self.url.is_some() || self.url_file.is_some()
    }
}
