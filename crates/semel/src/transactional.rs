//! [`Call::run_in`]: the effect and its record in one database transaction.

use std::future::Future;
use std::sync::Arc;

use semel_core::engine::Lease;
use semel_core::store::{Store, StoreResult};
use semel_stores::TxError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Semel;
use crate::answer::{Error, Failure, FailureKind, TypedAnswer};
use crate::operation::{Call, answer, report};

/// A pool whose transactions can hold an effect together with its record: sqlx's `PgPool` (feature
/// `postgres`) and `MySqlPool` (feature `mysql`). Sealed.
pub trait Transact: sealed::Pool {
    /// The transaction, as an effect gets it: a connection to run statements on.
    type Tx: Send + 'static;

    #[doc(hidden)]
    fn transaction(run: &Self::Run) -> impl Future<Output = StoreResult<Self::Tx>> + Send;

    #[doc(hidden)]
    fn send(
        tx: &mut Self::Tx,
        statement: &'static str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// A savepoint around an effect that runs without a lease. Releasing it fails if the transaction
/// has changed. Without it, PostgreSQL would answer `COMMIT` without an error, and roll back, if
/// the effect had ignored an error.
const SAVEPOINT: &str = "SAVEPOINT semel_run";
const RELEASE_SAVEPOINT: &str = "RELEASE SAVEPOINT semel_run";
/// The same check if the effect failed: this statement also works after an error.
const ROLLBACK_TO_SAVEPOINT: &str = "ROLLBACK TO SAVEPOINT semel_run";

mod sealed {
    use super::{Future, Semel, Store, TxError};

    /// A pool that can make a store for one run.
    pub trait Pool: Sync {
        type Run: Store + Clone;

        /// A store for one run; `None` if the records are elsewhere.
        fn run(&self, semel: &Semel) -> Option<Self::Run>;

        fn commit_unprotected(run: &Self::Run) -> impl Future<Output = Result<(), TxError>> + Send;

        fn refused(run: &Self::Run) -> Option<TxError>;

        /// Whether the connection is broken: the last statement may have been executed.
        fn is_broken(error: &sqlx::Error) -> bool;

        /// Whether the transaction is over, or another one than at its beginning.
        fn is_over(error: &sqlx::Error) -> Option<TxError>;
    }
}

macro_rules! transact {
    ($feature:literal, $store:ident, $run:ident, $tx:ident, $pool:ty) => {
        #[cfg(feature = $feature)]
        impl sealed::Pool for $pool {
            type Run = semel_stores::$store::$run;

            fn run(&self, semel: &Semel) -> Option<Self::Run> {
                let store = semel.shared.$store.as_ref()?;
                Some(semel_stores::$store::$run::new(store, self))
            }

            fn commit_unprotected(
                run: &Self::Run,
            ) -> impl Future<Output = Result<(), TxError>> + Send {
                run.commit_unprotected()
            }

            fn refused(run: &Self::Run) -> Option<TxError> {
                run.refused()
            }

            fn is_broken(error: &sqlx::Error) -> bool {
                semel_stores::$store::is_broken(error)
            }

            fn is_over(error: &sqlx::Error) -> Option<TxError> {
                $store::is_over(error)
            }
        }

        #[cfg(feature = $feature)]
        impl Transact for $pool {
            type Tx = semel_stores::$store::$tx;

            fn transaction(run: &Self::Run) -> impl Future<Output = StoreResult<Self::Tx>> + Send {
                run.transaction()
            }

            async fn send(tx: &mut Self::Tx, statement: &'static str) -> Result<(), sqlx::Error> {
                sqlx::raw_sql(statement).execute(&mut **tx).await.map(drop)
            }
        }
    };
}

transact!(
    "postgres",
    postgres,
    PostgresTransactional,
    PostgresTx,
    sqlx::PgPool
);
transact!("mysql", mysql, MySqlTransactional, MySqlTx, sqlx::MySqlPool);

#[cfg(feature = "postgres")]
mod postgres {
    use super::TxError;

    pub(super) fn is_over(error: &sqlx::Error) -> Option<TxError> {
        match error.as_database_error()?.code()?.as_ref() {
            "25P01" => Some(TxError::Ended),
            // A new transaction without our savepoint, because the effect has kept the old one.
            "3B001" => Some(TxError::Kept),
            _ => None,
        }
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use super::TxError;
    use sqlx::mysql::MySqlDatabaseError;

    /// The savepoint is gone: DDL commits implicitly in MySQL, and a deadlock rolls back.
    pub(super) fn is_over(error: &sqlx::Error) -> Option<TxError> {
        let error = error.as_database_error()?;
        let number = error.try_downcast_ref::<MySqlDatabaseError>()?.number();
        (number == 1305).then_some(TxError::Ended)
    }
}

impl Call {
    /// Runs `effect` in a transaction on `pool`, together with its record: both are committed, or
    /// neither. The effect's writes in that transaction happen exactly once, even after a crash.
    ///
    /// The records must be in the database of `pool`: open [`crate::Semel`] with its URL. The
    /// effect gets the transaction as a [`Transact::Tx`], which is a connection to run statements
    /// on. An effect that fails is rolled back, and the next call runs it again; a
    /// [`Failure::reject`] is rolled back and kept. A caller that comes while another runs waits or
    /// gets the problem "busy", as the policy says.
    ///
    /// Effects outside of the transaction, such as a call to another system, are not covered: pass
    /// `lease.derive_key(…)` along there.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// use semel::{Failure, Semel};
    ///
    /// let semel = Semel::open("postgres://app@127.0.0.1/app").await?;
    /// let receipt = semel.operation("transfer").key("t-1").payload(&("alice", "bob", 100));
    /// let receipt = receipt.run_in(&pool, async |mut tx, _lease| {
    ///     let take = "UPDATE accounts SET amount = amount - 100 WHERE name = 'alice'";
    ///     sqlx::query(take).execute(&mut *tx).await?;
    ///     let give = "UPDATE accounts SET amount = amount + 100 WHERE name = 'bob'";
    ///     sqlx::query(give).execute(&mut *tx).await?;
    ///     Ok::<_, Failure>("done".to_owned())
    /// });
    /// assert_eq!(receipt.await?.value, "done");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error`] says what happened, and whether calling again can help. [`Error::Failed`] with a
    /// [`TxError`](crate::TxError) inside means that the server did not commit, and nothing
    /// happened. If the transaction ended before its settlement, for example by a `COMMIT` of the
    /// effect's own, it is unknown what was committed: that is [`Error::InDoubt`], and the key
    /// stays in doubt until resolved. Without protection (mode `off` or `observe`, fail-open) no
    /// record shows whether a commit without an answer was done: that is [`Error::Unknown`].
    pub async fn run_in<P, T, E, F, Fut>(self, pool: &P, effect: F) -> Result<TypedAnswer<T>, Error>
    where
        P: Transact,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Into<Failure>,
        F: FnOnce(P::Tx, Lease) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
    {
        let crash = self.crash();
        let (semel, request) = self.request()?;
        let run = pool.run(&semel).ok_or(Error::NotTransactional)?;
        let engine = semel.engine().with_store(Arc::new(run.clone()));
        let in_run = run.clone();
        let response = engine.execute(request, |lease| async move {
            let said = in_transaction::<P, _, _, _, _>(&in_run, lease, effect).await;
            report(said.map_err(rolled_back))
        });
        let response = response.await;
        match P::refused(&run) {
            // The store has recorded the doubt outside of the transaction.
            Some(why) if why.is_unknown() => Err(Error::InDoubt(why.into())),
            Some(why) => Err(Error::Failed(why.into())),
            None => answer(response, &semel, crash),
        }
    }
}

async fn in_transaction<P, T, E, F, Fut>(
    run: &P::Run,
    lease: Lease,
    effect: F,
) -> Result<T, Failure>
where
    P: Transact,
    E: Into<Failure>,
    F: FnOnce(P::Tx, Lease) -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let is_protected = lease.fence().is_some();
    let mut tx = P::transaction(run).await.map_err(Failure::no_effect)?;
    if is_protected {
        return effect(tx, lease).await.map_err(Into::into);
    }
    P::send(&mut tx, SAVEPOINT)
        .await
        .map_err(Failure::no_effect)?;
    match effect(tx, lease).await.map_err(Into::into) {
        Ok(value) => {
            commit_unprotected::<P>(run).await?;
            Ok(value)
        }
        Err(failure) => Err(undo_unprotected::<P>(run, failure).await),
    }
}

/// The failure of an effect that ran without a lease: its own, unless it ended the transaction
/// before.
async fn undo_unprotected<P: Transact>(run: &P::Run, failure: Failure) -> Failure {
    let Ok(mut tx) = P::transaction(run).await else {
        return failure;
    };
    let undone = P::send(&mut tx, ROLLBACK_TO_SAVEPOINT).await;
    match undone.err().and_then(|error| P::is_over(&error)) {
        Some(over) if over.is_unknown() => Failure::unknown(over),
        _ => failure,
    }
}

/// Commits an effect that ran without a lease. Reports "no effect" only if that is certain, because
/// there is no record.
async fn commit_unprotected<P: Transact>(run: &P::Run) -> Result<(), Failure> {
    // If the effect kept its transaction we get a fresh one without our savepoint, so releasing it
    // fails, as intended.
    let kept = |_| Failure::unknown(TxError::Kept);
    let mut tx = P::transaction(run).await.map_err(kept)?;
    let stands = P::send(&mut tx, RELEASE_SAVEPOINT).await;
    // Returns it to the run, to be committed or rolled back.
    drop(tx);
    if let Err(error) = stands {
        return Err(match P::is_over(&error) {
            Some(over) => Failure::unknown(over),
            None if P::is_broken(&error) => Failure::no_effect(TxError::RolledBack),
            None => Failure::no_effect(TxError::Refused(error)),
        });
    }
    P::commit_unprotected(run)
        .await
        .map_err(|error| match error {
            TxError::Refused(error) if P::is_broken(&error) => Failure::unknown(error),
            refused => Failure::no_effect(refused),
        })
}

/// The effect's writes are rolled back, so a retryable failure becomes one without an effect.
fn rolled_back(failure: Failure) -> Failure {
    match failure {
        Failure(FailureKind::Retry(cause)) => Failure(FailureKind::NoEffect(cause)),
        other => other,
    }
}

/// Compiles the examples of these stores' guides.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../../../docs/stores/postgres.md")]
struct PostgresGuide;

#[cfg(all(doctest, feature = "mysql"))]
#[doc = include_str!("../../../docs/stores/mysql.md")]
struct MySqlGuide;
