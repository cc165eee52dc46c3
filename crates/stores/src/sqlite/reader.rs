//! Reads, on connections that never take the write lock.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use semel_core::identity::Address;
use semel_core::store::{Connections, StoreResult};
use semel_core::{Identity, Record, RecordError, StoreError};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Error, Row as _};
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::store_error;
use super::options::Options;

/// The number of connections. Each is a thread that mostly reads from memory.
const MOST: u32 = 4;
/// How long to wait for one.
const LIMIT: Duration = Duration::from_secs(4);

/// A few connections for reading. Each reply has a channel of its own, so a cancelled caller
/// disturbs no other.
pub(super) struct Reader {
    pool: SqlitePool,
    exhausted: AtomicU64,
}

/// A row of a listing.
pub(super) type ListedRow = (Address, Result<Record, RecordError>);

impl Reader {
    pub(super) fn new(options: &Options) -> Self {
        // Rows are read ahead by number, not by size, so only a few are buffered in case they are
        // large.
        let connect = options
            .connect()
            .row_buffer_size(2)
            .pragma("query_only", "ON");
        let pool = SqlitePoolOptions::new()
            .max_connections(MOST)
            .acquire_timeout(LIMIT)
            .test_before_acquire(false)
            .connect_lazy_with(connect);
        Self {
            pool,
            exhausted: AtomicU64::new(0),
        }
    }

    /// The record of `identity`, expired or not (P24, P25).
    pub(super) async fn find(&self, identity: &Identity) -> StoreResult<Option<Record>> {
        let text = "SELECT record FROM records WHERE address = ?";
        let packed = sqlx::query_scalar::<_, Vec<u8>>(text).bind(identity.address().to_vec());
        let packed = packed.fetch_optional(&self.pool).await;
        let packed = packed.map_err(|error| self.failed(error))?;
        let record = packed.map(|packed| Record::decode_for(identity, &packed.into()));
        Ok(record.transpose()?)
    }

    /// Hands the records after an address to `take`, by address, until that says enough. Answers
    /// whether the table ended before.
    pub(super) async fn walk(
        &self,
        after: Option<Address>,
        mut take: impl FnMut(ListedRow, usize) -> bool,
    ) -> StoreResult<bool> {
        let text = "SELECT address, record FROM records WHERE address > ? ORDER BY address";
        let after = after.map_or_else(Vec::new, |after| after.to_vec());
        let mut rows = sqlx::query(text).bind(after).fetch(&self.pool);
        while let Some(row) = rows.try_next().await.map_err(|error| self.failed(error))? {
            let address: Vec<u8> = row.try_get(0).map_err(store_error)?;
            let packed: Vec<u8> = row.try_get(1).map_err(store_error)?;
            let bytes = packed.len();
            let Ok(address) = Address::try_from(address) else {
                continue; // Not one of ours: there is no such identity.
            };
            if !take((address, Record::decode(&packed.into())), bytes) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The one number that a question gives.
    pub(super) async fn number(&self, question: &str, argument: i64) -> StoreResult<i64> {
        let number = sqlx::query_scalar(AssertSqlSafe(question.to_owned())).bind(argument);
        let number = number.fetch_one(&self.pool).await;
        number.map_err(|error| self.failed(error))
    }

    /// What a question gives, as text.
    pub(super) async fn text(&self, question: &'static str) -> StoreResult<String> {
        let text = sqlx::query_scalar(question).fetch_one(&self.pool).await;
        text.map_err(|error| self.failed(error))
    }

    pub(super) fn connections(&self) -> Connections {
        let idle = u32::try_from(self.pool.num_idle()).unwrap_or(u32::MAX);
        Connections::new(self.pool.size().saturating_sub(idle))
            .with_most(MOST)
            .with_exhausted(self.exhausted.load(Ordering::Relaxed))
    }

    fn failed(&self, error: Error) -> StoreError {
        if matches!(error, Error::PoolTimedOut) {
            self.exhausted.fetch_add(1, Ordering::Relaxed);
        }
        store_error(error)
    }
}
