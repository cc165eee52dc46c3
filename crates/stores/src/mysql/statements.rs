//! Sends the statements of records, for the steps in [`records`](crate::sql::records).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::identity::Address;
use semel_core::store::StoreResult;
use semel_core::{Answer, Claim, Clock, Fence, Grant, Identity, Record, Settlement, Timestamp};

use super::Inner;
use super::error::{DUPLICATE, LOCK_WAIT, has_number, store_error, unfit};
use super::row::{self, Bound, RowRecord, bytes, whole_millis};
use super::sql::{NOW, once, prepared};
use crate::sql::group;
use crate::sql::records::{InsertOutcome, Statements};
use crate::sql::row::format_of;

/// How many times a step that lost its compare-and-swap is tried before giving up.
pub(super) const TRIES: usize = 16;

impl Statements for Inner {
    const CLAIM_ATTEMPTS: u32 = 16;
    const CLAIM_BACK_OFF: Duration = Duration::ZERO;

    async fn look(&self, identity: &Identity) -> StoreResult<Option<RowRecord>> {
        let address = identity.address();
        let statement = || prepared(&self.sql.look).bind(address.to_vec());
        let Some(row) = self.link.row(statement).await? else {
            return Ok(None);
        };
        let found = row::parse(&row).map_err(store_error)?;
        row::check(found, identity).map(Some)
    }

    async fn insert(&self, ask: &Claim) -> StoreResult<InsertOutcome> {
        group::insert(self, ask, || self.insert_alone(ask)).await
    }

    async fn take(&self, address: Address, old: &Record, new: &Record) -> StoreResult<bool> {
        self.swap(address, old, new).await
    }

    async fn swap(&self, address: Address, old: &Record, new: &Record) -> StoreResult<bool> {
        self.takes(new.answer.as_deref())?;
        self.writes(|| swap(&self.sql.swap, address, old, new))
            .await
    }

    async fn insert_record(&self, identity: &Identity, record: &Record) -> StoreResult<bool> {
        self.takes(record.answer.as_deref())?;
        let statement = || {
            row::bind(prepared(&self.sql.restore), record)
                .bind(identity.address().to_vec())
                .bind(identity.seal().to_vec())
        };
        match self.link.send(statement, false).await {
            Ok(_) => Ok(true),
            Err(failure) if has_number(&failure, DUPLICATE) || has_number(&failure, LOCK_WAIT) => {
                Ok(false)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    async fn write_settlement(&self, lease: &Grant, settlement: &Settlement) -> StoreResult<bool> {
        self.takes(settlement.answer().map(|answer| &**answer))?;
        let alone = || self.writes(|| settle(&self.sql.settle, lease, settlement));
        group::settle(self, lease, settlement, alone).await
    }

    /// Two renewals within a microsecond may be counted as no change; the record then says that the
    /// lease is held.
    async fn write_renewal(&self, lease: &Grant, checkpoint: Option<&Bytes>) -> StoreResult<bool> {
        let statement = || {
            let format = checkpoint.map(|checkpoint| format_of(Some(checkpoint), None));
            let checkpoint = checkpoint.map(|checkpoint| checkpoint.to_vec());
            let query = prepared(&self.sql.renew).bind(checkpoint).bind(format);
            bind_owner(query, lease)
        };
        self.writes(statement).await
    }

    async fn now(&self) -> StoreResult<Timestamp> {
        let micros = self.number(|| once(format!("SELECT {NOW}"))).await?;
        Ok(Timestamp::from_micros(micros.unsigned_abs()))
    }

    fn clock(&self) -> &dyn Clock {
        self.link.clock()
    }
}

impl Inner {
    async fn insert_alone(&self, ask: &Claim) -> StoreResult<InsertOutcome> {
        let statement = || insert(&self.sql.insert, ask);
        match self.link.send(statement, false).await {
            Ok(done) => Ok(InsertOutcome::Done(Fence(done.last_id))),
            Err(failure) if has_number(&failure, DUPLICATE) => Ok(InsertOutcome::Lost),
            // An open transaction has such a row, so that one runs the effect, unless it may be our
            // own.
            Err(failure) if has_number(&failure, LOCK_WAIT) && !failure.is_uncertain => {
                Ok(InsertOutcome::Busy)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// Whether a statement is known to have written a row: every `UPDATE` of ours changes each row
    /// that it matches.
    async fn writes(&self, statement: impl Fn() -> Bound) -> StoreResult<bool> {
        Ok(self.link.send(statement, false).await?.affected > 0)
    }

    /// Rejects an answer that is too large for the server, which would close the connection.
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

/// A first run, if there is no row.
pub(super) fn insert(statement: &Arc<str>, ask: &Claim) -> Bound {
    bind_claim(prepared(statement), ask)
}

pub(super) fn bind_claim(query: Bound, ask: &Claim) -> Bound {
    query
        .bind(whole_millis(ask.terms.retention()))
        .bind(whole_millis(ask.terms.lease()))
        .bind(ask.terms.max_attempts())
        .bind(ask.secret_id)
        .bind(ask.terms.crash() as i8)
        .bind(ask.identity.address().to_vec())
        .bind(ask.identity.seal().to_vec())
        .bind(bytes(ask.token))
        .bind(ask.fingerprint.as_bytes().to_vec())
        .bind(ask.namespace.environment().as_bytes().to_vec())
        .bind(ask.namespace.tenant().as_bytes().to_vec())
        .bind(ask.namespace.scope().as_bytes().to_vec())
        .bind(ask.hint.as_str().as_bytes().to_vec())
}

/// `new` in the place of exactly `old`.
pub(super) fn swap(statement: &Arc<str>, address: Address, old: &Record, new: &Record) -> Bound {
    row::bind(prepared(statement), new)
        .bind(address.to_vec())
        .bind(row::signed(old.fence.0))
        .bind(bytes(old.token))
        .bind(old.state as i8)
        .bind(row::signed(old.written_at.as_micros()))
}

/// A settlement, if the lease is the owner's.
pub(super) fn settle(statement: &Arc<str>, lease: &Grant, settlement: &Settlement) -> Bound {
    let state = settlement.state() as i8;
    let answer: Option<&Answer> = settlement.answer().map(|answer| &**answer);
    let format = format_of(None, answer.map(|answer| &answer.head[..]));
    let query = row::bind_answer(prepared(statement).bind(state), answer)
        .bind(state)
        .bind(format)
        .bind(state);
    bind_owner(query, lease).bind(state)
}

fn bind_owner(query: Bound, lease: &Grant) -> Bound {
    query
        .bind(lease.identity.address().to_vec())
        .bind(lease.identity.seal().to_vec())
        .bind(row::signed(lease.fence.0))
        .bind(row::bytes(lease.token))
}
