//! The views of claims and leases in the protocol API.

use std::collections::BTreeMap;
use std::time::Duration;

use semel::Semel;
use semel_core::engine::{LeaseHandout, Replayed};
use semel_core::{Identity, Record, State, StoreErrorKind, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::answer::{AnswerView, json_or_base64};
use crate::config::Crash;
use crate::web::{Failure, format_time, hex, to_millis};

/// The state of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// The caller has the lease: it runs the operation and settles.
    Claimed,
    /// The caller runs the operation without a lease and does not settle, because the scope is not
    /// enforced or fails open.
    Unprotected,
    /// The operation is running.
    Running,
    /// The operation has completed, and its answer is kept.
    Completed,
    /// The operation has failed permanently, and the failure is kept.
    Failed,
    /// It is unknown whether the operation took effect.
    InDoubt,
    /// The key is free to claim.
    Released,
}

impl From<State> for Status {
    fn from(state: State) -> Self {
        match state {
            State::Running => Self::Running,
            State::Completed => Self::Completed,
            State::Failed => Self::Failed,
            State::InDoubt => Self::InDoubt,
            State::Released => Self::Released,
        }
    }
}

/// A claim.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimView {
    /// The id of the claim: a hash of the key.
    pub(crate) id: String,
    /// The state of the claim.
    pub(crate) status: Status,
    /// Whether the answer is that of an earlier run.
    pub(crate) replayed: bool,
    /// How long the server processed this request. The lease counts from the time of sending plus
    /// this.
    pub(crate) took_ms: u64,
    /// The lease, if `status` is `claimed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) lease: Option<LeaseView>,
    /// The answer, if `status` is `completed` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) answer: Option<AnswerView>,
    /// The number of runs since the key was last free.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) attempt: Option<u16>,
    /// The fence of the current or last lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) fence: Option<u64>,
    /// When the key was first claimed, by the store's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) original_time: Option<String>,
    /// When the answer was stored, by the store's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) settled_time: Option<String>,
    /// The 1-based number of this replay by this server; absent if replays are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) replay_number: Option<u32>,
}

/// The exclusive right to run, until its expiry.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeaseView {
    /// The secret that identifies the owner.
    pub(crate) token: String,
    /// A number that is larger than the fence of any earlier lease of the key.
    pub(crate) fence: u64,
    /// The attempt number: 1, or more if earlier owners crashed.
    pub(crate) attempt: u16,
    /// How long the owner may start further steps, counted from the response. It includes a safety
    /// margin.
    pub(crate) expires_in_ms: u64,
    /// The interval for renewals.
    pub(crate) renew_every_ms: u64,
    /// The stored crash policy, which may differ from the requested one.
    pub(crate) crash: Crash,
    /// The checkpoint of the last owner, if it crashed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(crate) checkpoint: Option<Box<RawValue>>,
    /// The checkpoint as base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) checkpoint_base64: Option<String>,
    /// Idempotency keys for downstream systems, by requested name. They are the same on every
    /// attempt.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) downstream_keys: BTreeMap<String, String>,
}

impl LeaseView {
    pub(crate) fn from_claim(out: &LeaseHandout) -> Self {
        let grant = &out.grant;
        let (checkpoint, checkpoint_base64) = json_or_base64(&grant.checkpoint);
        Self {
            token: format!("{:032x}", grant.token.0),
            fence: grant.fence.0,
            attempt: grant.attempt,
            expires_in_ms: to_millis(out.remaining),
            renew_every_ms: to_millis(grant.lease / 3),
            crash: grant.crash.into(),
            checkpoint,
            checkpoint_base64,
            downstream_keys: BTreeMap::new(),
        }
    }
}

impl ClaimView {
    pub(crate) fn new(identity: &Identity, status: Status, took: Duration) -> Self {
        Self {
            id: hex(identity.as_bytes()),
            status,
            replayed: false,
            took_ms: to_millis(took),
            lease: None,
            answer: None,
            attempt: None,
            fence: None,
            original_time: None,
            settled_time: None,
            replay_number: None,
        }
    }

    pub(crate) fn replayed(identity: &Identity, replayed: &Replayed, took: Duration) -> Self {
        let replay = &replayed.replay;
        Self {
            replayed: true,
            answer: Some(AnswerView::from_answer(&replay.answer)),
            attempt: Some(replay.attempt),
            original_time: Some(format_time(replay.requested_at)),
            settled_time: Some(format_time(replay.settled_at)),
            replay_number: replayed.number,
            ..Self::new(identity, replay.state.into(), took)
        }
    }

    pub(crate) fn from_record(
        identity: &Identity,
        record: &Record,
        state: State,
        took: Duration,
    ) -> Self {
        let settled = matches!(state, State::Completed | State::Failed);
        Self {
            replayed: settled,
            answer: record
                .answer
                .as_deref()
                .filter(|_| settled)
                .map(AnswerView::from_answer),
            attempt: Some(record.attempt),
            fence: Some(record.fence.0),
            original_time: Some(format_time(record.created_at)),
            settled_time: settled.then(|| format_time(record.written_at)),
            ..Self::new(identity, state.into(), took)
        }
    }
}

/// The state of a record by the store's clock, and that clock's time. An expired lease that may not
/// be taken over is in doubt, even before a claim has recorded this.
pub(crate) async fn current_state(
    semel: &Semel,
    record: &Record,
) -> Result<(State, Timestamp), Failure> {
    let now = semel
        .store()
        .now()
        .await
        .map_err(|error| store_failure(&error))?;
    Ok((record.state_at(now), now))
}

/// The problem document of a store error.
pub(crate) fn store_failure(error: &semel_core::StoreError) -> Failure {
    match error.kind {
        StoreErrorKind::Rejected => Failure::refused(
            "the store refused the call; a cursor is valid only for the listing that returned it",
        ),
        _ => Failure::new(error.code(), error.to_string()),
    }
}
