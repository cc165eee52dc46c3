//! Settling, renewing and resolving: fenced by the statement's own condition.

use bytes::Bytes;
use semel_core::store::StoreResult;
use semel_core::{Answer, protocol};
use semel_core::{Fence, Grant, Identity, Renewed, Resolution, Resolved, Settled, Settlement};
use sqlx::types::Uuid;

use super::Inner;
use super::bodies::is_large;
use super::claim::TRIES;
use super::error::{unexpected, unseen};
use super::row::{self, Bound, uuid};
use super::sql::Statement;

impl Inner {
    pub(super) async fn settle(
        &self,
        lease: &Grant,
        settlement: &Settlement,
    ) -> StoreResult<Settled> {
        for _ in 0..TRIES {
            if self.write_settlement(lease, settlement).await? {
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

    async fn write_settlement(&self, lease: &Grant, settlement: &Settlement) -> StoreResult<bool> {
        let answer = settlement.answer().map(|answer| &**answer);
        let mut day = None;
        if is_large(answer) {
            // The row knows how long it will be kept.
            let Some(seen) = self.look(&lease.identity).await? else {
                return Ok(false);
            };
            day = self
                .day_for(answer, seen.now, seen.record.retention)
                .await?;
        }
        let place = (lease.identity.address(), lease.fence);
        let statement = || settle(&self.sql.settle, lease, settlement, day);
        self.write(day, place, answer, statement).await
    }

    pub(super) async fn renew(
        &self,
        lease: &Grant,
        checkpoint: Option<&Bytes>,
    ) -> StoreResult<Renewed> {
        let address = lease.identity.address();
        let statement = || {
            let query = bind_owner(self.sql.renew.at(&address), lease);
            query.bind(checkpoint.map(|checkpoint| checkpoint.to_vec()))
        };
        if self.link.row(statement).await?.is_some() {
            return Ok(Renewed::Held);
        }
        // Whose it is doesn't matter any more, but it has to be one that we can read.
        self.look(&lease.identity).await?;
        Ok(Renewed::Lost)
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
}

/// A settlement, if the lease is the owner's.
pub(super) fn settle(
    statement: &Statement,
    lease: &Grant,
    settlement: &Settlement,
    body_day: Option<i32>,
) -> Bound {
    let query = bind_owner(statement.at(&lease.identity.address()), lease);
    let query = query.bind(settlement.state() as i16);
    let answer: Option<&Answer> = settlement.answer().map(|answer| &**answer);
    row::bind_answer(query, answer, body_day)
}

fn bind_owner(query: Bound, lease: &Grant) -> Bound {
    query
        .bind(Uuid::from_bytes(lease.identity.address()))
        .bind(Uuid::from_bytes(lease.identity.seal()))
        .bind(row::signed(lease.fence.0))
        .bind(uuid(lease.token))
}
