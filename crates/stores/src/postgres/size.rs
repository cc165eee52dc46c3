//! What the records cost the server, for `semel bench`. Never on the hot path.

use semel_core::store::StoreResult;
use sqlx::Row as _;

use super::BEGIN;
use super::PostgresStore;
use super::error::unexpected;

/// What the server has used so far. The cost of some work is the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresUsage {
    /// Of the tables and their indexes, on disk.
    pub bytes: u64,
    /// Written to the write-ahead log, by everything on the server.
    pub wal_bytes: u64,
}

const QUESTION: &str = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint::text, \
     pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint::text \
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = 'semel' AND c.relkind = 'r'";

impl PostgresStore {
    /// What the server has used so far.
    ///
    /// # Errors
    /// If it doesn't answer.
    pub async fn usage(&self) -> StoreResult<PostgresUsage> {
        let mut session = self.inner.link.session(BEGIN).await?;
        let rows = session.script(QUESTION).await?;
        session.commit().await?;
        let number = |index: usize| {
            let text = rows
                .first()
                .and_then(|row| row.try_get::<String, _>(index).ok());
            text.and_then(|text| text.parse().ok())
                .ok_or_else(|| unexpected("no size"))
        };
        Ok(PostgresUsage {
            bytes: number(0)?,
            wal_bytes: number(1)?,
        })
    }
}
