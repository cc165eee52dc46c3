//! The operator's side of the PostgreSQL store.

use semel_core::diagnosis::Finding;
use semel_core::store::{Connections, Cursor, Page, Query, Stats, StoreAdmin, StoreResult};
use semel_core::{
    BoxFuture, Certainty, Identity, Record, Restored, StoreError, StoreErrorKind, Timestamp,
};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use super::error::store_error;
use super::row::{self, Bound, Found};
use super::sql::{COLUMNS, Statements};
use super::{Inner, PostgresStore};

/// How many rows one page looks at, at most, so that a search for something rare is many short statements.
const LOOK_AT_MOST: i64 = 5_000;

/// Up to here records are counted, from here on estimated.
const COUNT_AT_MOST: i64 = 1_000_000;

impl StoreAdmin for PostgresStore {
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, StoreResult<Page>> {
        Box::pin(self.inner.page(query))
    }

    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(async move {
            let was_live = self.inner.delete(identity).await?;
            self.inner.hub.wake(&identity.address());
            Ok(was_live)
        })
    }

    fn restore<'a>(
        &'a self,
        identity: &'a Identity,
        record: &'a Record,
    ) -> BoxFuture<'a, StoreResult<Restored>> {
        Box::pin(async move {
            let restored = self.inner.restore(identity, record).await?;
            self.inner.hub.wake(&identity.address());
            Ok(restored)
        })
    }

    fn sweep(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(self.inner.sweep(most))
    }

    fn expired(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(async move {
            let text = "SELECT count(*) FROM (SELECT 1 FROM semel.records WHERE format = 1 \
                AND written_us + retention_ms * 1000 <= semel.now_us() LIMIT $1) expired";
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let count = self.inner.number(|sql| sql.plain(text).bind(most)).await?;
            Ok(usize::try_from(count).unwrap_or(0))
        })
    }

    fn now(&self) -> BoxFuture<'_, StoreResult<Timestamp>> {
        Box::pin(self.inner.now())
    }

    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>> {
        Box::pin(async move {
            Ok(Stats {
                records: self.inner.count().await?,
                capacity: None,
            })
        })
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.inner.link.connections())
    }

    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>> {
        Box::pin(self.inner.diagnose())
    }
}

impl Inner {
    pub(super) async fn now(&self) -> StoreResult<Timestamp> {
        let micros = self
            .number(|sql| sql.plain("SELECT semel.now_us()"))
            .await?;
        Ok(Timestamp::from_micros(micros.unsigned_abs()))
    }

    async fn delete(&self, identity: &Identity) -> StoreResult<bool> {
        let (address, seal) = (identity.address(), Uuid::from_bytes(identity.seal()));
        let statement = || {
            self.sql
                .delete
                .at(&address)
                .bind(Uuid::from_bytes(address))
                .bind(seal)
        };
        let row = self.link.row(statement).await?;
        let parts = row
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .transpose();
        let (live, waited) = parts.map_err(store_error)?.unwrap_or((false, false));
        if waited {
            self.tell(address);
        }
        Ok(live)
    }

    /// By address, which never changes: a record that is there throughout is listed once (P29).
    async fn page(&self, query: &Query) -> StoreResult<Page> {
        let after = query.after.as_ref().map_or(Ok(Uuid::nil()), parse)?;
        let end = self.boundary(after).await?;
        let rows = self.rows(query, after, end).await?;
        let last = rows.last().map(|(address, _)| *address);
        let full = rows.len() == query.page_size();
        let next = if full { last } else { end };
        let mut page = Page {
            next: next.map(|address| Cursor(address.simple().to_string())),
            ..Page::default()
        };
        for (_, found) in rows {
            // What can't be read is not listed as something that it may not be (P29).
            let Ok(seen) = found else {
                page.unreadable += 1;
                continue;
            };
            let Some(seen) = self.with_body(seen).await? else {
                continue;
            };
            let identity = Identity::from_halves(&seen.address, &seen.record.seal);
            page.records.push((identity, seen.record));
        }
        Ok(page)
    }

    /// The last address that this page looks at; `None` where the table ends before.
    async fn boundary(&self, after: Uuid) -> StoreResult<Option<Uuid>> {
        let text = "SELECT address FROM semel.records WHERE address > $1 ORDER BY address OFFSET $2 LIMIT 1";
        let statement = || self.sql.plain(text).bind(after).bind(LOOK_AT_MOST - 1);
        let row = self.link.row(statement).await?;
        row.map(|row| row.try_get(0))
            .transpose()
            .map_err(store_error)
    }

    async fn rows(
        &self,
        query: &Query,
        after: Uuid,
        end: Option<Uuid>,
    ) -> StoreResult<Vec<(Uuid, Found)>> {
        let text = format!(
            "SELECT {COLUMNS} FROM semel.records WHERE address > $1 AND ($2::uuid IS NULL OR address <= $2) \
             AND ($3::text IS NULL OR environment = $3) AND ($4::text IS NULL OR tenant = $4) \
             AND ($5::text IS NULL OR scope = $5) AND written_us + retention_ms * 1000 > semel.now_us() \
             AND ($6::int2 IS NULL OR $6 = CASE WHEN state = 1 AND NOT (crash = 1 AND attempt & 65535 < max_attempts & 65535) \
                  AND written_us + lease_ms * 1000::bigint <= semel.now_us() THEN 4 ELSE state END) \
             ORDER BY address LIMIT $7"
        );
        let limit = i64::try_from(query.page_size()).unwrap_or(i64::MAX);
        let statement = || {
            let select = self.sql.made(text.clone()).bind(after).bind(end);
            let select = select
                .bind(query.environment.clone())
                .bind(query.tenant.clone());
            let select = select.bind(query.scope.clone());
            select
                .bind(query.state.map(|state| state as i16))
                .bind(limit)
        };
        let rows = self.link.rows(statement).await?;
        let parse = |row: &PgRow| Ok((row.try_get(24)?, row::parse(row)?));
        rows.iter()
            .map(parse)
            .collect::<Result<_, _>>()
            .map_err(store_error)
    }

    async fn count(&self) -> StoreResult<u64> {
        let text = "SELECT CASE WHEN counted < $1 THEN counted ELSE greatest(counted, (SELECT \
            sum(c.reltuples)::bigint FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
            WHERE i.inhparent = 'semel.records'::regclass)) END \
            FROM (SELECT count(*) AS counted FROM (SELECT 1 FROM semel.records LIMIT $1) present) counting";
        let count = self
            .number(|sql| sql.plain(text).bind(COUNT_AT_MOST))
            .await?;
        Ok(count.unsigned_abs())
    }

    /// The one number that a statement gives; 0 where it gives none.
    async fn number(&self, statement: impl Fn(&Statements) -> Bound) -> StoreResult<i64> {
        let row = self.link.row(|| statement(&self.sql)).await?;
        let number = row.map(|row| row.try_get::<i64, _>(0)).transpose();
        Ok(number.map_err(store_error)?.unwrap_or(0))
    }
}

fn parse(cursor: &Cursor) -> StoreResult<Uuid> {
    Uuid::try_parse(&cursor.0).map_err(|_| {
        let said = "the cursor isn't one of this store's; start the listing anew";
        StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, said)
    })
}
