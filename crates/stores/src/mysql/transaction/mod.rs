//! Transactions on MariaDB and MySQL. Other claims detect an open one by a read that doesn't wait
//! (`NOWAIT`).

mod guard;
mod settle;

use semel_core::store::StoreResult;
use semel_core::{Claim, Claimed, Fence, Grant, Settled, Settlement, StoreError, protocol};
use sqlx::mysql::{MySqlPool, MySqlRow};
use sqlx::{Error, MySqlConnection};

use super::MySqlStore;
use super::error::{
    DEADLOCK, DUPLICATE, LOCK_NOWAIT, LOCK_WAIT, My, has_number, not_sent, number, store_error,
};
use super::row::{self, RowRecord};
use super::sql::prepared;
use super::statements::{TRIES, insert, swap};
use crate::sql::records::{Statements as _, busy};
use crate::sql::transaction::{Run, SqlTransact};
use guard::Open;

/// A store for one run, in a transaction on the caller's own pool.
pub type MySqlTransactional = crate::sql::transaction::Transactional<My>;
/// The transaction that the effect works in: a connection that can't be committed by mistake.
/// Dropping it returns it.
pub type MySqlTx = crate::sql::transaction::Tx<My>;

impl SqlTransact for My {
    type Store = MySqlStore;
    type Open = Open;

    async fn begin(pool: &MySqlPool) -> Result<Open, Error> {
        Ok(Open::new(pool.begin().await?))
    }

    async fn commit(open: Open) -> Result<(), Error> {
        open.commit().await
    }

    fn connection(open: &Open) -> &MySqlConnection {
        open.connection()
    }

    fn connection_mut(open: &mut Open) -> &mut MySqlConnection {
        open.connection_mut()
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

    fn wake(store: &MySqlStore, lease: &Grant) {
        store.inner.hub.wake(&lease.identity.address());
    }
}

/// The outcome of a claim inside a transaction.
enum TxClaim {
    /// The answer, and whether something was written.
    Answered(Claimed, bool),
    /// Another session interfered: claim again from the beginning.
    Overtaken,
}

impl Run<My> {
    async fn claim_here(&self, ask: &Claim) -> StoreResult<Claimed> {
        for _ in 0..TRIES {
            let found = self.store.inner.look(&ask.identity).await?;
            if let Some(seen) = &found {
                protocol::check_keys(Some(&seen.record), ask, seen.now)?;
                let decision = protocol::claim(Some(&seen.record), ask, seen.now);
                if decision.write.is_none() {
                    return Ok(decision.answer);
                }
            } else if !self.is_free(ask).await? {
                return Ok(busy(ask)); // Another transaction has written it, and not yet committed.
            }
            let mut tx = self.pool.begin().await.map_err(not_sent)?;
            let inside = match found {
                Some(_) => self.take_over(&mut tx, ask).await?,
                None => self.begin(&mut tx, ask).await?,
            };
            match inside {
                TxClaim::Answered(answer @ Claimed::Won(_), _) => {
                    let open = Open::new(tx).guard().await.map_err(store_error)?;
                    self.keep(open, ask);
                    return Ok(answer);
                }
                TxClaim::Answered(answer, true) => {
                    tx.commit().await.map_err(store_error)?;
                    return Ok(answer);
                }
                // Nothing was written, so the rollback needs no answer.
                TxClaim::Answered(answer, false) => {
                    let _ = tx.rollback().await;
                    return Ok(answer);
                }
                // Awaited before the next claim, which must not meet the writes that are being
                // rolled back.
                TxClaim::Overtaken => drop(Open::new(tx).roll_back().await),
            }
        }
        Ok(protocol::overtaken())
    }

    /// Whether no other transaction has a row in progress; asked outside of the caller's, so that
    /// nothing stays locked.
    async fn is_free(&self, ask: &Claim) -> StoreResult<bool> {
        let address = ask.identity.address();
        let statement = || prepared(&self.store.inner.sql.look_locked).bind(address.to_vec());
        match self.store.inner.link.send(statement, true).await {
            Ok(_) => Ok(true),
            Err(failure)
                if has_number(&failure, LOCK_WAIT) || has_number(&failure, LOCK_NOWAIT) =>
            {
                Ok(false)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// A first run.
    async fn begin(&self, tx: &mut MySqlConnection, ask: &Claim) -> StoreResult<TxClaim> {
        let inserted = insert(&self.store.inner.sql.insert_inside, ask);
        let fence = match inserted.execute(&mut *tx).await {
            Ok(done) => done.last_insert_id(),
            Err(error) => return lost(error, ask),
        };
        // After the insertion: a record of this key that was removed before it had its fence below
        // this floor.
        let floor = self.store.inner.floor().await?;
        let fence = match fence > floor {
            true => fence,
            false => self.lift_fence(tx, ask, floor + 1).await?,
        };
        let grant = Grant::first_run(ask, Fence(fence));
        Ok(TxClaim::Answered(Claimed::Won(grant), true))
    }

    /// The server's clock is behind the fences of records that were removed (P22).
    async fn lift_fence(
        &self,
        tx: &mut MySqlConnection,
        ask: &Claim,
        fence: u64,
    ) -> StoreResult<u64> {
        let lift = prepared(&self.store.inner.sql.lift_inside).bind(row::signed(fence));
        let lift = lift
            .bind(ask.identity.address().to_vec())
            .bind(row::bytes(ask.token));
        let lifted = lift.execute(tx).await.map_err(store_error)?;
        Ok(lifted.last_insert_id())
    }

    /// A run in the place of a record that is over, locked before anything is decided.
    async fn take_over(&self, tx: &mut MySqlConnection, ask: &Claim) -> StoreResult<TxClaim> {
        let address = ask.identity.address().to_vec();
        let look = prepared(&self.store.inner.sql.look_locked).bind(address);
        let row: Option<MySqlRow> = match look.fetch_optional(&mut *tx).await {
            Ok(row) => row,
            Err(error) => return lost(error, ask),
        };
        let Some(row) = row else {
            return Ok(TxClaim::Overtaken); // Free again.
        };
        let seen: RowRecord = row::check(row::parse(&row).map_err(store_error)?, &ask.identity)?;
        protocol::check_keys(Some(&seen.record), ask, seen.now)?;
        let decision = protocol::claim(Some(&seen.record), ask, seen.now);
        let Some(write) = decision.write else {
            return Ok(TxClaim::Answered(decision.answer, false));
        };
        // Locked by this transaction, so no other session can have changed it.
        let swapped = swap(
            &self.store.inner.sql.swap,
            seen.address,
            &seen.record,
            &write,
        )
        .execute(tx)
        .await;
        match swapped {
            Ok(done) if done.rows_affected() > 0 => Ok(TxClaim::Answered(decision.answer, true)),
            Ok(_) => Ok(TxClaim::Overtaken),
            Err(error) => lost(error, ask),
        }
    }
}

/// The outcome of a claim whose statement failed inside a transaction.
fn lost(error: Error, ask: &Claim) -> Result<TxClaim, StoreError> {
    match number(&error) {
        // The row belongs to another session, or a lock was lost to one: nothing was done yet.
        Some(DUPLICATE | DEADLOCK) => Ok(TxClaim::Overtaken),
        Some(LOCK_WAIT | LOCK_NOWAIT) => Ok(TxClaim::Answered(busy(ask), false)),
        _ => Err(store_error(error)),
    }
}
