//! The view of a record in the admin API.

use semel_core::{Identity, Record, RecordError, State, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::{AnswerView, Status, json_or_base64};
use crate::config::Crash;
use crate::web::{format_time, hex, to_millis};

/// A record. It shows the key only by its hash and its first characters.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RecordView {
    /// The id of the record: a hash of the key.
    pub(crate) id: String,
    /// The environment of the key.
    environment: String,
    /// The tenant.
    tenant: String,
    /// The scope.
    scope: String,
    /// The first characters of the key: at most eight, and at most half of it.
    key_hint: String,
    /// The state of the record. An expired lease that may not be taken over is `in_doubt`.
    pub(crate) state: Status,
    /// Whether the lease of a running record has expired.
    lapsed: bool,
    /// The fence of the current or last lease, which changes must name.
    pub(crate) fence: u64,
    /// The number of runs since the key was last free.
    attempt: u16,
    /// The maximum number of runs before an expired lease means `in_doubt`.
    max_attempts: u16,
    /// What happens to the key if its owner crashes.
    crash: Crash,
    /// The duration of a lease.
    lease_ms: u64,
    /// The remaining time of a running record's lease.
    lease_left_ms: u64,
    /// How long the record is kept after its last change.
    retention_ms: u64,
    /// The remaining time until the record expires.
    expires_in_ms: u64,
    /// When the key was first claimed, by the store's clock.
    created_time: String,
    /// When the record last changed, by the store's clock.
    written_time: String,
    /// Why checkpoint and answer are not shown, if this process can't decrypt them or doesn't
    /// accept them. The record can still be resolved, unlocked and reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    unreadable: Option<UnreadableContent>,
    /// The checkpoint for the next owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    checkpoint: Option<Box<RawValue>>,
    /// The checkpoint as base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    checkpoint_base64: Option<String>,
    /// The summary of the answer of a completed or failed record.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    answer_summary: Option<AnswerSummary>,
    /// The answer, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    answer: Option<AnswerView>,
}

/// The summary of an answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AnswerSummary {
    /// The HTTP status, if the answer is an HTTP response.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    status: Option<u16>,
    /// The size of the body.
    bytes: u64,
    /// Whether the body was kept.
    kept: bool,
}

/// Why the content of a record is not shown.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UnreadableContent {
    /// The reason.
    reason: UnreadableReason,
    /// The id of the missing encryption key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    key: Option<u32>,
}

/// A reason why the content of a record is not shown.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnreadableReason {
    /// It is encrypted with a key that this process doesn't have.
    MissingKey,
    /// It was changed or moved since it was encrypted, or damaged.
    NotAuthentic,
    /// It was erased: the key that it was encrypted with is destroyed.
    Erased,
    /// It is not encrypted, and this process accepts only encrypted records.
    NotEncrypted,
}

impl From<RecordError> for UnreadableContent {
    fn from(error: RecordError) -> Self {
        let (reason, key) = match error {
            RecordError::NoKey(id) => (UnreadableReason::MissingKey, Some(id)),
            RecordError::Erased => (UnreadableReason::Erased, None),
            RecordError::Plain => (UnreadableReason::NotEncrypted, None),
            _ => (UnreadableReason::NotAuthentic, None),
        };
        Self { reason, key }
    }
}

/// The detail of a record's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Without answer and checkpoint.
    Summary,
    /// With the checkpoint.
    Full,
    /// With the checkpoint and the answer.
    WithAnswer,
}

impl RecordView {
    pub(crate) fn from_record(
        identity: &Identity,
        record: &Record,
        now: Timestamp,
        detail: Detail,
    ) -> Self {
        let locked = record.locked();
        let has_checkpoint = detail != Detail::Summary && locked.is_none();
        let checkpoint = if has_checkpoint {
            &*record.checkpoint
        } else {
            &[]
        };
        let (checkpoint, checkpoint_base64) = json_or_base64(checkpoint);
        let answer = record.answer.as_deref();
        let summary = answer.filter(|_| locked.is_none()).map(|answer| {
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
            state: record.state_at(now).into(),
            lapsed: record.is_lapsed(now),
            fence: record.fence.0,
            attempt: record.attempt,
            max_attempts: record.max_attempts,
            crash: record.crash.into(),
            lease_ms: to_millis(record.lease),
            lease_left_ms: to_millis(lease_left),
            retention_ms: to_millis(record.retention),
            expires_in_ms: to_millis(record.expires_at().since(now)),
            created_time: format_time(record.created_at),
            written_time: format_time(record.written_at),
            checkpoint,
            checkpoint_base64,
            answer_summary: summary,
            answer: answer
                .filter(|_| detail == Detail::WithAnswer && locked.is_none())
                .map(AnswerView::from_answer),
            unreadable: locked.map(Into::into),
        }
    }
}
