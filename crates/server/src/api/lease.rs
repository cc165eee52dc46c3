//! The calls of a lease's owner: `renew` and `settle`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use semel::Policy;
use semel::core::Code;
use semel_core::engine::{Problem, RemoteLease, Response as Settled, Verdict};
use semel_core::{Fence, Identity, Namespace, Record};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::answer::AnswerInput;
use super::claims::parse_token;
use super::quota::{SettlementQuota, kept_bytes};
use super::view::{ClaimView, Status};
use super::{ApiState, finish};
use crate::web::{
    Caller, Failure, Json, Problem400, Problem401, Problem403, Problem408, Problem409, Problem413,
    Problem415, Problem422, Problem429, Problem500, Problem503, RecordId, deserialize_nullable,
    deserialize_present, deserialize_whole, hex, json_response, to_millis,
};

impl ApiState {
    /// Whether the caller may see records of the namespace.
    pub(super) fn may_see(&self, caller: &Caller, namespace: &Namespace) -> bool {
        caller.may_see(namespace.tenant()) && namespace.environment() == self.semel.environment()
    }
}

/// Renews a lease, optionally with a checkpoint.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewRequest {
    /// The lease's token.
    #[schema(min_length = 32, max_length = 32, pattern = "^[0-9a-f]{32}$")]
    token: String,
    /// The lease's fence.
    #[serde(deserialize_with = "deserialize_whole")]
    #[schema(minimum = 0)]
    fence: u64,
    /// Progress for the next owner, if this one crashes: any JSON of at most 64 KiB.
    #[serde(default, deserialize_with = "deserialize_nullable")]
    #[schema(value_type = Option<serde_json::Value>)]
    checkpoint: Option<Box<RawValue>>,
}

/// A renewed lease.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RenewView {
    /// The id of the claim.
    id: String,
    /// `running`.
    status: Status,
    /// How long the owner may start further steps, counted from the response of the server.
    expires_in_ms: u64,
    /// How long the server processed this request.
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
        (status = 200, description = "The lease is valid for its full span again.", body = RenewView),
        Problem400, Problem401, Problem403, Problem408, Problem409, Problem413, Problem415,
        Problem422, Problem429, Problem500, Problem503
    ),
    security(("bearer" = []))
)]
pub(super) async fn renew(
    State(state): State<ApiState>,
    caller: Caller,
    RecordId(identity): RecordId,
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
    let lease = RemoteLease::new(identity, Fence(asked.fence), parse_token(&asked.token)?);
    let mut quota = None;
    let may = |namespace: &Namespace| {
        quota = caller.quota(namespace.tenant());
        state.may_see(&caller, namespace)
    };
    let renewed = Box::pin(state.semel.engine().renew(&lease, checkpoint.as_ref(), may)).await;
    if let (Ok(_), Some(quota), Some(checkpoint)) = (&renewed, quota, &checkpoint) {
        quota.count_checkpoint(identity, lease.fence, checkpoint.len() as u64);
    }
    let remaining = renewed.map_err(|problem| lease_failure(&problem, &identity))?;
    let view = RenewView {
        id: hex(identity.as_bytes()),
        status: Status::Running,
        expires_in_ms: to_millis(remaining),
        took_ms: to_millis(clock.now().since(began)),
    };
    Ok(json_response(StatusCode::OK, &view))
}

/// The outcome of the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// The effect succeeded: the answer is kept and replayed.
    Complete,
    /// The effect failed permanently: the failure is kept and replayed.
    Fail,
    /// The effect failed before anything happened: the key is free.
    Release,
    /// The effect failed and may have happened in part: the key is free under `takeover`, and in
    /// doubt under `hold`.
    Retry,
    /// The outcome is unknown, for example because a reply was lost.
    Doubt,
}

