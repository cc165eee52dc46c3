//! [`Entry`]: a line of the audit trail, and its creation from an engine event.

use std::sync::Arc;

use semel_core::event::{Event, Step};
use semel_core::{Identity, KeyHint, Namespace, Timestamp};
use semel_jobs::JobId;
use semel_telemetry::labels;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::web::{format_time, hex, to_millis};

/// The name that replaces an erased actor.
pub const ERASED: &str = "erased";

/// A line of the audit trail. It shows a key only by its hash and its first characters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// The unique id: a random id of the process, and a counter.
    pub event_id: String,
    /// The time by the server's wall clock: RFC 3339 in UTC.
    pub time: String,
    /// The kind of event, such as `idempotency.replay` or `admin.resolve`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The older name of the kind, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub code: Option<String>,
    /// The environment of the key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub environment: String,
    /// The tenant.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// The scope.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scope: String,
    /// The operation within the scope, if the route or the tool has a name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub operation: Option<String>,
    /// The id of the record: a hash of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub id: Option<String>,
    /// The first characters of the key: at most 8, and at most half of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_prefix: Option<String>,
    /// The caller or operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub actor: Option<String>,
    /// Further details, depending on the kind.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub detail: Map<String, Value>,
    /// The position in the hash chain. Only entries in files have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub chain: Option<Link>,
}

/// The position of an entry in the hash chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// The number of the entry, from 1.
    pub number: u64,
    /// The hash of the entry and of the previous link.
    pub hash: String,
    /// The salt of the actor's digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub salt: Option<String>,
    /// The digest of the actor's name, once the name is erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub erased: Option<String>,
}

/// An entry to write.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// The kind of event.
    pub kind: &'static str,
    /// The namespace of the key.
    pub namespace: Option<semel_core::Namespace>,
    /// The id of the record: a hash of the key.
    pub id: Option<String>,
    /// The caller or operator.
    pub actor: Option<String>,
    /// Further details.
    pub detail: Map<String, Value>,
}

/// The kinds of operators' changes, besides `admin.*`.
pub(super) const OPERATOR_KINDS: [&str; 3] = [
    "idempotency.resolved",
    "idempotency.unlocked",
    "idempotency.reset",
];

impl Entry {
    /// Whether an operator caused it. Such entries keep their actor's name.
    #[must_use]
    pub fn is_by_operator(&self) -> bool {
        self.kind.starts_with("admin.") || OPERATOR_KINDS.contains(&self.kind.as_str())
    }

    /// Whether an erasure of `actor` applies to it.
    pub(super) fn is_erased_with(&self, actor: &str) -> bool {
        self.actor.as_deref() == Some(actor) && !self.is_by_operator()
    }
}

/// An engine event that is queued for the sink.
#[derive(Clone, Debug)]
pub(crate) struct PendingEvent {
    pub(crate) at: Timestamp,
    pub(crate) namespace: Namespace,
    pub(crate) identity: Identity,
    pub(crate) hint: KeyHint,
    pub(crate) operation: Option<Arc<str>>,
    pub(crate) actor: Option<Arc<str>>,
    pub(crate) step: Step,
}

/// Whether a step is audited: decisions and renewals are, but not steps that another one implies.
pub(crate) const fn is_audited(step: &Step) -> bool {
    !matches!(
        step,
        Step::WaitBegan { .. }
            | Step::EffectBegan { .. }
            | Step::EffectEnded { .. }
            | Step::StoreCalled { .. }
            | Step::BreakerRejected
            | Step::Answered { .. }
            | Step::Passed
    )
}

impl PendingEvent {
    pub(crate) fn new(event: &Event<'_>, at: Timestamp) -> Self {
        Self {
            at,
            namespace: event.namespace.clone(),
            identity: event.identity,
            hint: event.hint,
            operation: event.operation.map(Into::into),
            actor: event.actor.map(Into::into),
            step: event.step,
        }
    }

    pub(crate) fn to_entry(&self, event_id: String) -> Entry {
        let (kind, code, detail) = describe_step(&self.step, self.at);
        let detail = match detail {
            Value::Object(detail) => detail,
            _ => Map::new(),
        };
        let has_key = *self.identity.as_bytes() != [0; 32];
        Entry {
            event_id,
            time: format_time(self.at),
            kind: kind.to_owned(),
            code: code.map(str::to_owned),
            environment: self.namespace.environment().to_owned(),
            tenant: self.namespace.tenant().to_owned(),
            scope: self.namespace.scope().to_owned(),
            operation: self.operation.as_deref().map(str::to_owned),
            id: has_key.then(|| hex(self.identity.as_bytes())),
            key_prefix: has_key.then(|| self.hint.as_str().to_owned()),
            actor: self.actor.as_deref().map(str::to_owned),
            detail,
            chain: None,
        }
    }
}

