//! The quota of a tenant's claims: what they keep in the store.

use std::sync::Arc;

use semel_core::engine::{LeaseHandout, Verdict};
use semel_core::policy::Mode;
use semel_core::{AnswerBody, Fence, Identity, State};
use semel_http::Refusal;

use super::ApiState;
use crate::web::{Caller, Failure, SettlementEffect, TenantQuota};

/// The quota of a claim.
pub(super) struct ClaimQuota {
    quota: Arc<dyn TenantQuota>,
    identity: Identity,
    /// Whether the key is counted already.
    is_counted: bool,
    /// Whether the store has the key, so that the claim adds nothing.
    is_known: bool,
}

impl ClaimQuota {
    /// Checks the quota of a claim. `None` if the tenant has no quota.
    pub(super) async fn check(
        state: &ApiState,
        caller: &Caller,
        claim: &ClaimTerms<'_>,
    ) -> Result<Option<Self>, Failure> {
        let Some(quota) = caller.quota(claim.tenant) else {
            return Ok(None);
        };
        let has_room = quota.room() > 0;
        let mut is_known = false;
        // A claim with its own token may be a retry of one that has won.
        if !has_room || claim.has_token {
            let found = state.semel.engine().read(&claim.identity).await;
            // A store that does not answer leaves the decision to the claim.
            let is_taken = |found: Option<semel_core::Record>| {
                found.is_some_and(|record| record.state != State::Released)
            };
            is_known = found.map_or(true, is_taken);
        }
        if !has_room && !is_known && claim.mode == Mode::Enforce {
            quota.count_refusal();
            return Err(Refusal::QuotaExceeded.into());
        }
        // Such a claim can win after its caller has left.
        let is_counted = claim.has_token && !is_known;
        if is_counted {
            quota.add(1, 0);
        }
        Ok(Some(Self {
            quota,
            identity: claim.identity,
            is_counted,
            is_known,
        }))
    }

    /// Counts the key of a claim that won.
    pub(super) fn count_won(self, won: &LeaseHandout) {
        // A later attempt took over a key that is counted.
        if self.is_known || won.grant.attempt != 1 {
            return self.count_nothing();
        }
        if !self.is_counted {
            self.quota.add(1, 0);
        }
        self.quota.open_lease(self.identity, won.grant.fence);
    }

    /// Takes back the key of a claim that did not win.
    pub(super) fn count_nothing(self) {
        if self.is_counted {
            self.quota.remove(1, 0);
        }
    }
}

/// What decides about the quota of a claim.
pub(super) struct ClaimTerms<'a> {
    pub(super) tenant: &'a str,
    pub(super) identity: Identity,
    pub(super) mode: Mode,
    /// Whether the caller chose the token of the lease.
    pub(super) has_token: bool,
}

/// The quota of a settlement.
pub(super) struct SettlementQuota {
    quota: Arc<dyn TenantQuota>,
    identity: Identity,
    fence: Fence,
    /// The bytes that are counted; `None` for a settlement that was counted when it was sent
    /// before.
    counted: Option<u64>,
}

impl SettlementQuota {
    /// Counts the answer of a settlement, which may be recorded after its caller has left.
    pub(super) fn count(
        quota: Arc<dyn TenantQuota>,
        identity: Identity,
        fence: Fence,
        bytes: u64,
    ) -> Self {
        let counted = quota.begin_settlement(identity, fence).then_some(bytes);
        quota.add(0, counted.unwrap_or_default());
        Self {
            quota,
            identity,
            fence,
            counted,
        }
    }

    /// Takes back what is not kept. `state` is that of the record; `None` if nothing was recorded.
    pub(super) fn correct(&self, state: Option<State>) {
        let Some(bytes) = self.counted else { return };
        let effect = match state {
            Some(State::Completed | State::Failed) => SettlementEffect::Kept,
            Some(State::InDoubt) => SettlementEffect::InDoubt,
            Some(State::Released) => SettlementEffect::Released,
            Some(State::Running) | None => SettlementEffect::Nothing,
        };
        if effect != SettlementEffect::Kept {
            self.quota.remove(0, bytes);
        }
        self.quota.end_settlement(self.identity, self.fence, effect);
    }
}

/// The bytes of an answer that the store keeps.
pub(super) fn kept_bytes(verdict: &Verdict, most: usize) -> u64 {
    let (Verdict::Complete(answer) | Verdict::Fail(answer)) = verdict else {
        return 0;
    };
    let body = match &answer.body {
        AnswerBody::Kept(body) if body.len() <= most => body.len(),
        _ => 0,
    };
    (answer.head.len() + body) as u64
}
