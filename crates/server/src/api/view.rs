//! What the protocol API shows of a claim.

use std::collections::BTreeMap;
use std::time::Duration;

use semel::Semel;
use semel_core::engine::{HandedOut, Replayed};
use semel_core::{Identity, Record, State, StoreErrorKind, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::answer::{AnswerView, shown};
use super::terms::Crash;
use super::wire::{Failure, hex};

/// Where a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// The lease is yours: run it, and settle.
    Claimed,
    /// Run it without a lease, and settle nothing: the scope is not enforced, or fails open.
    Unprotected,
    /// Somebody runs it.
    Running,
    /// Done; the answer is kept.
    Completed,
    /// Failed for good; the failure is kept.
    Failed,
    /// Nobody knows whether it happened.
    InDoubt,
    /// Free to claim.
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

/// A claim, as its answer or a look shows it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimView {
    /// The key's hash: what to name the claim by from here on.
    pub(crate) id: String,
    /// Where it stands.
    pub(crate) status: Status,
    /// Whether an earlier run answered.
    pub(crate) replayed: bool,
    /// How long the server held this request. A deadline counts from when the request was sent, plus this.
    pub(crate) took_ms: u64,
    /// The lease, where `status` is `claimed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) lease: Option<LeaseView>,
    /// The answer, where `status` is `completed` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) answer: Option<AnswerView>,
    /// Runs begun since the key was last free.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) attempt: Option<u16>,
    /// The fence of the current or last lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) fence: Option<u64>,
    /// When the key was first claimed, on the store's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) original_time: Option<String>,
    /// When the answer was stored, on the store's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) settled_time: Option<String>,
    /// The how-manieth replay by this server; absent where none is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) replay_number: Option<u32>,
}

/// The right to run, until a time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeaseView {
    /// The mark of the owner: a secret between you and the server.
    pub(crate) token: String,
    /// Larger than that of any earlier lease of the key.
    pub(crate) fence: u64,
    /// 1, or more where earlier owners vanished.
    pub(crate) attempt: u16,
    /// How long you may still start things, from when the server answered; a margin is taken off already.
    pub(crate) expires_in_ms: u64,
    /// How often to renew.
    pub(crate) renew_every_ms: u64,
    /// The stored crash policy, which may be another than the one asked for.
    pub(crate) crash: Crash,
    /// What the last owner kept, where it vanished after that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(crate) checkpoint: Option<Box<RawValue>>,
    /// The same in base64, where it isn't JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) checkpoint_base64: Option<String>,
    /// Keys for systems further down the road, by the names asked for: the same on every attempt.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) downstream_keys: BTreeMap<String, String>,
}

impl LeaseView {
    pub(crate) fn of(out: &HandedOut) -> Self {
        let grant = &out.grant;
        let (checkpoint, checkpoint_base64) = shown(&grant.checkpoint);
        Self {
            token: format!("{:032x}", grant.token.0),
            fence: grant.fence.0,
            attempt: grant.attempt,
            expires_in_ms: millis(out.remaining),
            renew_every_ms: millis(grant.lease / 3),
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
            took_ms: millis(took),
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
            answer: Some(AnswerView::of(&replay.answer)),
            attempt: Some(replay.attempt),
            original_time: Some(time(replay.requested_at)),
            settled_time: Some(time(replay.settled_at)),
            replay_number: replayed.number,
            ..Self::new(identity, replay.state.into(), took)
        }
    }

    pub(crate) fn of(identity: &Identity, record: &Record, state: State, took: Duration) -> Self {
        let settled = matches!(state, State::Completed | State::Failed);
        Self {
            replayed: settled,
            answer: record
                .answer
                .as_deref()
                .filter(|_| settled)
                .map(AnswerView::of),
            attempt: Some(record.attempt),
            fence: Some(record.fence.0),
            original_time: Some(time(record.created_at)),
            settled_time: settled.then(|| time(record.written_at)),
            ..Self::new(identity, state.into(), took)
        }
    }
}

/// Where a record stands on the store's clock: a lapsed lease that may not be taken over is in doubt,
/// whether a claim has noticed yet or not.
pub(crate) async fn standing(
    semel: &Semel,
    record: &Record,
) -> Result<(State, Timestamp), Failure> {
    let now = semel
        .store()
        .now()
        .await
        .map_err(|error| store_failed(&error))?;
    let in_doubt = record.is_in_doubt(now);
    Ok((
        if in_doubt {
            State::InDoubt
        } else {
            record.state
        },
        now,
    ))
}

/// Nothing of what the store said, but its kind.
pub(crate) fn store_failed(error: &semel_core::StoreError) -> Failure {
    match error.kind {
        StoreErrorKind::Rejected => Failure::refused(
            "the store refused the call; a cursor is good for the listing that gave it",
        ),
        _ => Failure::of(error.code(), error.to_string()),
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// RFC 3339 in UTC, to the millisecond.
pub(crate) fn time(at: Timestamp) -> String {
    let whole = semel_http::rfc3339(at);
    let millis = at.as_micros() / 1000 % 1000;
    format!("{}.{millis:03}Z", whole.trim_end_matches('Z'))
}
