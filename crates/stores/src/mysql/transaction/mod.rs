//! The claim, the caller's own writes and the settlement as one transaction: both happen, or neither.
//!
//! [`Transactional`] is a store for one run. To the engine it is like any other: a claim opens a transaction and
//! leaves it open if it wins, the effect works in it, and the settlement commits it. Until then nobody else sees the
//! record; whoever asks for it is told that it is busy, by a look that doesn't wait (`NOWAIT`).

mod guard;
mod settle;
mod store;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;
use semel_core::store::StoreResult;
use semel_core::{Claim, Claimed, StoreError, protocol};
use sqlx::mysql::{MySqlPool, MySqlRow};
use sqlx::{Error, MySqlConnection};

use super::claim::{TRIES, busy, first_run, insert, swap};
use super::error::{DEADLOCK, DUPLICATE, LOCK_NOWAIT, LOCK_WAIT, not_sent, number, store_error};
use super::link::failed;
use super::row::{self, Seen};
use super::sql::prepared;
use super::{Inner, MySqlStore};
use crate::TxError;
use guard::Open;

/// A store for one run, in a transaction on the caller's own pool.
#[derive(Clone)]
pub struct Transactional {
    run: Arc<Run>,
}

struct Run {
    store: Arc<Inner>,
    pool: MySqlPool,
    slot: Mutex<Slot>,
}

/// Where the transaction is while nobody works in it.
#[derive(Default)]
struct Slot {
    open: Option<Open>,
    /// What the transaction was opened for, to find out what became of it.
    ask: Option<Claim>,
    /// Its end was sent, and is not known to be answered.
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
    /// The effect ended it by a statement of its own, and may have committed.
    Ended,
}

/// The transaction, as the effect works in it: a connection that can't be committed by mistake. Dropping it gives it
/// back.
pub struct Tx {
    open: Option<Open>,
    run: Arc<Run>,
}

impl Transactional {
    /// For one run on `pool`, which leads to the same database as `store`.
    #[must_use]
    pub fn new(store: &MySqlStore, pool: &MySqlPool) -> Self {
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
            None => Open::new(self.run.pool.begin().await.map_err(not_sent)?),
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

/// How a claim inside a transaction went.
enum Inside {
    /// The answer, and whether something was written.
    Answered(Claimed, bool),
    /// Somebody came between: ask again from the beginning.
    Overtaken,
}

impl Run {
    async fn claim(&self, ask: &Claim) -> StoreResult<Claimed> {
        for _ in 0..TRIES {
            let found = self.store.look(&ask.identity).await?;
            if let Some(seen) = &found {
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
                Inside::Answered(answer @ Claimed::Won(_), _) => {
                    let open = Open::new(tx).guard().await.map_err(store_error)?;
                    let mut slot = self.slot.lock();
                    (slot.open, slot.ask) = (Some(open), Some(ask.clone()));
                    return Ok(answer);
                }
                Inside::Answered(answer, true) => {
                    tx.commit().await.map_err(store_error)?;
                    return Ok(answer);
                }
                // Nothing was written: whether the rollback is answered doesn't matter.
                Inside::Answered(answer, false) => {
                    let _ = tx.rollback().await;
                    return Ok(answer);
                }
                // Before the next claim, which must not meet what is being rolled back.
                Inside::Overtaken => drop(Open::new(tx).roll_back().await),
            }
        }
        Ok(protocol::overtaken())
    }

    /// Whether no other transaction has a row under way; asked outside of the caller's, so that nothing stays locked.
    async fn is_free(&self, ask: &Claim) -> StoreResult<bool> {
        let address = ask.identity.address();
        let statement = || prepared(&self.store.sql.look_locked).bind(address.to_vec());
        match self.store.link.try_rows(statement).await {
            Ok(_) => Ok(true),
            Err(error) if error.is(LOCK_WAIT) || error.is(LOCK_NOWAIT) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// A first run.
    async fn begin(&self, tx: &mut MySqlConnection, ask: &Claim) -> StoreResult<Inside> {
        let inserted = insert(&self.store.sql.insert_inside, ask);
        let fence = match inserted.execute(&mut *tx).await {
            Ok(done) => done.last_insert_id(),
            Err(error) => return lost(error, ask),
        };
        // After the insertion: a record of this key that was removed before it had its fence below this floor.
        let floor = self.store.floor().await?;
        let fence = match fence > floor {
            true => fence,
            false => self.lift_fence(tx, ask, floor + 1).await?,
        };
        let grant = first_run(ask, fence);
        Ok(Inside::Answered(Claimed::Won(grant), true))
    }

    /// The server's clock is behind the fences of records that were removed (P22).
    async fn lift_fence(
        &self,
        tx: &mut MySqlConnection,
        ask: &Claim,
        fence: u64,
    ) -> StoreResult<u64> {
        let lift = prepared(&self.store.sql.lift_inside).bind(row::signed(fence));
        let lift = lift
            .bind(ask.identity.address().to_vec())
            .bind(row::bytes(ask.token));
        let lifted = lift.execute(tx).await.map_err(store_error)?;
        Ok(lifted.last_insert_id())
    }

    /// A run in the place of a record that is over, locked before anything is decided.
    async fn take_over(&self, tx: &mut MySqlConnection, ask: &Claim) -> StoreResult<Inside> {
        let address = ask.identity.address().to_vec();
        let look = prepared(&self.store.sql.look_locked).bind(address);
        let row: Option<MySqlRow> = match look.fetch_optional(&mut *tx).await {
            Ok(row) => row,
            Err(error) => return lost(error, ask),
        };
        let Some(row) = row else {
            return Ok(Inside::Overtaken); // Free again.
        };
        let seen: Seen = row::check(row::parse(&row).map_err(store_error)?, &ask.identity)?;
        let decision = protocol::claim(Some(&seen.record), ask, seen.now);
        let Some(write) = decision.write else {
            return Ok(Inside::Answered(decision.answer, false));
        };
        // Locked by this transaction, so nobody else can have changed it.
        let swapped = swap(&self.store.sql.swap, &seen, &write).execute(tx).await;
        match swapped {
            Ok(done) if done.rows_affected() > 0 => Ok(Inside::Answered(decision.answer, true)),
            Ok(_) => Ok(Inside::Overtaken),
            Err(error) => lost(error, ask),
        }
    }
}

/// What a statement that failed inside a transaction says about the claim.
fn lost(error: Error, ask: &Claim) -> Result<Inside, StoreError> {
    match number(&error) {
        // Somebody else's, or given up in favour of somebody: nothing was done yet.
        Some(DUPLICATE | DEADLOCK) => Ok(Inside::Overtaken),
        Some(LOCK_WAIT | LOCK_NOWAIT) => Ok(Inside::Answered(busy(ask), false)),
        _ => Err(store_error(error)),
    }
}

impl Deref for Tx {
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        let open = self.open.as_ref().expect("taken only when dropped");
        open.connection()
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        let open = self.open.as_mut().expect("taken only when dropped");
        open.connection_mut()
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        self.run.slot.lock().open = self.open.take();
    }
}
