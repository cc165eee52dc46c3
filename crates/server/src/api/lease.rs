//! `renew`, `settle` and `keys`: what the owner of a lease does with it.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use semel_core::engine::{Problem, RemoteLease, Response as Settled, Verdict};
use semel_core::{Fence, Identity, Namespace, Record};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::ApiState;
use super::access::Caller;
use super::answer::AnswerInput;
use super::claims::token_of;
use super::view::{ClaimView, Status, millis};
use super::wire::{
    Failure, Id, Json, P400, P401, P403, P404, P408, P409, P413, P415, P422, P500, P503, answer,
    given, hex, present, whole,
};

/// The most names of downstream keys in one request.
const MAX_NAMES: usize = 16;

/// A name of a downstream key, such as `psp`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, ToSchema)]
#[schema(pattern = "^[ -~]{1,128}$")]
pub(crate) struct Name(String);

pub(super) fn check_names(names: &[Name]) -> Result<(), Failure> {
    if names.len() > MAX_NAMES {
        return Err(Failure::invalid(format!(
            "at most {MAX_NAMES} names are taken"
        )));
    }
    names
        .iter()
        .try_for_each(|Name(name)| super::wire::check_text("a name", name, 128))
}

impl ApiState {
    pub(super) fn derive(&self, identity: &Identity, names: &[Name]) -> BTreeMap<String, String> {
        let secret = self.semel.engine().secret();
        let key = |Name(name): &Name| (name.clone(), identity.derive_key(secret, name));
        names.iter().map(key).collect()
    }

    /// Whether the caller may know of what lives there.
    pub(super) fn may_see(&self, caller: &Caller, namespace: &Namespace) -> bool {
        caller.may_see(namespace.tenant()) && namespace.environment() == self.semel.environment()
    }
}

/// Keeps the lease, and a checkpoint with it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewRequest {
    /// The lease's token.
    #[schema(min_length = 32, max_length = 32, pattern = "^[0-9a-f]{32}$")]
    token: String,
    /// The lease's fence.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 0)]
    fence: u64,
    /// Progress to keep for whoever runs next, should this owner vanish: any JSON, at most 64 KiB.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    checkpoint: Option<Box<RawValue>>,
}

/// A lease that was renewed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RenewView {
    /// Of the claim.
    id: String,
    /// `running`.
    status: Status,
    /// How long the owner may still start things, from when the server answered.
    expires_in_ms: u64,
    /// How long the server held this request.
    took_ms: u64,
}

/// Renew a lease.
#[utoipa::path(
    post,
    path = "/v1/claims/{id}/renew",
    tag = "protocol",
    params(("id" = String, Path, description = "The claim's id.", pattern = "^[0-9a-f]{64}$")),
    request_body = RenewRequest,
    responses(
        (status = 200, description = "The lease lives for its full span again.", body = RenewView),
        P400, P401, P403, P408, P409, P413, P415, P422, P500, P503
    ),
    security(("bearer" = []))
)]
pub(super) async fn renew(
    State(state): State<ApiState>,
    caller: Caller,
    Id(identity): Id,
    Json(asked): Json<RenewRequest>,
) -> Result<Response, Failure> {
    let clock = &state.semel.engine().env().clock;
    let began = clock.now();
    let checkpoint = asked
        .checkpoint
        .map(|json| Bytes::from(json.get().to_owned()));
    if checkpoint
        .as_ref()
        .is_some_and(|bytes| bytes.len() > Record::MAX_CHECKPOINT_BYTES)
    {
        let most = Record::MAX_CHECKPOINT_BYTES;
        return Err(Failure::refused(format!(
            "a checkpoint has at most {most} bytes"
        )));
    }
    let lease = RemoteLease {
        identity,
        fence: Fence(asked.fence),
        token: token_of(&asked.token)?,
    };
    let may = |namespace: &Namespace| state.may_see(&caller, namespace);
    let renewed = Box::pin(state.semel.engine().renew(&lease, checkpoint.as_ref(), may)).await;
    let remaining = renewed.map_err(|problem| lost_or(&problem, &identity))?;
    let view = RenewView {
        id: hex(identity.as_bytes()),
        status: Status::Running,
        expires_in_ms: millis(remaining),
        took_ms: millis(clock.now().since(began)),
    };
    Ok(answer(StatusCode::OK, &view))
}

/// What became of the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// It happened: keep and replay the answer.
    Complete,
    /// It failed for good: keep and replay the failure.
    Fail,
    /// It failed before anything happened: free the key.
    Release,
    /// It failed, and may have happened in part: free the key under `takeover`, in doubt under `hold`.
    Retry,
    /// Nobody knows: sent, and no reply came.
    Doubt,
}

/// Ends the lease.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleRequest {
    /// The lease's token.
    #[schema(min_length = 32, max_length = 32, pattern = "^[0-9a-f]{32}$")]
    token: String,
    /// The lease's fence.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 0)]
    fence: u64,
    /// What became of the effect.
    outcome: Outcome,
    /// The answer to keep, with `complete` and `fail`.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    answer: Option<AnswerInput>,
}

