//! Transactions on PostgreSQL: an advisory lock keeps other claims from waiting for an open one.

mod settle;

use semel_core::store::StoreResult;
use semel_core::{Claim, Claimed, Grant, Settled, Settlement, protocol};
use sqlx::postgres::{PgPool, PgRow};
use sqlx::types::Uuid;
use sqlx::{Error, PgConnection, Postgres, Row as _};

use crate::postgres::PostgresStore;
use crate::postgres::error::{Pg, not_sent, store_error};
use crate::postgres::row::{self, RowRecord};
use crate::postgres::statements::{TRIES, first_run, insert_free, lock, swap};
use crate::sql::records::{Statements as _, busy};
use crate::sql::transaction::{Run, SqlTransact};

/// A store for one run, in a transaction on the caller's own pool.
pub type PostgresTransactional = crate::sql::transaction::Transactional<Pg>;
/// The transaction, as the effect works in it: a connection that can't be committed by mistake.
/// Dropping it gives it back.
pub type PostgresTx = crate::sql::transaction::Tx<Pg>;

type Transaction = sqlx::Transaction<'static, Postgres>;

impl SqlTransact for Pg {
    type Store = PostgresStore;
    type Open = Transaction;

    async fn begin(pool: &PgPool) -> Result<Transaction, Error> {
        pool.begin().await
    }

    async fn commit(open: Transaction) -> Result<(), Error> {
        open.commit().await
    }

    fn connection(open: &Transaction) -> &PgConnection {
        open
    }

    fn connection_mut(open: &mut Transaction) -> &mut PgConnection {
        open
    }

    async fn claim(run: &Run<Self>, ask: &Claim) -> StoreResult<Claimed> {
        run.claim_here(ask).await
    }

    async fn settle(
        run: &Run<Self>,
        lease: &Grant,
        settlement: &Settlement,
    ) -> StoreResult<Settled> {
        run.settle_here(lease, settlement).await
    }

    fn wake(store: &PostgresStore, lease: &Grant) {
        store.inner.hub.wake(&lease.identity.address());
    }
}

impl Run<Pg> {
    async fn claim_here(&self, ask: &Claim) -> StoreResult<Claimed> {
        let mut tx = self.pool.begin().await.map_err(not_sent)?;
        let (answer, written) = self.claim_in(&mut tx, ask).await?;
        if matches!(answer, Claimed::Won(_)) {
            self.keep(tx, ask);
        } else if written {
            tx.commit().await.map_err(store_error)?;
        } else {
            // Nothing was written: whether this is answered doesn't matter.
            let _ = tx.rollback().await;
        }
        Ok(answer)
    }

    /// → the answer, and whether something was written.
    async fn claim_in(&self, tx: &mut PgConnection, ask: &Claim) -> StoreResult<(Claimed, bool)> {
        let sql = &self.store.inner.sql;
        for _ in 0..TRIES {
            let row = insert_free(&sql.insert, ask)
                .fetch_optional(&mut *tx)
                .await
                .map_err(store_error)?;
            if let Some(row) = row {
                return Ok((Claimed::Won(first_run(ask, &row)?), true));
            }
            let (seen, is_ours) = self.look_in(tx, ask).await?;
            let Some(seen) = seen else {
                if is_ours {
                    continue; // Free again.
                }
                return Ok((busy(ask), false)); // Another transaction has written it, and not yet committed.
            };
            protocol::check_keys(Some(&seen.record), ask, seen.now)?;
            let decision = protocol::claim(Some(&seen.record), ask, seen.now);
            let Some(write) = decision.write else {
                return Ok((decision.answer, false));
            };
            if !is_ours {
                return Ok((busy(ask), false));
            }
            let swapped = swap(&sql.swap, seen.address, &seen.record, &write, None)
                .fetch_optional(&mut *tx)
                .await;
            if swapped.map_err(store_error)?.is_some() {
                return Ok((decision.answer, true));
            }
        }
        Ok((protocol::overtaken(), false))
    }

    /// The record as committed, and whether this transaction is the one that may write it.
    async fn look_in(
        &self,
        tx: &mut PgConnection,
        ask: &Claim,
    ) -> StoreResult<(Option<RowRecord>, bool)> {
        let address = ask.identity.address();
        let is_there = |row: &PgRow| {
            row.try_get::<Option<Uuid>, _>(24)
                .map(|found| found.is_some())
        };
        for _ in 0..TRIES {
            let statement = self.store.inner.sql.look_inside.at(&address);
            let statement = statement
                .bind(Uuid::from_bytes(address))
                .bind(lock(&address));
            let row = statement.fetch_one(&mut *tx).await.map_err(store_error)?;
            let is_ours = row.try_get(25).map_err(store_error)?;
            if !is_there(&row).map_err(store_error)? {
                return Ok((None, is_ours));
            }
            let seen = row::check(row::parse(&row).map_err(store_error)?, &ask.identity)?;
            if let Some(seen) = self.store.inner.with_body(seen).await? {
                return Ok((Some(seen), is_ours));
            }
        }
        // Where the transaction sees the past, the row may be of one that is gone: what is there
        // now decides.
        Ok((self.store.inner.look(&ask.identity).await?, false))
    }
}