/// The kind, older name and details of a step.
fn describe_step(step: &Step, now: Timestamp) -> (&'static str, Option<&'static str>, Value) {
    match step {
        Step::Claimed {
            attempt,
            fence,
            took,
            retention,
        } => (
            match attempt {
                1 => "idempotency.key.created",
                _ => "idempotency.takeover",
            },
            None,
            json!({
                "fence": fence.0,
                "attempt": attempt,
                "took_ms": to_millis(*took),
                "ttl_ms": to_millis(*retention),
                "expires_at": format_time(now.plus(*retention)),
            }),
        ),
        Step::Replayed {
            state,
            local,
            number,
            requested_at,
        } => (
            "idempotency.replay",
            Some("IDEMPOTENCY_HIT"),
            json!({
                "state": state.as_str(),
                "local": local,
                "replay_number": number,
                "original_time": format_time(*requested_at),
                "since_original_ms": to_millis(now.since(*requested_at)),
            }),
        ),
        Step::Mismatched { asked, original } => (
            "idempotency.conflict",
            Some("IDEMPOTENCY_KEY_COLLISION"),
            json!({
                "conflict": "payload_mismatch",
                "original_hash": labels::hash_prefix(&original.fingerprint),
                "current_hash": labels::hash_prefix(asked),
                "original_time": original.requested_at.map(format_time),
            }),
        ),
        Step::WaitEnded { waited, position } => (
            "idempotency.lock.contention",
            None,
            json!({"waited_ms": to_millis(*waited), "queue_depth": position}),
        ),
        Step::Busy { why, waited, limit } => (
            "idempotency.busy",
            Some("IDEMPOTENCY_HIT"),
            json!({
                "state": "in_progress",
                "why": why.as_str(),
                "waited_ms": to_millis(*waited),
                "timeout_ms": to_millis(*limit),
            }),
        ),
        other => describe_lease_step(other),
    }
}

/// Steps of a lease.
fn describe_lease_step(step: &Step) -> (&'static str, Option<&'static str>, Value) {
    match step {
        Step::Renewed { fence } => ("idempotency.lease.renewed", None, json!({"fence": fence.0})),
        Step::LeaseLost { fence } => ("idempotency.lease.lost", None, json!({"fence": fence.0})),
        Step::Unrecorded { fence } => ("idempotency.unrecorded", None, json!({"fence": fence.0})),
        Step::InDoubt { fence } => ("idempotency.in_doubt", None, json!({"fence": fence.0})),
        Step::Held { asked, original } => (
            "idempotency.held",
            None,
            json!({
                "original_hash": labels::hash_prefix(&original.fingerprint),
                "current_hash": labels::hash_prefix(asked),
                "original_time": original.requested_at.map(format_time),
            }),
        ),
        Step::Recovered { fence, known } => (
            "idempotency.recovered",
            None,
            json!({"fence": fence.0, "known": known}),
        ),
        Step::Verified {
            fence,
            found,
            attempts,
            evidence,
        } => (
            "idempotency.verified",
            None,
            json!({
                "fence": fence.0,
                "found": found.as_str(),
                "attempts": attempts,
                "evidence": evidence.as_ref().map(labels::hash_prefix),
            }),
        ),
        Step::Settled {
            state,
            fence,
            bytes,
        } => (
            "idempotency.settled",
            None,
            json!({"state": state.as_str(), "fence": fence.0, "response_bytes": bytes}),
        ),
        other => describe_rare_step(other),
    }
}

fn describe_rare_step(step: &Step) -> (&'static str, Option<&'static str>, Value) {
    let detail = match step {
        Step::Resolved { state, fence } | Step::Unlocked { state, fence } => {
            json!({"state": state.as_str(), "fence": fence.0})
        }
        Step::StoreFailed {
            call,
            kind,
            certainty,
        } => json!({
            "call": call.as_str(),
            "kind": kind.as_str(),
            "changed": labels::changed(*certainty),
        }),
        Step::Breaker {
            state,
            failures,
            threshold,
        } => json!({
            "state": state.as_str(),
            "failures": failures,
            "threshold": threshold,
        }),
        Step::Swept { records } => json!({"records": records, "reason": "ttl_elapsed"}),
        Step::Observed { decision } => json!({"would": decision.as_str()}),
        Step::Refused { code } => json!({"code": code.as_str()}),
        Step::Oversized { bytes, most } => json!({"bytes": bytes, "most": most}),
        Step::JobSubmitted { job } => json!({"job_id": JobId::from_u128(*job).to_string()}),
        _ => Value::Null,
    };
    let kind = match step {
        Step::Resolved { .. } => "idempotency.resolved",
        Step::Unlocked { .. } => "idempotency.unlocked",
        Step::Deleted => "idempotency.reset",
        Step::StoreFailed { .. } => "store.failed",
        Step::Breaker { .. } => "store.breaker",
        Step::Swept { .. } => "idempotency.key.expired",
        Step::FailedOpen => "idempotency.failed_open",
        Step::Observed { .. } => "idempotency.observed",
        Step::Refused { .. } => "idempotency.refused",
        Step::Oversized { .. } => "idempotency.cache.oversized",
        Step::JobSubmitted { .. } => "job.submitted",
        _ => "idempotency.other",
    };
    (kind, None, detail)
}
