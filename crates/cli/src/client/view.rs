//! The responses of the admin API, as far as they are shown. Unknown members are ignored.

use serde::Deserialize;
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A record.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) environment: String,
    #[serde(default)]
    pub(crate) tenant: String,
    pub(crate) scope: String,
    pub(crate) key_hint: String,
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) lapsed: bool,
    pub(crate) fence: u64,
    pub(crate) attempt: u16,
    pub(crate) max_attempts: u16,
    pub(crate) crash: String,
    pub(crate) lease_ms: u64,
    pub(crate) lease_left_ms: u64,
    pub(crate) retention_ms: u64,
    pub(crate) expires_in_ms: u64,
    pub(crate) created_time: String,
    pub(crate) written_time: String,
    pub(crate) unreadable: Option<Unreadable>,
    pub(crate) checkpoint: Option<Value>,
    pub(crate) checkpoint_base64: Option<String>,
    pub(crate) answer_summary: Option<Summary>,
    pub(crate) answer: Option<Value>,
}

/// Why answer and checkpoint are not shown.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Unreadable {
    reason: String,
    key: Option<u32>,
}

impl Unreadable {
    pub(crate) fn describe(&self) -> String {
        match (self.reason.as_str(), self.key) {
            ("missing_key", Some(id)) => format!("encrypted with key {id}, which is missing here"),
            ("not_authentic", _) => "changed or moved since it was encrypted".to_owned(),
            ("not_encrypted", _) => "not encrypted, and therefore not accepted".to_owned(),
            (other, _) => other.replace('_', " "),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Summary {
    pub(crate) status: Option<u16>,
    pub(crate) bytes: u64,
    pub(crate) kept: bool,
}

impl Record {
    /// The age of the key, by the store's clock.
    pub(crate) fn age_ms(&self) -> Option<u64> {
        Some(
            between_ms(&self.created_time, &self.written_time)?
                + self.retention_ms.saturating_sub(self.expires_in_ms),
        )
    }
}

/// The span between two times of the same clock.
fn between_ms(earlier: &str, later: &str) -> Option<u64> {
    let at = |text: &str| OffsetDateTime::parse(text, &Rfc3339).ok();
    let span = at(later)? - at(earlier)?;
    u64::try_from(span.whole_milliseconds()).ok()
}

/// A page of a listing.
#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    pub(crate) records: Vec<Value>,
    pub(crate) next: Option<String>,
}

/// An entry of the audit trail.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Entry {
    pub(crate) time: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) tenant: String,
    pub(crate) scope: String,
    pub(crate) id: Option<String>,
    pub(crate) actor: Option<String>,
    pub(crate) detail: Map<String, Value>,
}

impl Entry {
    /// Further members, as `name=value`.
    pub(crate) fn details(&self) -> String {
        let one = |(name, value): (&String, &Value)| match value {
            Value::String(text) if !text.contains(' ') => format!("{name}={text}"),
            value => format!("{name}={value}"),
        };
        self.detail.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    /// The age at `time`, by the server's clock.
    pub(crate) fn age_ms(&self, time: &str) -> u64 {
        between_ms(&self.time, time).unwrap_or(0)
    }

    /// The time of day. The date is in the JSON output.
    pub(crate) fn clock(&self) -> &str {
        let clock = self.time.split_once('T').map_or("", |(_, clock)| clock);
        clock.get(..12).unwrap_or(clock).trim_end_matches('Z')
    }
}

/// The history of a key.
#[derive(Debug, Deserialize)]
pub(crate) struct History {
    pub(crate) entries: Vec<Entry>,
    pub(crate) complete: bool,
}

/// The statistics of a sidecar or store.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Stats {
    pub(crate) time: String,
    pub(crate) uptime_ms: u64,
    pub(crate) store: StoreStats,
    pub(crate) engine: EngineStats,
    pub(crate) audit: AuditStats,
    pub(crate) counts: Vec<Count>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StoreStats {
    pub(crate) name: String,
    pub(crate) reachable: bool,
    pub(crate) records: Option<u64>,
    pub(crate) capacity: Option<u64>,
    pub(crate) durable: bool,
    pub(crate) shared: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EngineStats {
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    pub(crate) breaker: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AuditStats {
    pub(crate) sink: String,
    pub(crate) waiting: u64,
    pub(crate) lost: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Count {
    pub(crate) name: String,
    pub(crate) count: u64,
}

impl Stats {
    pub(crate) fn count(&self, name: &str) -> u64 {
        let found = self.counts.iter().find(|count| count.name == name);
        found.map_or(0, |count| count.count)
    }
}
