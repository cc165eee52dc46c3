//! Large bodies in a table of their own, partitioned by the day on which they expire: dropping a
//! day is cheap, and the rows that every claim reads stay small.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::identity::Address;
use semel_core::store::StoreResult;
use semel_core::{Answer, AnswerBody, Fence, Timestamp};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use super::BEGIN;
use super::Inner;
use super::error::{is_without_partition, store_error};
use super::row::{Bound, RowRecord, signed};

/// The size from which on a body is kept in the table of bodies.
const LARGE_BYTES: usize = 32 * 1024;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The days whose partitions are known to exist.
#[derive(Default)]
pub(super) struct Days(Mutex<BTreeSet<i32>>);

/// The day of `at`, since 1970.
fn day(at: Timestamp) -> i32 {
    i32::try_from(at.as_micros() / 1_000_000 / DAY.as_secs()).unwrap_or(i32::MAX)
}

/// Whether the answer's body is kept in the table of bodies.
pub(super) fn is_large(answer: Option<&Answer>) -> bool {
    large(answer).is_some()
}

fn large(answer: Option<&Answer>) -> Option<&Bytes> {
    match &answer?.body {
        AnswerBody::Kept(body) if body.len() >= LARGE_BYTES => Some(body),
        _ => None,
    }
}

impl Inner {
    /// The day to keep the answer's body under, its partition made; `None` if it is small.
    pub(super) async fn day_for(
        &self,
        answer: Option<&Answer>,
        written_at: Timestamp,
        retention: Duration,
    ) -> StoreResult<Option<i32>> {
        if !is_large(answer) {
            return Ok(None);
        }
        // A day more: the record is written a little later than `written_at` says.
        let day = day(written_at.plus(retention).plus(DAY));
        self.open_day(day).await?;
        Ok(Some(day))
    }

    /// Sends a statement that writes an answer into the row and gives whether somebody waits for
    /// it; if the body is large, writes that in the same transaction, and only if the row was
    /// written. Answers whether it was.
    pub(super) async fn write(
        &self,
        day: Option<i32>,
        (address, fence): (Address, Fence),
        answer: Option<&Answer>,
        statement: impl Fn() -> Bound,
    ) -> StoreResult<bool> {
        let written = match (day, large(answer)) {
            (Some(day), Some(body)) => {
                let insert = || self.insert_body(day, address, fence, body);
                match self.write_both(&statement, &insert).await? {
                    Ok(written) => written,
                    Err(refused) if is_without_partition(&refused) => {
                        // Known to be there, and gone: a failover has lost it.
                        self.days.0.lock().remove(&day);
                        self.open_day(day).await?;
                        let again = self.write_both(&statement, &insert).await?;
                        again.map_err(store_error)?
                    }
                    Err(refused) => return Err(store_error(refused)),
                }
            }
            _ => self.link.row(statement).await?,
        };
        let Some(row) = written else { return Ok(false) };
        if row.try_get(0).map_err(store_error)? {
            self.tell(address);
        }
        Ok(true)
    }

    /// The row and, if it was written, its body: in one transaction. What is inside is why the body
    /// could not be written.
    async fn write_both(
        &self,
        row: impl Fn() -> Bound,
        body: impl Fn() -> Bound,
    ) -> StoreResult<Result<Option<PgRow>, sqlx::Error>> {
        let mut session = self.link.session(BEGIN).await?;
        let written = session.rows(row()).await.map_err(store_error)?.pop();
        if written.is_some()
            && let Err(refused) = session.rows(body()).await
        {
            return Ok(Err(refused));
        }
        session.commit().await?;
        Ok(Ok(written))
    }

    /// Makes the partition for a day, unless it is known to be there.
    async fn open_day(&self, day: i32) -> StoreResult<()> {
        if !self.days.0.lock().contains(&day) {
            self.link
                .row(|| self.sql.plain("SELECT semel.open_day($1)").bind(day))
                .await?;
            self.days.0.lock().insert(day);
        }
        Ok(())
    }

    fn insert_body(&self, day: i32, address: Address, fence: Fence, body: &Bytes) -> Bound {
        let text = "INSERT INTO semel.bodies (day, address, fence, body) VALUES ($1, $2, $3, $4) \
                    ON CONFLICT (day, address, fence) DO UPDATE SET body = excluded.body";
        let query = self
            .sql
            .plain(text)
            .bind(day)
            .bind(Uuid::from_bytes(address));
        query.bind(signed(fence.0)).bind(body.to_vec())
    }

    /// Fetches a body that is kept apart; `None` if it is gone, so that the record must be looked
    /// at again.
    pub(super) async fn with_body(&self, mut seen: RowRecord) -> StoreResult<Option<RowRecord>> {
        let (Some(day), Some(answer)) = (seen.body_day, &seen.record.answer) else {
            return Ok(Some(seen));
        };
        // It is as if it were not there (P20); its body may be gone before it.
        if seen.record.is_expired(seen.now) {
            return Ok(Some(seen));
        }
        let (address, fence) = (Uuid::from_bytes(seen.address), signed(seen.record.fence.0));
        let text = "SELECT body FROM semel.bodies WHERE day = $1 AND address = $2 AND fence = $3";
        let statement = || self.sql.plain(text).bind(day).bind(address).bind(fence);
        let Some(row) = self.link.row(statement).await? else {
            return Ok(None);
        };
        let body: Vec<u8> = row.try_get(0).map_err(store_error)?;
        let (head, body) = (answer.head.clone(), AnswerBody::Kept(body.into()));
        seen.record.answer = Some(Answer { head, body }.into());
        Ok(Some(seen))
    }
}
