//! [`Call::run_in`]: the effect, its record and nothing between them, in one transaction.

use std::future::Future;
use std::sync::Arc;

use semel_core::engine::Lease;
use semel_stores::postgres::{Transactional, Tx};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::PgPool;

use crate::answer::{Answer, Error, Failure, Kind};
use crate::operation::{Call, answer, report};

impl Call {
    /// Runs `effect` in a transaction on `pool`, together with the record of it: both are committed, or neither. What
    /// the effect does in that transaction happens exactly once, whatever crashes.
    ///
    /// The records must be in the database that `pool` leads to: open [`crate::Semel`] with its URL. The effect gets
    /// the transaction as a [`Tx`], which is a connection to run statements on. An effect that fails is rolled back,
    /// and the next call runs it again; a [`Failure::reject`] is rolled back and kept. A caller that comes while
    /// another runs waits for it, or is told so, as the policy says.
    ///
    /// What the effect does outside of the transaction (a call to another system) is not covered: pass
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
    /// [`TxError`](crate::TxError) inside means that the server did not commit, and nothing happened.
    pub async fn run_in<T, E, F, Fut>(self, pool: &PgPool, effect: F) -> Result<Answer<T>, Error>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Into<Failure>,
        F: FnOnce(Tx, Lease) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
    {
        let (semel, request) = self.request()?;
        let store = semel
            .shared
            .postgres
            .as_ref()
            .ok_or(Error::NotTransactional)?;
        let run = Transactional::new(store, pool);
        let engine = semel.engine().over(Arc::new(run.clone()));
        let in_run = run.clone();
        let response = engine.execute(request, |lease| async move {
            let said = in_transaction(&in_run, lease, effect).await;
            report(said.map_err(rolled_back))
        });
        let response = response.await;
        match run.refused() {
            Some(why) => Err(Error::Failed(why.into())),
            None => answer(response, &semel),
        }
    }
}

async fn in_transaction<T, E, F, Fut>(
    run: &Transactional,
    lease: Lease,
    effect: F,
) -> Result<T, Failure>
where
    E: Into<Failure>,
    F: FnOnce(Tx, Lease) -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let is_protected = lease.fence().is_some();
    let tx = run.transaction().await.map_err(Failure::no_effect)?;
    let value = effect(tx, lease).await.map_err(Into::into)?;
    if !is_protected {
        run.commit_unprotected().await?;
    }
    Ok(value)
}

/// Whatever the effect did is rolled back, so that nothing of it happened.
fn rolled_back(failure: Failure) -> Failure {
    match failure {
        Failure(Kind::Retry(cause)) => Failure(Kind::NoEffect(cause)),
        other => other,
    }
}
