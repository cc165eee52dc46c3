//! Claiming: one `INSERT`, and a second step only for what lost.

use std::time::Duration;

use bytes::Bytes;
use semel_core::identity::Address;
use semel_core::store::StoreResult;
use semel_core::{Claim, Claimed, Fence, Grant, Identity, Record, Restored, protocol};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use super::Inner;
use super::error::{store_error, unexpected, unseen, without_body};
use super::row::{self, Bound, Seen, uuid, whole_millis};
use super::sql::Statement;

/// How often a step that was overtaken is tried again before giving up.
pub(super) const TRIES: usize = 16;

/// How often a claim is tried that finds its key in another's hands, with a pause after each but the last.
const CLAIM_TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(2);

impl Inner {
    /// A key that another has in hand is busy: one of them runs it (P4).
    pub(super) async fn claim(&self, ask: &Claim) -> StoreResult<Claimed> {
        let answer = self.try_claim(ask).await?;
        Ok(answer.unwrap_or(protocol::overtaken()))
    }

    /// Waits for no transaction of another's, and keeps no connection meanwhile. `None` where another has the key in
    /// hand: a transaction that has written the record and is still open, or claims that are quicker again and again.
    pub(super) async fn try_claim(&self, ask: &Claim) -> StoreResult<Option<Claimed>> {
        let (mut look_first, mut sent) = (ask.retry, false);
        let mut pause = FIRST_PAUSE;
        for tried in 1..=CLAIM_TRIES {
            sent |= !look_first;
            if !look_first
                && let Some(row) = self.link.row(|| insert_free(&self.sql.insert, ask)).await?
            {
                return Ok(Some(Claimed::Won(first_run(ask, &row)?)));
            }
            // Not in the same statement: its snapshot may be older than the row that it lost to.
            let seen = self.look(&ask.identity).await;
            let seen = seen.map_err(|error| unseen(sent, error))?;
            let has_only_looked = std::mem::take(&mut look_first);
            if let Some(seen) = seen {
                let decision = protocol::claim(Some(&seen.record), ask, seen.now);
                let Some(write) = decision.write else {
                    return Ok(Some(decision.answer));
                };
                // The last look is not followed by a write: one whose reply got lost is found by the next look alone.
                if tried < CLAIM_TRIES && self.take(&seen, &write).await? {
                    return Ok(Some(decision.answer));
                }
            } else if has_only_looked {
                continue;
            }
            // A claim of one statement is over by then, and its record can be read.
            if tried < CLAIM_TRIES {
                self.link.clock().sleep(pause).await;
                pause *= 4;
            }
        }
        Ok(None)
    }

    /// Like [`Self::swap`], for a run that begins: only if nobody else has the key in hand.
    async fn take(&self, seen: &Seen, new: &Record) -> StoreResult<bool> {
        let place = (seen.address, new.fence);
        let statement = || swap(&self.sql.take, seen, new, None).bind(lock(&seen.address));
        self.write(None, place, None, statement).await
    }

    /// The record, expired or not, and the server's time.
    pub(super) async fn look(&self, identity: &Identity) -> StoreResult<Option<Seen>> {
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

    /// Puts `new` in the place of exactly what was seen; answers whether it still was there.
    pub(super) async fn swap(&self, seen: &Seen, new: &Record) -> StoreResult<bool> {
        let answer = new.answer.as_deref();
        let day = self.day_for(answer, new.written_at, new.retention).await?;
        let place = (seen.address, new.fence);
        let statement = || swap(&self.sql.swap, seen, new, day);
        self.write(day, place, answer, statement).await
    }
}

impl Inner {
    /// A record from another store (P43).
    pub(super) async fn restore(
        &self,
        identity: &Identity,
        record: &Record,
    ) -> StoreResult<Restored> {
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
        for _ in 0..TRIES {
            if self.write(day, place, answer, statement).await? {
                return Ok(Restored::Written);
            }
            let Some(seen) = self.look(identity).await? else {
                if record.is_expired(self.now().await?) {
                    return Ok(Restored::Kept);
                }
                continue;
            };
            let decision = protocol::restore(Some(&seen.record), record, seen.now);
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

/// A first run, if there is no row and nobody else has the key in hand.
pub(super) fn insert_free(statement: &Statement, ask: &Claim) -> Bound {
    insert(statement, ask).bind(lock(&ask.identity.address()))
}

/// Under which number those who write the record of a key exclude each other, until their transaction ends.
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

/// The lease of a first run, from the row that `insert` gave.
pub(super) fn first_run(ask: &Claim, row: &PgRow) -> StoreResult<Grant> {
    let fence: i64 = row.try_get(0).map_err(store_error)?;
    Ok(Grant {
        identity: ask.identity,
        fence: Fence(fence.unsigned_abs()),
        token: ask.token,
        attempt: 1,
        checkpoint: Bytes::new(),
        lease: ask.terms.lease(),
        crash: ask.terms.crash(),
        memo: Bytes::new(),
    })
}

/// `new` in the place of exactly what was seen.
pub(super) fn swap(
    statement: &Statement,
    seen: &Seen,
    new: &Record,
    body_day: Option<i32>,
) -> Bound {
    let old = &seen.record;
    let query = statement
        .at(&seen.address)
        .bind(Uuid::from_bytes(seen.address))
        .bind(row::signed(old.fence.0))
        .bind(uuid(old.token))
        .bind(old.state as i16)
        .bind(row::signed(old.written_at.as_micros()));
    row::bind(query, new, body_day)
}
