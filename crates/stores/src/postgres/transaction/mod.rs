//! The claim, the caller's own writes and the settlement as one transaction: both happen, or neither.
//!
//! [`Transactional`] is a store for one run. To the engine it is like any other: a claim opens a transaction and
//! leaves it open if it wins, the effect works in it, and the settlement commits it. Until then nobody else sees
//! the record, and an advisory lock keeps others from waiting for it: they are told that it is busy.

mod settle;
mod store;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use semel_core::store::StoreResult;
use semel_core::{Busy, Claim, Claimed, protocol};
use sqlx::postgres::{PgPool, PgRow};
use sqlx::types::Uuid;
use sqlx::{PgConnection, Postgres, Row as _, Transaction};

use crate::postgres::claim::{TRIES, first_run, insert_free, lock, swap};
use crate::postgres::error::{not_sent, store_error};
use crate::postgres::row::{self, Seen};
use crate::postgres::{Inner, PostgresStore};
use crate::transaction::TxError;

/// A store for one run, in a transaction on the caller's own pool.
#[derive(Clone)]
pub struct Transactional {
    run: Arc<Run>,
}

struct Run {
    store: Arc<Inner>,
    pool: PgPool,
    slot: Mutex<Slot>,
}

/// Where the transaction is while nobody works in it.
#[derive(Default)]
struct Slot {
    open: Option<Transaction<'static, Postgres>>,
    /// What the transaction was opened for, to find out what became of it.
    ask: Option<Claim>,
    /// The commit was sent and not answered.
    unanswered: bool,
    /// What became of the transaction, once that is known.
    fate: Option<Fate>,
    refused: Option<TxError>,
}

/// What became of a transaction that was not committed by its settlement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Nothing of it happened.
    RolledBack,
    /// It was over before: what the effect wrote may be committed.
    Ended,
}

/// The transaction, as the effect works in it: a connection that can't be committed by mistake. Dropping it
/// gives it back.
pub struct Tx {
    open: Option<Transaction<'static, Postgres>>,
    run: Arc<Run>,
}

impl Transactional {
    /// For one run on `pool`, which leads to the same database as `store`.
    #[must_use]
    pub fn new(store: &PostgresStore, pool: &PgPool) -> Self {
        let run = Run {
            store: Arc::clone(&store.inner),
            pool: pool.clone(),
            slot: Mutex::default(),
        };
        Self { run: Arc::new(run) }
    }

    /// The transaction that the claim opened; a new one where the effect runs without a claim.
    ///
    /// # Errors
    /// Where no connection can be had.
    pub async fn transaction(&self) -> StoreResult<Tx> {
        let open = self.run.slot.lock().open.take();
        let open = match open {
            Some(open) => open,
            None => self.run.pool.begin().await.map_err(not_sent)?,
        };
        Ok(Tx {
            open: Some(open),
            run: Arc::clone(&self.run),
        })
    }

    /// Commits what an effect did that ran without a claim.
    ///
    /// # Errors
    /// [`TxError`] where it was rolled back; `Refused` also where the connection was lost and nobody knows.
    pub async fn commit_unprotected(&self) -> Result<(), TxError> {
        let open = self.run.slot.lock().open.take().ok_or(TxError::Kept)?;
        open.commit().await.map_err(TxError::Refused)
    }

    /// Why the transaction was rolled back although the effect succeeded.
    #[must_use]
    pub fn refused(&self) -> Option<TxError> {
        self.run.slot.lock().refused.take()
    }
}

impl Run {
    async fn claim(&self, ask: &Claim) -> StoreResult<Claimed> {
        let mut tx = self.pool.begin().await.map_err(not_sent)?;
        let (answer, written) = self.claim_in(&mut tx, ask).await?;
        if matches!(answer, Claimed::Won(_)) {
            let mut slot = self.slot.lock();
            (slot.open, slot.ask) = (Some(tx), Some(ask.clone()));
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
        let sql = &self.store.sql;
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
            let decision = protocol::claim(Some(&seen.record), ask, seen.now);
            let Some(write) = decision.write else {
                return Ok((decision.answer, false));
            };
            if !is_ours {
                return Ok((busy(ask), false));
            }
            let swapped = swap(&sql.swap, &seen, &write, None)
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
    ) -> StoreResult<(Option<Seen>, bool)> {
        let address = ask.identity.address();
        let is_there = |row: &PgRow| {
            row.try_get::<Option<Uuid>, _>(24)
                .map(|found| found.is_some())
        };
        for _ in 0..TRIES {
            let statement = self.store.sql.look_inside.at(&address);
            let statement = statement
                .bind(Uuid::from_bytes(address))
                .bind(lock(&address));
            let row = statement.fetch_one(&mut *tx).await.map_err(store_error)?;
            let is_ours = row.try_get(25).map_err(store_error)?;
            if !is_there(&row).map_err(store_error)? {
                return Ok((None, is_ours));
            }
            let seen = row::check(row::parse(&row).map_err(store_error)?, &ask.identity)?;
            if let Some(seen) = self.store.with_body(seen).await? {
                return Ok((Some(seen), is_ours));
            }
        }
        // Where the transaction sees the past, the row may be of one that is gone: what is there now decides.
        Ok((self.store.look(&ask.identity).await?, false))
    }
}

fn busy(ask: &Claim) -> Claimed {
    Claimed::Busy(Busy {
        since: Duration::ZERO,
        attempt: 1,
        retry_after: ask.terms.lease(),
    })
}

impl Deref for Tx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.open.as_deref().expect("taken only when dropped")
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.open.as_deref_mut().expect("taken only when dropped")
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        self.run.slot.lock().open = self.open.take();
    }
}
