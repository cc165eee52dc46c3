//! The claim, the caller's own writes and the settlement as one transaction: both happen, or
//! neither.
//!
//! [`Transactional`] is a store for one run. To the engine it is like any other store: a claim
//! opens a transaction and leaves it open if it wins, the effect works in it, and the settlement
//! commits it. Until then the record is invisible to others, and other callers get the answer that
//! the key is busy.

mod error;
mod store;

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;
use semel_core::store::{Store, StoreResult};
use semel_core::{Claim, Claimed, Grant, Settled, Settlement};
use sqlx::{Error, Pool};

use super::dialect::{Connection, Dialect, not_sent};

pub use error::TxError;

/// A dialect's way to claim and settle inside of a transaction.
pub trait SqlTransact: Dialect + Sized {
    /// The store whose records are claimed.
    type Store: Store + Clone;
    /// An open transaction. Dropped, it is rolled back.
    type Open: Send + Sync + 'static;

    /// Opens a transaction.
    fn begin(pool: &Pool<Self::Db>) -> impl Future<Output = Result<Self::Open, Error>> + Send;
    /// Commits one.
    fn commit(open: Self::Open) -> impl Future<Output = Result<(), Error>> + Send;
    /// Its connection.
    fn connection(open: &Self::Open) -> &Connection<Self>;
    /// Its connection, for statements.
    fn connection_mut(open: &mut Self::Open) -> &mut Connection<Self>;

    /// Claims in a transaction, which stays open in the run's slot if the claim wins.
    fn claim(run: &Run<Self>, ask: &Claim) -> impl Future<Output = StoreResult<Claimed>> + Send;

    /// Settles: commits, or rolls back and keeps what has to be kept outside of the transaction.
    fn settle(
        run: &Run<Self>,
        lease: &Grant,
        settlement: &Settlement,
    ) -> impl Future<Output = StoreResult<Settled>> + Send;

    /// Wakes those who wait for the record in this process.
    fn wake(store: &Self::Store, lease: &Grant);
}

/// A store for one run, in a transaction on the caller's own pool.
pub struct Transactional<D: SqlTransact> {
    run: Arc<Run<D>>,
}

/// One run.
pub struct Run<D: SqlTransact> {
    pub(crate) store: D::Store,
    pub(crate) pool: Pool<D::Db>,
    pub(crate) slot: Mutex<Slot<D::Open>>,
}

/// The state of a run while its effect doesn't use the transaction.
pub(crate) struct Slot<O> {
    pub(crate) open: Option<O>,
    /// The claim that the transaction was opened for, to find out whether it was committed.
    pub(crate) ask: Option<Claim>,
    /// Whether the end of the transaction was sent without a reply.
    pub(crate) unanswered: bool,
    /// The outcome of the transaction, once it is known.
    pub(crate) fate: Option<TxOutcome>,
    pub(crate) refused: Option<TxError>,
}

impl<O> Default for Slot<O> {
    fn default() -> Self {
        Self {
            open: None,
            ask: None,
            unanswered: false,
            fate: None,
            refused: None,
        }
    }
}

/// The outcome of a transaction that its settlement did not commit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TxOutcome {
    /// It was rolled back.
    RolledBack,
    /// It ended before its settlement, so the effect's writes may be committed.
    Ended,
}

/// The transaction that the effect works in: a connection that can't be committed by mistake.
/// Dropping it returns it.
pub struct Tx<D: SqlTransact> {
    open: Option<D::Open>,
    run: Arc<Run<D>>,
}

impl<D: SqlTransact> Transactional<D> {
    /// A store for one run on `pool`, which connects to the same database as `store`.
    #[must_use]
    pub fn new(store: &D::Store, pool: &Pool<D::Db>) -> Self {
        let run = Run {
            store: store.clone(),
            pool: pool.clone(),
            slot: Mutex::default(),
        };
        Self { run: Arc::new(run) }
    }

    /// The transaction that the claim opened, or a new one if the effect runs without a claim.
    ///
    /// # Errors
    /// If no connection is available.
    pub async fn transaction(&self) -> StoreResult<Tx<D>> {
        let open = self.run.slot.lock().open.take();
        let open = match open {
            Some(open) => open,
            None => D::begin(&self.run.pool).await.map_err(not_sent::<D>)?,
        };
        Ok(Tx {
            open: Some(open),
            run: Arc::clone(&self.run),
        })
    }

    /// Commits the writes of an effect that ran without a claim.
    ///
    /// # Errors
    /// [`TxError`] if it was rolled back; `Refused` also if the connection was lost and the outcome
    /// is unknown.
    pub async fn commit_unprotected(&self) -> Result<(), TxError> {
        let open = self.run.slot.lock().open.take().ok_or(TxError::Kept)?;
        D::commit(open).await.map_err(TxError::Refused)
    }

    /// Why the transaction was rolled back although the effect succeeded.
    #[must_use]
    pub fn refused(&self) -> Option<TxError> {
        self.run.slot.lock().refused.take()
    }
}

impl<D: SqlTransact> Clone for Transactional<D> {
    fn clone(&self) -> Self {
        Self {
            run: Arc::clone(&self.run),
        }
    }
}

impl<D: SqlTransact> Run<D> {
    /// Records why the transaction was not committed.
    pub(crate) fn refuse(&self, why: TxError) -> Settled {
        self.slot.lock().refused = Some(why);
        Settled::Lost
    }

    /// Records the outcome of the transaction. The first one counts, because a claim outside of the
    /// transaction is made under the same token afterwards.
    pub(crate) fn decide(&self, fate: TxOutcome) -> TxOutcome {
        *self.slot.lock().fate.get_or_insert(fate)
    }

    pub(crate) fn fate(&self) -> Option<TxOutcome> {
        self.slot.lock().fate
    }

    /// Keeps the transaction of a claim that won for its effect.
    pub(crate) fn keep(&self, open: D::Open, ask: &Claim) {
        let mut slot = self.slot.lock();
        (slot.open, slot.ask) = (Some(open), Some(ask.clone()));
    }
}

impl<D: SqlTransact> Deref for Tx<D> {
    type Target = Connection<D>;

    fn deref(&self) -> &Connection<D> {
        D::connection(self.open.as_ref().expect("taken only when dropped"))
    }
}

impl<D: SqlTransact> DerefMut for Tx<D> {
    fn deref_mut(&mut self) -> &mut Connection<D> {
        D::connection_mut(self.open.as_mut().expect("taken only when dropped"))
    }
}

impl<D: SqlTransact> Drop for Tx<D> {
    fn drop(&mut self) {
        self.run.slot.lock().open = self.open.take();
    }
}
