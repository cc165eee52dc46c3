//! Guards a transaction with a savepoint, so that nothing is committed outside of it.
//!
//! These servers may end a transaction while its effect goes on: a deadlock rolls back all of it,
//! including the claim, and the effect's next statements would be committed without the record. So,
//! once the claim is won, the session turns autocommit off (`autocommit = 0`): after a deadlock it
//! is in a new transaction without our savepoint, which is rolled back.
//!
//! An effect may also end the transaction with a statement of its own (`COMMIT`, `ROLLBACK`, DDL).
//! So the session is set to read-only as well. That affects neither the open transaction nor the
//! one after a deadlock, but every transaction after such a statement may only read. A write is
//! rejected there (1792), which tells the two cases apart.

use sqlx::{Error, MySql, MySqlConnection, Transaction};
use tokio::runtime::Handle;

use crate::mysql::error::{READ_ONLY, number};

/// The savepoint. It is gone if anything but the settlement ended the transaction.
const GUARD: &str = "SAVEPOINT semel_run; SET SESSION TRANSACTION READ ONLY; \
                     SET @semel_autocommit = @@autocommit; SET autocommit = 0";
/// Fails at its first statement if the savepoint is gone.
const RELEASE: &str = "RELEASE SAVEPOINT semel_run; SET SESSION TRANSACTION READ WRITE";
/// A statement that a read-only transaction rejects, but that changes nothing.
const WRITE_NOTHING: &str = "UPDATE semel_records SET fence = fence WHERE FALSE";
/// Commits first, because turning `autocommit` on commits.
const COMMIT: &str = "COMMIT; SET autocommit = @semel_autocommit";
const ROLL_BACK: &str =
    "ROLLBACK; SET SESSION TRANSACTION READ WRITE; SET autocommit = @semel_autocommit";

/// An open transaction. When dropped, it is rolled back, and its session is restored for the next
/// user.
pub struct Open {
    /// `None` only once it has ended.
    tx: Option<Transaction<'static, MySql>>,
    is_guarded: bool,
}

/// The state of a transaction at its end.
pub(super) enum TransactionState {
    /// It is still the claim's transaction.
    Intact,
    /// The server has rolled back the claim's transaction, and nothing was committed since.
    RolledBack(Error),
    /// The effect has ended it by a statement of its own.
    Ended,
    /// Its connection doesn't answer.
    Lost(Error),
}

impl Open {
    pub(super) const fn new(tx: Transaction<'static, MySql>) -> Self {
        Self {
            tx: Some(tx),
            is_guarded: false,
        }
    }

    /// Sets the savepoint, and the session so that nothing is committed outside of this
    /// transaction.
    pub(super) async fn guard(mut self) -> Result<Self, Error> {
        self.is_guarded = true;
        self.send(GUARD).await?;
        Ok(self)
    }

    /// Releases the savepoint. If it is gone, finds out why.
    pub(super) async fn release(&mut self) -> TransactionState {
        let Err(gone) = self.send(RELEASE).await else {
            return TransactionState::Intact;
        };
        match self.send(WRITE_NOTHING).await {
            Ok(()) => TransactionState::RolledBack(gone),
            Err(error) if number(&error) == Some(READ_ONLY) => TransactionState::Ended,
            Err(_) => TransactionState::Lost(gone),
        }
    }

    async fn send(&mut self, text: &'static str) -> Result<(), Error> {
        let sent = sqlx::raw_sql(text).execute(self.connection_mut());
        sent.await.map(drop)
    }

    pub(super) async fn commit(mut self) -> Result<(), Error> {
        if self.is_guarded {
            self.send(COMMIT).await?;
            self.is_guarded = false;
            return Ok(());
        }
        match self.tx.take() {
            Some(tx) => tx.commit().await,
            None => Ok(()),
        }
    }

    /// Rolls back. Returns whether the server answered. If not, the connection is gone, and the
    /// transaction with it.
    pub(super) async fn roll_back(mut self) -> bool {
        match self.tx.take() {
            Some(tx) if self.is_guarded => end(tx).await,
            Some(tx) => tx.rollback().await.is_ok(),
            None => true,
        }
    }

    pub(super) fn connection(&self) -> &MySqlConnection {
        self.tx.as_deref().expect("taken only when it ends")
    }

    pub(super) fn connection_mut(&mut self) -> &mut MySqlConnection {
        self.tx.as_deref_mut().expect("taken only when it ends")
    }
}

/// Rolls back, and sets the session as it was.
async fn end(mut tx: Transaction<'static, MySql>) -> bool {
    sqlx::raw_sql(ROLL_BACK).execute(&mut *tx).await.is_ok()
}

impl Drop for Open {
    fn drop(&mut self) {
        let tx = self.tx.take().filter(|_| self.is_guarded);
        // Without a runtime the pool is unusable anyway.
        if let (Some(tx), Ok(runtime)) = (tx, Handle::try_current()) {
            runtime.spawn(end(tx));
        }
    }
}