/// A claim that was settled.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SettleView {
    /// Of the claim.
    id: String,
    /// What the record says now. `running` where a release could not be recorded: the lease lapses by itself.
    status: Status,
    /// Of the lease.
    fence: u64,
    /// 1, or more where earlier owners vanished.
    attempt: u16,
}

/// Settle a lease.
#[utoipa::path(
    post,
    path = "/v1/claims/{id}/settle",
    tag = "protocol",
    params(("id" = String, Path, description = "The claim's id.", pattern = "^[0-9a-f]{64}$")),
    request_body = SettleRequest,
    responses(
        (status = 200, description = "Recorded; the same settlement sent again says so again.", body = SettleView),
        P400, P401, P403, P408, P409, P413, P415, P422, P500, P503
    ),
    security(("bearer" = []))
)]
pub(super) async fn settle(
    State(state): State<ApiState>,
    caller: Caller,
    Id(identity): Id,
    Json(asked): Json<SettleRequest>,
) -> Result<Response, Failure> {
    let verdict = verdict(asked.outcome, asked.answer)?;
    let lease = RemoteLease {
        identity,
        fence: Fence(asked.fence),
        token: token_of(&asked.token)?,
    };
    let most = state.semel.policy().max_answer_bytes;
    let engine = state.semel.engine().clone();
    let may = move |namespace: &Namespace| state.may_see(&caller, namespace);
    match Box::pin(engine.settle(lease, verdict, most, may)).await {
        Settled::Ran(ran) => {
            let view = SettleView {
                id: hex(identity.as_bytes()),
                status: ran.state.into(),
                fence: ran.fence.0,
                attempt: ran.attempt,
            };
            Ok(answer(StatusCode::OK, &view))
        }
        // Another took over and is done: its answer is everybody's answer, this caller's too.
        Settled::Replayed(replayed) => {
            let view = ClaimView::replayed(&identity, &replayed, Duration::ZERO);
            Err(lost(&identity).with("claim", view))
        }
        Settled::Problem(problem) => Err(lost_or(&problem, &identity)),
        Settled::Unprotected(()) => Err(lost(&identity)),
    }
}

fn verdict(outcome: Outcome, answer: Option<AnswerInput>) -> Result<Verdict, Failure> {
    let keeps = matches!(outcome, Outcome::Complete | Outcome::Fail);
    if answer.is_some() && !keeps {
        let detail = "an answer is kept with complete and fail only";
        return Err(Failure::refused(detail));
    }
    let answer = answer.unwrap_or_default();
    Ok(match outcome {
        Outcome::Complete => Verdict::Complete(answer.into_answer()?),
        Outcome::Fail => Verdict::Fail(answer.into_answer()?),
        Outcome::Release => Verdict::NoEffect,
        Outcome::Retry => Verdict::Retry,
        Outcome::Doubt => Verdict::Unknown,
    })
}

fn lost_or(problem: &Problem, identity: &Identity) -> Failure {
    match problem {
        Problem::LeaseLost { .. } => lost(identity),
        other => Failure::of_engine(other).with("claimId", hex(identity.as_bytes())),
    }
}

/// Sending the same again won't help: the lease is another's, or was settled otherwise.
fn lost(identity: &Identity) -> Failure {
    let detail =
        "the lease isn't this owner's any more, or was settled otherwise; nothing was changed";
    let mut failure = Failure::of("idempotency_lease_lost", detail);
    failure.0.status = 409;
    failure.0.row.retryable = false;
    failure.0.retry_after = None;
    failure.with("claimId", hex(identity.as_bytes()))
}

/// Asks for keys of systems further down the road.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeysRequest {
    /// One name for each step, such as `psp`.
    #[schema(min_items = 1, max_items = 16)]
    names: Vec<Name>,
}

/// Keys for systems further down the road.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeysView {
    /// Of the claim.
    id: String,
    /// The keys, by name.
    keys: BTreeMap<String, String>,
}

/// Derive downstream keys.
#[utoipa::path(
    post,
    path = "/v1/claims/{id}/keys",
    tag = "protocol",
    params(("id" = String, Path, description = "The claim's id.", pattern = "^[0-9a-f]{64}$")),
    request_body = KeysRequest,
    responses(
        (status = 200, description = "The same for this operation and name, whoever asks, on every attempt.", body = KeysView),
        P400, P401, P403, P404, P408, P413, P415, P500, P503
    ),
    security(("bearer" = []))
)]
pub(super) async fn keys(
    State(state): State<ApiState>,
    caller: Caller,
    Id(identity): Id,
    Json(asked): Json<KeysRequest>,
) -> Result<Response, Failure> {
    check_names(&asked.names)?;
    if asked.names.is_empty() {
        return Err(Failure::invalid("give at least one name"));
    }
    state.see(&caller, &identity).await?;
    let view = KeysView {
        id: hex(identity.as_bytes()),
        keys: state.derive(&identity, &asked.names),
    };
    Ok(answer(StatusCode::OK, &view))
}