/// Settles a lease.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleRequest {
    /// The lease's token.
    #[schema(min_length = 32, max_length = 32, pattern = "^[0-9a-f]{32}$")]
    token: String,
    /// The lease's fence.
    #[serde(deserialize_with = "deserialize_whole")]
    #[schema(minimum = 0)]
    fence: u64,
    /// The outcome of the effect.
    outcome: Outcome,
    /// The answer to keep, for `complete` and `fail`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(nullable = false)]
    answer: Option<AnswerInput>,
}

/// A settled claim.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SettleView {
    /// The id of the claim.
    id: String,
    /// The state of the record. It is `running` if a release could not be recorded; then the lease
    /// expires.
    status: Status,
    /// The fence of the lease.
    fence: u64,
    /// The attempt number: 1, or more if earlier owners crashed.
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
        (status = 200, description = "The settlement is recorded. Sending the same settlement \
            again has the same result.", body = SettleView),
        Problem400, Problem401, Problem403, Problem408, Problem409, Problem413, Problem415,
        Problem422, Problem429, Problem500, Problem503
    ),
    security(("bearer" = []))
)]
pub(super) async fn settle(
    State(state): State<ApiState>,
    caller: Caller,
    RecordId(identity): RecordId,
    Json(asked): Json<SettleRequest>,
) -> Result<Response, Failure> {
    let verdict = read_verdict(asked.outcome, asked.answer)?;
    let lease = RemoteLease::new(identity, Fence(asked.fence), parse_token(&asked.token)?);
    let most = state.semel.policy().max_answer_bytes;
    let bytes = kept_bytes(&verdict, most);
    let engine = state.semel.engine().clone();
    let counted = Arc::new(OnceLock::new());
    let counts = Arc::clone(&counted);
    let may = move |namespace: &Namespace| {
        let may = state.may_see(&caller, namespace);
        if may && let Some(quota) = caller.quota(namespace.tenant()) {
            let count = || SettlementQuota::count(quota, identity, lease.fence, bytes);
            counts.get_or_init(count);
        }
        let base = state
            .config
            .base_policy(namespace.scope(), state.semel.policy());
        // The body is kept as the policy of the process says.
        may.then(|| Arc::new(Policy::clone(base).with_max_answer_bytes(most)))
    };
    let env = engine.env().clone();
    let settled = finish(&env, async move {
        let settled = Box::pin(engine.settle(lease, verdict, may)).await;
        if let Some(counted) = counted.get() {
            counted.correct(match &settled {
                Settled::Ran(ran) => Some(ran.state),
                _ => None,
            });
        }
        settled
    });
    match settled.await? {
        Settled::Ran(ran) => {
            let view = SettleView {
                id: hex(identity.as_bytes()),
                status: ran.state.into(),
                fence: ran.fence.0,
                attempt: ran.attempt,
            };
            Ok(json_response(StatusCode::OK, &view))
        }
        // Another owner took over and has settled. Its answer is the answer of the key.
        Settled::Replayed(replayed) => {
            let view = ClaimView::replayed(&identity, &replayed, Duration::ZERO);
            Err(lease_not_held(&identity).with("claim", view))
        }
        Settled::Problem(problem) => Err(lease_failure(&problem, &identity)),
        Settled::Unprotected(()) => Err(lease_not_held(&identity)),
    }
}

fn read_verdict(outcome: Outcome, answer: Option<AnswerInput>) -> Result<Verdict, Failure> {
    let keeps = matches!(outcome, Outcome::Complete | Outcome::Fail);
    if answer.is_some() && !keeps {
        let detail = "only complete and fail have an answer";
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

fn lease_failure(problem: &Problem, identity: &Identity) -> Failure {
    match problem {
        Problem::LeaseLost { .. } => lease_not_held(identity),
        other => Failure::from_problem(other).with("claimId", hex(identity.as_bytes())),
    }
}

/// A retry is useless: another owner has the lease, or it was settled with another outcome.
fn lease_not_held(identity: &Identity) -> Failure {
    let detail =
        "another owner has the lease, or it was settled with another outcome; nothing was changed";
    let failure = Failure::new(Code::LeaseNotHeld, detail);
    failure.with("claimId", hex(identity.as_bytes()))
}
