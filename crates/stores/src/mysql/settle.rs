//! Settling, renewing and resolving: fenced by the statement's own condition.

use std::sync::Arc;

use bytes::Bytes;
use semel_core::store::StoreResult;
use semel_core::{Answer, protocol};
use semel_core::{Fence, Grant, Identity, Renewed, Resolution, Resolved, Settled, Settlement};

use super::Inner;
use super::claim::TRIES;
use super::error::{unexpected, unfit, unseen};
use super::link::failed;
use super::row::{self, Bound};
use super::sql::prepared;

impl Inner {
    pub(super) async fn settle(
        &self,
        lease: &Grant,
        settlement: &Settlement,
    ) -> StoreResult<Settled> {
        self.takes(settlement.answer().map(|answer| &**answer))?;
        for _ in 0..TRIES {
            let statement = || settle(&self.sql.settle, lease, settlement);
            // Whatever it matches it changes: a settlement never leaves the state as it was.
            let done = self.link.execute(statement).await.map_err(failed)?;
            if done.rows_affected() > 0 {
                return Ok(Settled::Done);
            }
            // Settled already, or another's: what the record says decides.
            let seen = self.look(&lease.identity).await;
            let Some(seen) = seen.map_err(|error| unseen(true, error))? else {
                return Ok(Settled::Lost);
            };
            let (fence, token) = (lease.fence, lease.token);
            let decision = protocol::settle(Some(&seen.record), fence, token, settlement, seen.now);
            if decision.write.is_none() {
                return Ok(decision.answer);
            }
        }
        Err(unexpected("overtaken too often"))
    }

    pub(super) async fn renew(
        &self,
        lease: &Grant,
        checkpoint: Option<&Bytes>,
    ) -> StoreResult<Renewed> {
        for _ in 0..TRIES {
            let statement = || {
                let query = prepared(&self.sql.renew);
                bind_owner(
                    query.bind(checkpoint.map(|checkpoint| checkpoint.to_vec())),
                    lease,
                )
            };
            let done = self.link.execute(statement).await.map_err(failed)?;
            if done.rows_affected() > 0 {
                return Ok(Renewed::Held);
            }
            // Whose it is doesn't matter any more, but it has to be one that we can read.
            let Some(seen) = self.look(&lease.identity).await? else {
                return Ok(Renewed::Lost);
            };
            let (fence, token) = (lease.fence, lease.token);
            let decision = protocol::renew(Some(&seen.record), fence, token, checkpoint, seen.now);
            if decision.write.is_none() {
                return Ok(decision.answer);
            }
            // Still ours: renewed twice in a microsecond, which a connection may count as no change.
        }
        Err(unexpected("overtaken too often"))
    }

    pub(super) async fn resolve(
        &self,
        identity: &Identity,
        fence: Fence,
        resolution: &Resolution,
    ) -> StoreResult<Resolved> {
        for _ in 0..TRIES {
            let Some(seen) = self.look(identity).await? else {
                return Ok(Resolved::NotInDoubt);
            };
            let decision = protocol::resolve(Some(&seen.record), fence, resolution, seen.now);
            let Some(write) = decision.write else {
                return Ok(decision.answer);
            };
            if self.swap(&seen, &write).await? {
                return Ok(decision.answer);
            }
        }
        Err(unexpected("overtaken too often"))
    }

    /// Refuses an answer that the server would cut the connection for.
    pub(super) fn takes(&self, answer: Option<&Answer>) -> StoreResult<()> {
        let bytes = answer.map_or(0, |answer| answer.head.len() + answer.body.held_bytes());
        if bytes <= self.max_answer_bytes {
            return Ok(());
        }
        Err(unfit(
            "the answer is larger than the server's max_allowed_packet; raise that, or keep smaller answers",
        ))
    }
}

/// A settlement, if the lease is the owner's.
pub(super) fn settle(statement: &Arc<str>, lease: &Grant, settlement: &Settlement) -> Bound {
    let state = settlement.state() as i8;
    let answer: Option<&Answer> = settlement.answer().map(|answer| &**answer);
    let query = row::bind_answer(prepared(statement).bind(state), answer).bind(state);
    bind_owner(query, lease).bind(state)
}

fn bind_owner(query: Bound, lease: &Grant) -> Bound {
    query
        .bind(lease.identity.address().to_vec())
        .bind(lease.identity.seal().to_vec())
        .bind(row::signed(lease.fence.0))
        .bind(row::bytes(lease.token))
}
