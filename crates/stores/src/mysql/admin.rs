//! The operator interface of the MySQL store.

use semel_core::diagnosis::Finding;
use semel_core::identity::Address;
use semel_core::store::{Connections, Page, Query, Stats, StoreAdmin, StoreResult};
use semel_core::{BoxFuture, Identity, Record, Restored, Timestamp};
use sqlx::Row as _;

use super::error::store_error;
use super::row::{self, Bound, ParsedRow};
use super::sql::{NOW, once, raise_floor};
use super::statements::TRIES;
use super::sweep::{address, hex};
use super::{Inner, MySqlStore};
use crate::cas::overtaken;
use crate::sql::page::{COUNT_AT_MOST, Listing, READ_AT_MOST, page};
use crate::sql::records::{self, Statements};

/// Makes a record that may not be removed yet (see [`raise_floor`]) one that has expired and has no
/// owner: state 5 is released. The sweep removes it later.
const EXPIRE: &str = "UPDATE semel_records SET written_us = 0, retention_ms = 0, state = 5, attempt = 0, token = \
    UNHEX(REPLACE(UUID(), '-', '')), checkpoint = NULL, head = NULL, body = NULL, body_bytes = NULL \
    WHERE address = ? AND seal = ? AND fence = ? AND written_us > 0";

impl StoreAdmin for MySqlStore {
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
            let text = format!(
                "SELECT COUNT(*) FROM (SELECT 1 FROM semel_records WHERE format IN (1, 2) \
                 AND written_us + retention_ms * 1000 <= {NOW} LIMIT {most}) expired"
            );
            let count = self.inner.number(|| once(text.clone())).await?;
            Ok(usize::try_from(count).unwrap_or(0))
        })
    }

    fn now(&self) -> BoxFuture<'_, StoreResult<Timestamp>> {
        Box::pin(Statements::now(&*self.inner))
    }

    fn stats(&self) -> BoxFuture<'_, StoreResult<Stats>> {
        Box::pin(async move { Ok(Stats::new(self.inner.count().await?.unsigned_abs())) })
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.inner.link.connections())
    }

    fn diagnose(&self) -> BoxFuture<'_, StoreResult<Vec<Finding>>> {
        Box::pin(self.inner.diagnose())
    }
}

impl Inner {
    /// Above the fences of all records that were removed.
    pub(super) async fn floor(&self) -> StoreResult<u64> {
        let text = "SELECT COALESCE(MAX(floor), 0) FROM semel_fences";
        let floor = self.number(|| once(text.to_owned())).await?;
        Ok(floor.unsigned_abs())
    }

    async fn delete(&self, identity: &Identity) -> StoreResult<bool> {
        let (address, seal) = (identity.address().to_vec(), identity.seal().to_vec());
        let look = format!(
            "SELECT fence, written_us + retention_ms * 1000 > {NOW} FROM semel_records WHERE address = ? AND seal = ?"
        );
        let delete = format!(
            "DELETE FROM semel_records WHERE address = ? AND seal = ? AND fence = ? AND fence < {NOW}"
        );
        for _ in 0..TRIES {
            let statement = || once(look.clone()).bind(address.clone()).bind(seal.clone());
            let Some(row) = self.link.row(statement).await? else {
                return Ok(false);
            };
            let parts = (|| Ok((row.try_get::<i64, _>(0)?, row.try_get::<i64, _>(1)?)))();
            let (fence, is_live) = parts.map_err(store_error)?;
            self.link.send(|| once(raise_floor(fence)), false).await?;
            for text in [&*delete, EXPIRE] {
                let statement = || {
                    let query = once(text.to_owned()).bind(address.clone());
                    query.bind(seal.clone()).bind(fence)
                };
                // Every connection counts these rows in the same way: each statement changes all
                // rows that it matches.
                if self.link.send_once(statement, false).await?.affected > 0 {
                    return Ok(is_live != 0);
                }
            }
            // It was deleted before.
            if is_live == 0 {
                return Ok(false);
            }
        }
        Err(overtaken())
    }

    async fn count(&self) -> StoreResult<i64> {
        let text = format!(
            "SELECT COUNT(*) FROM (SELECT 1 FROM semel_records LIMIT {COUNT_AT_MOST}) present"
        );
        let counted = self.number(|| once(text.clone())).await?;
        if counted < COUNT_AT_MOST {
            return Ok(counted);
        }
        let estimate = "SELECT CAST(table_rows AS SIGNED) FROM information_schema.tables \
                        WHERE table_schema = DATABASE() AND table_name = 'semel_records'";
        let estimated = self.number(|| once(estimate.to_owned())).await?;
        Ok(estimated.max(counted))
    }

    /// The one number that a statement gives; 0 if it gives none.
    pub(super) async fn number(&self, statement: impl Fn() -> Bound) -> StoreResult<i64> {
        let row = self.link.row(statement).await?;
        let number = row.map(|row| row.try_get::<i64, _>(0)).transpose();
        Ok(number.map_err(store_error)?.unwrap_or(0))
    }
}

impl Listing for Inner {
    async fn boundary(&self, after: &Address) -> StoreResult<Option<Address>> {
        let text = format!(
            "SELECT address FROM semel_records WHERE address > {} ORDER BY address LIMIT {}, 1",
            hex(after),
            READ_AT_MOST - 1
        );
        let row = self.link.row(|| once(text.clone())).await?;
        row.map(|row| address(&row, 0)).transpose()
    }

    async fn listed(
        &self,
        query: &Query,
        after: &Address,
        end: Option<&Address>,
    ) -> StoreResult<Vec<(Address, ParsedRow)>> {
        let mut text = format!(
            "{} AND written_us + retention_ms * 1000 > {NOW}",
            self.sql.list
        );
        if let Some(end) = end {
            text += &format!(" AND address <= {}", hex(end));
        }
        if let Some(state) = query.state {
            text += &format!(
                " AND {} = IF(state = 1 AND NOT (crash = 1 AND attempt < max_attempts) \
                 AND written_us + lease_ms * 1000 <= {NOW}, 4, state)",
                state as u8
            );
        }
        let names = [
            ("environment", &query.environment),
            ("tenant", &query.tenant),
            ("scope", &query.scope),
        ];
        let wanted = names
            .iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let wanted: Vec<_> = wanted.collect();
        for (name, _) in &wanted {
            text += &format!(" AND {name} = ?");
        }
        text += &format!(" ORDER BY address LIMIT {}", query.page_size());
        let statement = || {
            let bound = once(text.clone()).bind(after.to_vec());
            wanted.iter().fold(bound, |bound, (_, value)| {
                bound.bind(value.as_bytes().to_vec())
            })
        };
        let rows = self.link.rows(statement).await?;
        let parse = |row: &_| Ok((address(row, 0)?, row::parse(row).map_err(store_error)?));
        rows.iter().map(parse).collect()
    }
}
