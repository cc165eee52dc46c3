//! The statements of records; [`records`] has the order in which they are sent.

use std::time::Duration;

use bytes::Bytes;
use semel_core::identity::Address;
use semel_core::store::StoreResult;
use semel_core::{Answer, Claim, Clock, Fence, Grant, Identity, Record, Settlement, Timestamp};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use super::Inner;
use super::bodies::is_large;
use super::error::{store_error, without_body};
use super::row::{self, Bound, RowRecord, uuid, whole_millis};
use super::sql::Statement;
use crate::sql::group;
use crate::sql::records::{InsertOutcome, Statements};

/// How often a row whose body is gone is read again, and how often a step in the caller's
/// transaction is tried.
pub(super) const TRIES: usize = 16;

impl Statements for Inner {
    /// A claim waits for no transaction of another's, and holds no connection meanwhile.
    const CLAIM_ATTEMPTS: u32 = 4;
    const CLAIM_BACK_OFF: Duration = Duration::from_millis(2);

    async fn look(&self, identity: &Identity) -> StoreResult<Option<RowRecord>> {
        let address = identity.address();
        let statement = || self.sql.look.at(&address).bind(Uuid::from_bytes(address));
        for _ in 0..TRIES {
            let Some(row) = self.link.row(statement).await? else {
                return Ok(None);
            };
            let seen = row::check(row::parse(&row).map_err(store_error)?, identity)?;
            if let Some(seen) = self.with_body(seen).await? {
                return Ok(Some(seen));
            }
        }
        Err(without_body())
    }

    async fn insert(&self, ask: &Claim) -> StoreResult<InsertOutcome> {
        let alone = async || {
            let row = self.link.row(|| insert_free(&self.sql.insert, ask)).await?;
            let Some(row) = row else {
                return Ok(InsertOutcome::Lost);
            };
            Ok(InsertOutcome::Done(first_run(ask, &row)?.fence))
        };
        group::insert(self, ask, alone).await
    }

    /// Only if nobody else has the key in hand.
    async fn take(&self, address: Address, old: &Record, new: &Record) -> StoreResult<bool> {
        let take = &self.sql.take;
        let statement = || swap(take, address, old, new, None).bind(lock(&address));
        self.write(None, (address, new.fence), None, statement)
            .await
    }

    async fn swap(&self, address: Address, old: &Record, new: &Record) -> StoreResult<bool> {
        let answer = new.answer.as_deref();
        let day = self.day_for(answer, new.written_at, new.retention).await?;
        let statement = || swap(&self.sql.swap, address, old, new, day);
        let place = (address, new.fence);
        self.write(day, place, answer, statement).await
    }

    async fn insert_record(&self, identity: &Identity, record: &Record) -> StoreResult<bool> {
        let (answer, address) = (record.answer.as_deref(), identity.address());
        let day = self
            .day_for(answer, record.written_at, record.retention)
            .await?;
        let statement = || {
            let query = self.sql.restore.at(&address);
            let query = query
                .bind(Uuid::from_bytes(address))
                .bind(Uuid::from_bytes(identity.seal()));
            row::bind(query, record, day)
        };
        let place = (address, record.fence);
        self.write(day, place, answer, statement).await
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
        let alone = || self.write(day, place, answer, statement);
        match day {
            Some(_) => alone().await,
            None => group::settle(self, lease, settlement, alone).await,
        }
    }

    async fn write_renewal(&self, lease: &Grant, checkpoint: Option<&Bytes>) -> StoreResult<bool> {
        let address = lease.identity.address();
        let statement = || {
            let query = bind_owner(self.sql.renew.at(&address), lease);
            query.bind(checkpoint.map(|checkpoint| checkpoint.to_vec()))
        };
        Ok(self.link.row(statement).await?.is_some())
    }

    async fn now(&self) -> StoreResult<Timestamp> {
        let micros = self
            .number(|sql| sql.plain("SELECT semel.now_us()"))
            .await?;
        Ok(Timestamp::from_micros(micros.unsigned_abs()))
    }

