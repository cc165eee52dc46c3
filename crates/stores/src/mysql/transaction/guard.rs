//! A transaction outside of which nothing is committed.
//!
//! These servers may end a transaction under an effect that goes on: a deadlock rolls all of it back, the claim included, and
//! what the effect sends next would be committed by itself, without the record. So, once the claim is won, the session
//! commits nothing by itself (`autocommit = 0`): after a deadlock it is in another transaction, which has no mark and is
//! rolled back.
//!
//! An effect may also end it by a statement of its own (`COMMIT`, `ROLLBACK`, a new table). So the session is set to read
//! only as well. That leaves the open transaction as it is, and one after a deadlock too; every transaction after such a
//! statement may only read. A write is refused there (1792), by which the one is told from the other.

use sqlx::{Error, MySql, MySqlConnection, Transaction};
use tokio::runtime::Handle;

use crate::mysql::error::{READ_ONLY, number};

/// The mark is gone if the transaction was ended by anything else than the settlement.
const GUARD: &str = "SAVEPOINT semel_run; SET SESSION TRANSACTION READ ONLY; \
                     SET @semel_autocommit = @@autocommit; SET autocommit = 0";
/// Stops at its first statement where the mark is gone.
const RELEASE: &str = "RELEASE SAVEPOINT semel_run; SET SESSION TRANSACTION READ WRITE";
/// A write, as far as the server's permission to write goes.
const WRITE_NOTHING: &str = "UPDATE semel_records SET fence = fence WHERE FALSE";
/// The commit first: to turn `autocommit` on is to commit.
const COMMIT: &str = "COMMIT; SET autocommit = @semel_autocommit";
const ROLL_BACK: &str =
    "ROLLBACK; SET SESSION TRANSACTION READ WRITE; SET autocommit = @semel_autocommit";

/// An open transaction. Dropped, it is rolled back, and its session is as it was before another gets it.
pub struct Open {
    /// `None` only once it has ended.
    tx: Option<Transaction<'static, MySql>>,
    is_guarded: bool,
}

/// What a transaction is found to be at its end.
pub(super) enum Found {
    /// The claim's own.
    Intact,
    /// The server has rolled the claim's own back; nothing was committed since.
    RolledBack(Error),
    /// The effect has ended it by a statement of its own.
    Ended,
    /// It can't be asked.
    Lost(Error),
}

impl Open {
    pub(super) const fn new(tx: Transaction<'static, MySql>) -> Self {
        Self {
            tx: Some(tx),
            is_guarded: false,
        }
    }

    /// Sets the mark, and the session so that nothing is committed outside of this transaction.
    pub(super) async fn guard(mut self) -> Result<Self, Error> {
        self.is_guarded = true;
        self.send(GUARD).await?;
        Ok(self)
    }

    /// Takes the mark away; says what became of the transaction where it is gone.
    pub(super) async fn release(&mut self) -> Found {
        let Err(gone) = self.send(RELEASE).await else {
            return Found::Intact;
        };
        match self.send(WRITE_NOTHING).await {
            Ok(()) => Found::RolledBack(gone),
            Err(error) if number(&error) == Some(READ_ONLY) => Found::Ended,
            Err(_) => Found::Lost(gone),
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

    /// → whether that was answered. If not, the connection is gone, and the transaction goes with it.
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
        // Without a runtime nobody can use the pool any more.
        if let (Some(tx), Ok(runtime)) = (tx, Handle::try_current()) {
            runtime.spawn(end(tx));
        }
    }
}
