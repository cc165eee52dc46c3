//! Removing what has expired.
//!
//! Walks the table in its physical order, a stretch of pages at a time, and removes what has
//! expired there. That needs no index on the expiry, which every update would have to maintain; it
//! reads each page once per round.

use parking_lot::Mutex;
use semel_core::store::StoreResult;
use sqlx::Row as _;

use super::Inner;
use super::error::store_error;
use super::sql::{PARTITIONS, RAISED_FLOOR, partition};

/// Pages per statement: 16 MB.
const STRETCH: i64 = 2_000;

/// Where the sweeper of this process stands. Others may be elsewhere: rows that one of them has in
/// hand are left out (`SKIP LOCKED`).
pub(super) struct Sweeper {
    archive: bool,
    place: Mutex<(usize, i64)>,
}

impl Sweeper {
    pub(super) const fn new(archive: bool) -> Self {
        Self {
            archive,
            place: Mutex::new((0, 0)),
        }
    }
}

impl Inner {
    /// Goes on from where the last sweep ended, at most once round.
    pub(super) async fn sweep(&self, most: usize) -> StoreResult<usize> {
        let (mut index, mut page) = *self.sweeper.place.lock();
        let (first, mut rounds, mut removed) = ((index, page), 0, 0);
        while removed < most {
            let (gone, pages) = self.sweep_stretch(index, page, most - removed).await?;
            removed += gone;
            if removed >= most {
                break;
            }
            page += STRETCH;
            if page >= pages {
                (index, page) = ((index + 1) % PARTITIONS, 0);
                rounds += usize::from(index == 0);
            }
            *self.sweeper.place.lock() = (index, page);
            if rounds > 0 && (index, page) >= first {
                self.close_days().await;
                break;
            }
        }
        Ok(removed)
    }

    /// → how many were removed, and how many pages the partition has.
    async fn sweep_stretch(
        &self,
        index: usize,
        page: i64,
        most: usize,
    ) -> StoreResult<(usize, i64)> {
        let text = statement(index, self.sweeper.archive);
        let (low, high) = (format!("({page},0)"), format!("({},0)", page + STRETCH));
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let statement = || {
            self.sql
                .made(text.clone())
                .bind(low.clone())
                .bind(high.clone())
                .bind(most)
        };
        let row = self.link.row(statement).await?;
        let parts = row
            .map(|row| Ok((row.try_get::<i64, _>(0)?, row.try_get(1)?)))
            .transpose();
        let (removed, pages) = parts.map_err(store_error)?.unwrap_or((0, 0));
        Ok((usize::try_from(removed).unwrap_or(0), pages))
    }

    /// Drops the bodies of days that are past.
    async fn close_days(&self) {
        let text = "SELECT semel.close_days((semel.now_us() / 86400000000)::integer)";
        // Where somebody reads or writes one of them, the next round tries again.
        let _ = self.link.row(|| self.sql.plain(text)).await;
    }
}

fn statement(index: usize, archive: bool) -> String {
    let records = partition(index);
    let keep = if archive {
        ", kept AS (INSERT INTO semel.archive (address, environment, tenant, scope, hint, state, attempt, fence, \
         created_us, written_us, archived_us) SELECT address, environment, tenant, scope, hint, state, attempt, \
         fence, coalesce(created_us, written_us), written_us, semel.now_us() FROM gone)"
    } else {
        ""
    };
    format!(
        "WITH expired AS (SELECT ctid FROM {records} WHERE ctid >= $1::tid AND ctid < $2::tid AND format IN (1, 2) \
         AND written_us + retention_ms * 1000 <= semel.now_us() LIMIT $3 FOR UPDATE SKIP LOCKED), \
         gone AS (DELETE FROM {records} r USING expired e WHERE r.ctid = e.ctid RETURNING r.*), {RAISED_FLOOR}{keep} \
         SELECT (SELECT count(*) FROM gone), pg_relation_size('{records}') / current_setting('block_size')::bigint"
    )
}
