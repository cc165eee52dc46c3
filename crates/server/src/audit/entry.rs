//! [`Entry`]: one line of the audit trail, and how an engine's step becomes one.

use std::sync::Arc;

use semel_core::event::Step;
use semel_core::{Certainty, Identity, Namespace, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::chain::Link;
use super::words;
use crate::api::{hex, millis, time};

/// What an actor is called once erased.
pub const ERASED: &str = "erased";

/// One line of the audit trail. Names a key by its hash alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// Unique: which process, and the how-manieth of it.
    pub event_id: String,
    /// When, on the server's wall clock: RFC 3339 in UTC.
    pub time: String,
    /// What happened, such as `idempotency.replay` or `admin.resolve`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The same in the older spelling, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub code: Option<String>,
    /// The environment that the key lives in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub environment: String,
    /// The tenant.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// The scope.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scope: String,
    /// The key's hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub id: Option<String>,
    /// Who asked, or acted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub actor: Option<String>,
    /// What else there is to say, by the kind of entry.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub detail: Map<String, Value>,
    /// Where it stands in the chain of its file. Entries in memory alone have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub chain: Option<Link>,
}

/// The kinds of entries that tell of an operator's change, besides `admin.*`.
pub(super) const OPERATORS: [&str; 3] = [
    "idempotency.resolved",
    "idempotency.unlocked",
    "idempotency.reset",
];

impl Entry {
    /// Whether it tells what an operator did: such entries keep their actor's name.
    #[must_use]
    pub fn is_of_an_operator(&self) -> bool {
        self.kind.starts_with("admin.") || OPERATORS.contains(&self.kind.as_str())
    }

    /// Whether the erasure of `actor` takes the name out of it.
    pub(super) fn is_erased_with(&self, actor: &str) -> bool {
        self.actor.as_deref() == Some(actor) && !self.is_of_an_operator()
    }
}

/// An engine's step, taken down quickly; written out later.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    pub(crate) at: Timestamp,
    pub(crate) namespace: Namespace,
    pub(crate) identity: Identity,
    pub(crate) actor: Option<Arc<str>>,
    pub(crate) step: Step,
}

/// What is audited: whatever decided something, and renewals, which say that an owner was alive. Steps that another one
/// tells of are not.
pub(crate) const fn is_audited(step: &Step) -> bool {
    !matches!(
        step,
        Step::WaitBegan
            | Step::EffectBegan { .. }
            | Step::EffectEnded { .. }
            | Step::StoreCalled { .. }
            | Step::NotAsked
            | Step::Answered { .. }
            | Step::Passed
    )
}

impl Noted {
    pub(crate) fn entry(&self, event_id: String) -> Entry {
        let (kind, code, detail) = told(&self.step);
        let detail = match detail {
            Value::Object(detail) => detail,
            _ => Map::new(),
        };
        let known = *self.identity.as_bytes() != [0; 32];
        Entry {
            event_id,
            time: time(self.at),
            kind: kind.to_owned(),
            code: code.map(str::to_owned),
            environment: self.namespace.environment().to_owned(),
            tenant: self.namespace.tenant().to_owned(),
            scope: self.namespace.scope().to_owned(),
            id: known.then(|| hex(self.identity.as_bytes())),
            actor: self.actor.as_deref().map(str::to_owned),
            detail,
            chain: None,
        }
    }
}

/// Kind, older spelling and details of a step.
fn told(step: &Step) -> (&'static str, Option<&'static str>, Value) {
    match step {
        Step::Claimed {
            attempt: 1,
            fence,
            took,
        } => (
            "idempotency.key.created",
            None,
            json!({"fence": fence.0, "attempt": 1, "took_ms": millis(*took)}),
        ),
        Step::Claimed {
            attempt,
            fence,
            took,
        } => (
            "idempotency.takeover",
            None,
            json!({"fence": fence.0, "attempt": attempt, "took_ms": millis(*took)}),
        ),
        Step::Replayed {
            state,
            local,
            number,
        } => (
            "idempotency.replay",
            Some("IDEMPOTENCY_HIT"),
            json!({"state": state.as_str(), "local": local, "replay_number": number}),
        ),
        Step::Mismatched => (
            "idempotency.conflict",
            Some("IDEMPOTENCY_KEY_COLLISION"),
            json!({"conflict": "payload_mismatch"}),
        ),
        Step::WaitEnded { waited } => (
            "idempotency.lock.contention",
            None,
            json!({"waited_ms": millis(*waited)}),
        ),
        Step::Busy { why } => (
            "idempotency.busy",
            Some("IDEMPOTENCY_HIT"),
            json!({"state": "in_progress", "why": words::busy(*why)}),
        ),
        Step::Renewed { fence } => ("idempotency.lease.renewed", None, json!({"fence": fence.0})),
        Step::LeaseLost { fence } => ("idempotency.lease.lost", None, json!({"fence": fence.0})),
        Step::Settled { state, fence } => (
            "idempotency.settled",
            None,
            json!({"state": state.as_str(), "fence": fence.0}),
        ),
        Step::Unrecorded { fence } => ("idempotency.unrecorded", None, json!({"fence": fence.0})),
        Step::InDoubt { fence } => ("idempotency.in_doubt", None, json!({"fence": fence.0})),
        Step::Recovered { fence, known } => (
            "idempotency.recovered",
            None,
            json!({"fence": fence.0, "known": known}),
        ),
        other => told_of_operators_and_stores(other),
    }
}

fn told_of_operators_and_stores(step: &Step) -> (&'static str, Option<&'static str>, Value) {
    let detail = match step {
        Step::Resolved { state, fence } | Step::Unlocked { state, fence } => {
            json!({"state": state.as_str(), "fence": fence.0})
        }
        Step::StoreFailed {
            call,
            kind,
            certainty,
        } => json!({
            "call": words::store_call(*call),
            "kind": kind.as_str(),
            "changed": match certainty {
                Certainty::Definite => "no",
                Certainty::Unknown => "unknown",
            },
        }),
        Step::Breaker { state } => json!({"state": words::breaker(*state)}),
        Step::Observed { would } => json!({"would": words::would(would)}),
        Step::Refused { code } => json!({"code": code}),
        Step::Oversized { bytes, most } => json!({"bytes": bytes, "most": most}),
        _ => Value::Null,
    };
    let kind = match step {
        Step::Resolved { .. } => "idempotency.resolved",
        Step::Unlocked { .. } => "idempotency.unlocked",
        Step::Deleted => "idempotency.reset",
        Step::StoreFailed { .. } => "store.failed",
        Step::Breaker { .. } => "store.breaker",
        Step::FailedOpen => "idempotency.failed_open",
        Step::Observed { .. } => "idempotency.observed",
        Step::Refused { .. } => "idempotency.refused",
        Step::Oversized { .. } => "idempotency.cache.oversized",
        _ => "idempotency.other",
    };
    (kind, None, detail)
}
