//! The operator interface of the PostgreSQL store.

use semel_core::diagnosis::Finding;
use semel_core::identity::Address;
use semel_core::store::{Connections, Page, Query, Stats, StoreAdmin, StoreResult};
use semel_core::{BoxFuture, Identity, Record, Restored, Timestamp};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use super::error::store_error;
use super::row::{self, Bound, ParsedRow, RowRecord};
use super::sql::COLUMNS;
use super::{Inner, PostgresStore};
use crate::sql::page::{COUNT_AT_MOST, Listing, READ_AT_MOST, page};
use crate::sql::records::{self, Statements};

impl StoreAdmin for PostgresStore {
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, StoreResult<Page>> {
        Box::pin(page(&*self.inner, query))
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
            let restored = records::restore(&*self.inner, identity, record).await?;
            self.inner.hub.wake(&identity.address());
            Ok(restored)
        })
    }

    fn sweep(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(self.inner.sweep(most))
    }

    fn expired(&self, most: usize) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(async move {
            let text = "SELECT count(*) FROM (SELECT 1 FROM semel.records WHERE format IN (1, 2) \
                AND written_us + retention_ms * 1000 <= semel.now_us() LIMIT $1) expired";
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let count = self.inner.number(|sql| sql.plain(text).bind(most)).await?;
            Ok(usize::try_from(count).unwrap_or(0))
        })
    }

    fn now(&self) -> BoxFuture<'_, StoreResult<Timestamp>> {
        Box::pin(Statements::now(&*self.inner))
    }

    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>> {
        Box::pin(async move { Ok(Stats::new(self.inner.count().await?)) })
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.inner.link.connections())
    }

    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>> {
        Box::pin(self.inner.diagnose())
    }
}

impl Inner {
    async fn delete(&self, identity: &Identity) -> StoreResult<bool> {
        let (address, seal) = (identity.address(), Uuid::from_bytes(identity.seal()));
        let statement = || {
            self.sql
                .delete
                .at(&address)
                .bind(Uuid::from_bytes(address))
                .bind(seal)
        };
        let row = self.link.send_once(statement, true).await?.rows.pop();
        let parts = row
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .transpose();
        let (live, waited) = parts.map_err(store_error)?.unwrap_or((false, false));
        if waited {
            self.tell(address);
        }
        Ok(live)
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

    /// The one number that a statement gives; 0 if it gives none.
    pub(super) async fn number(
        &self,
        statement: impl Fn(&super::sql::Statements) -> Bound,
    ) -> StoreResult<i64> {
        let row = self.link.row(|| statement(&self.sql)).await?;
        let number = row.map(|row| row.try_get::<i64, _>(0)).transpose();
        Ok(number.map_err(store_error)?.unwrap_or(0))
    }
}

impl Listing for Inner {
    async fn boundary(&self, after: &Address) -> StoreResult<Option<Address>> {
        let text = "SELECT address FROM semel.records WHERE address > $1 ORDER BY address OFFSET $2 LIMIT 1";
        let (after, offset) = (Uuid::from_bytes(*after), READ_AT_MOST - 1);
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        let row = self
            .link
            .row(|| self.sql.plain(text).bind(after).bind(offset));
        let end = row.await?.map(|row| row.try_get::<Uuid, _>(0)).transpose();
        Ok(end.map_err(store_error)?.map(Uuid::into_bytes))
    }

    async fn listed(
        &self,
        query: &Query,
        after: &Address,
        end: Option<&Address>,
    ) -> StoreResult<Vec<(Address, ParsedRow)>> {
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
            self.sql
                .made(text.clone())
                .bind(Uuid::from_bytes(*after))
                .bind(end.copied().map(Uuid::from_bytes))
                .bind(query.environment.clone())
                .bind(query.tenant.clone())
                .bind(query.scope.clone())
                .bind(query.state.map(|state| state as i16))
                .bind(limit)
        };
        let rows = self.link.rows(statement).await?;
        let parse = |row: &PgRow| {
            let address: Uuid = row.try_get(24)?;
            Ok((address.into_bytes(), row::parse(row)?))
        };
        let rows: Result<_, sqlx::Error> = rows.iter().map(parse).collect();
        rows.map_err(store_error)
    }

    async fn complete(&self, seen: RowRecord) -> StoreResult<Option<RowRecord>> {
        self.with_body(seen).await
    }
}
