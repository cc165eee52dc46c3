//! What the admin API shows of a record.

use semel_core::{Identity, Record, State, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::{AnswerView, Crash, Status, hex, millis, shown, time};

/// A record. The key is told by its hash and its first characters.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RecordView {
    /// The key's hash.
    pub(crate) id: String,
    /// The environment that the key lives in.
    environment: String,
    /// The tenant.
    tenant: String,
    /// The scope.
    scope: String,
    /// How the key begins: at most eight characters, never more than half.
    key_hint: String,
    /// Where it stands. A lapsed lease that may not be taken over is `in_doubt`.
    pub(crate) state: Status,
    /// Whether the lease has lapsed, of a running record.
    lapsed: bool,
    /// Of the current or last lease: a change names it.
    pub(crate) fence: u64,
    /// Runs begun since the key was last free.
    attempt: u16,
    /// The most runs begun before a lapsed lease means `in_doubt`.
    max_attempts: u16,
    /// What becomes of the key should its owner vanish.
    crash: Crash,
    /// The span of a lease.
    lease_ms: u64,
    /// What is left of the lease, of a running record.
    lease_left_ms: u64,
    /// The span that the record lives after it was last written.
    retention_ms: u64,
    /// What is left of it.
    expires_in_ms: u64,
    /// When the key was first claimed, on the store's clock.
    created_time: String,
    /// When the record was last written, on the store's clock.
    written_time: String,
    /// What the owner kept for whoever runs next.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    checkpoint: Option<Box<RawValue>>,
    /// The same in base64, where it isn't JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    checkpoint_base64: Option<String>,
    /// What is known of the answer, of a completed or failed record.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    answer_summary: Option<AnswerSummary>,
    /// The answer itself, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    answer: Option<AnswerView>,
}

/// An answer without its contents.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AnswerSummary {
    /// The HTTP status, where it is one of HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    status: Option<u16>,
    /// How long its body is, or was.
    bytes: u64,
    /// Whether the body was kept.
    kept: bool,
}

/// How much to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Neither answer nor checkpoint.
    Outline,
    /// The checkpoint too.
    Whole,
    /// The answer too.
    WithAnswer,
}

pub(crate) fn state_at(record: &Record, now: Timestamp) -> State {
    if record.is_in_doubt(now) {
        State::InDoubt
    } else {
        record.state
    }
}

impl RecordView {
    pub(crate) fn of(identity: &Identity, record: &Record, now: Timestamp, show: Show) -> Self {
        let whole = show != Show::Outline;
        let (checkpoint, checkpoint_base64) = shown(if whole { &record.checkpoint } else { &[] });
        let summary = record.answer.as_deref().map(|answer| {
            let (status, bytes, kept) = AnswerView::summary(answer);
            AnswerSummary {
                status,
                bytes,
                kept,
            }
        });
        let running = record.state == State::Running;
        let lease_left = if running {
            record.lease_end().since(now)
        } else {
            std::time::Duration::ZERO
        };
        Self {
            id: hex(identity.as_bytes()),
            environment: record.namespace.environment().to_owned(),
            tenant: record.namespace.tenant().to_owned(),
            scope: record.namespace.scope().to_owned(),
            key_hint: record.hint.as_str().to_owned(),
            state: state_at(record, now).into(),
            lapsed: record.is_lapsed(now),
            fence: record.fence.0,
            attempt: record.attempt,
            max_attempts: record.max_attempts,
            crash: record.crash.into(),
            lease_ms: millis(record.lease),
            lease_left_ms: millis(lease_left),
            retention_ms: millis(record.retention),
            expires_in_ms: millis(record.expires_at().since(now)),
            created_time: time(record.created_at),
            written_time: time(record.written_at),
            checkpoint,
            checkpoint_base64,
            answer_summary: summary,
            answer: record
                .answer
                .as_deref()
                .filter(|_| show == Show::WithAnswer)
                .map(AnswerView::of),
        }
    }
}