    fn clock(&self) -> &dyn Clock {
        self.link.clock()
    }
}

/// A first run, if there is no row and nobody else has the key in hand.
pub(super) fn insert_free(statement: &Statement, ask: &Claim) -> Bound {
    insert(statement, ask).bind(lock(&ask.identity.address()))
}

/// Under which number those who write the record of a key exclude each other, until their
/// transaction ends.
pub(super) fn lock(address: &Address) -> i64 {
    i64::from_be_bytes(std::array::from_fn(|index| address[index]))
}

/// A first run, if there is no row.
pub(super) fn insert(statement: &Statement, ask: &Claim) -> Bound {
    statement
        .at(&ask.identity.address())
        .bind(whole_millis(ask.terms.retention()))
        .bind(i32::try_from(ask.terms.lease().as_millis()).unwrap_or(i32::MAX))
        .bind(ask.terms.max_attempts().cast_signed())
        .bind(ask.secret_id.cast_signed())
        .bind(ask.terms.crash() as i16)
        .bind(Uuid::from_bytes(ask.identity.address()))
        .bind(Uuid::from_bytes(ask.identity.seal()))
        .bind(uuid(ask.token))
        .bind(ask.fingerprint.as_bytes().to_vec())
        .bind(ask.namespace.environment().to_owned())
        .bind(ask.namespace.tenant().to_owned())
        .bind(ask.namespace.scope().to_owned())
        .bind(ask.hint.as_str().to_owned())
}

/// First runs of several claims.
pub(super) fn insert_all<'a, I>(query: Bound, asks: &I) -> Bound
where
    I: Iterator<Item = &'a Claim> + Clone,
{
    fn each<'a, T>(
        asks: &(impl Iterator<Item = &'a Claim> + Clone),
        of: impl Fn(&Claim) -> T,
    ) -> Vec<T> {
        asks.clone().map(of).collect()
    }
    query
        .bind(each(asks, |ask| whole_millis(ask.terms.retention())))
        .bind(each(asks, |ask| {
            i32::try_from(ask.terms.lease().as_millis()).unwrap_or(i32::MAX)
        }))
        .bind(each(asks, |ask| ask.terms.max_attempts().cast_signed()))
        .bind(each(asks, |ask| ask.secret_id.cast_signed()))
        .bind(each(asks, |ask| ask.terms.crash() as i16))
        .bind(each(asks, |ask| Uuid::from_bytes(ask.identity.address())))
        .bind(each(asks, |ask| Uuid::from_bytes(ask.identity.seal())))
        .bind(each(asks, |ask| uuid(ask.token)))
        .bind(each(asks, |ask| ask.fingerprint.as_bytes().to_vec()))
        .bind(each(asks, |ask| ask.namespace.environment().to_owned()))
        .bind(each(asks, |ask| ask.namespace.tenant().to_owned()))
        .bind(each(asks, |ask| ask.namespace.scope().to_owned()))
        .bind(each(asks, |ask| ask.hint.as_str().to_owned()))
}

/// The lease of a first run, from the row that `insert` gave.
pub(super) fn first_run(ask: &Claim, row: &PgRow) -> StoreResult<Grant> {
    let fence: i64 = row.try_get(0).map_err(store_error)?;
    Ok(Grant::first_run(ask, Fence(fence.unsigned_abs())))
}

/// `new` in the place of exactly `old`.
pub(super) fn swap(
    statement: &Statement,
    address: Address,
    old: &Record,
    new: &Record,
    body_day: Option<i32>,
) -> Bound {
    let query = statement
        .at(&address)
        .bind(Uuid::from_bytes(address))
        .bind(row::signed(old.fence.0))
        .bind(uuid(old.token))
        .bind(old.state as i16)
        .bind(row::signed(old.written_at.as_micros()));
    row::bind(query, new, body_day)
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
