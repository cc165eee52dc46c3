//! The way to the server: a pool, and the rule that a connection whose call was cut short is never used again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel_core::store::{Connections, StoreResult};
use semel_core::{Certainty, Clock};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, Error, PgConnection, Postgres};

use super::error::{after, code, is_broken, not_sent, store_error};
use super::options::Options;
use super::row::Bound;
use crate::suspicion::Suspicion;

pub(super) struct Link {
    pool: PgPool,
    pooled: bool,
    clock: Arc<dyn Clock>,
    suspicion: Suspicion,
    /// How often no connection could be had because all were in use.
    exhausted: AtomicU64,
}

/// How often a statement is sent again on another connection.
const RESENDS: usize = 2;
/// Between two sendings.
const PAUSE: Duration = Duration::from_millis(20);
/// How long to wait for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(4);

impl Link {
    pub(super) async fn open(options: &Options, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        // A pool would try again and again, and then say no more than that it took too long.
        let first = PgConnection::connect_with(&options.connect)
            .await
            .map_err(not_sent)?;
        drop(first);
        let suspicion = Suspicion::new(Arc::clone(&clock));
        let tried = suspicion.clone();
        let pool = PgPoolOptions::new()
            .max_connections(options.max_connections)
            .acquire_timeout(CONNECT_LIMIT)
            .test_before_acquire(false)
            .before_acquire(move |connection, meta| {
                let trusted = !tried.falls_on(meta.idle_for);
                Box::pin(async move { Ok(trusted || connection.ping().await.is_ok()) })
            });
        let pool = pool.connect_with(options.connect.clone()).await;
        Ok(Self {
            pool: pool.map_err(not_sent)?,
            pooled: options.pooled,
            clock,
            suspicion,
            exhausted: AtomicU64::new(0),
        })
    }

    /// Sends a statement that gives at most one row, and sends it again on another connection where the first turns
    /// out to be broken. That is safe for every statement of ours: a claim, a renewal or a settlement that is sent
    /// again gives the same answer (P28).
    pub(super) async fn row(&self, statement: impl Fn() -> Bound) -> StoreResult<Option<PgRow>> {
        Ok(self.rows(statement).await?.pop())
    }

    /// The same for any number of rows.
    pub(super) async fn rows(&self, statement: impl Fn() -> Bound) -> StoreResult<Vec<PgRow>> {
        let (mut resends, mut unknown) = (0, false);
        loop {
            let held = self.hold().await;
            let mut held = held.map_err(|error| after(unknown, error))?;
            let error = match held.rows(statement(), self.pooled).await {
                Ok(rows) => {
                    held.give_back();
                    return Ok(rows);
                }
                Err(error) => error,
            };
            if is_broken(&error) {
                self.suspicion.raise();
            } else if !self.pooled {
                // Behind a pooler it failed in a transaction, and has left that open.
                held.give_back();
            }
            let again = resends < RESENDS && is_worth_resending(&error);
            let error = after(unknown, store_error(error));
            if !again {
                return Err(error);
            }
            unknown = error.certainty == Certainty::Unknown;
            resends += 1;
            self.clock.sleep(PAUSE).await;
        }
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The most connections that this process takes.
    pub(super) fn most_connections(&self) -> u32 {
        self.pool.options().get_max_connections()
    }

    fn active(&self) -> u32 {
        let idle = u32::try_from(self.pool.num_idle()).unwrap_or(u32::MAX);
        self.pool.size().saturating_sub(idle)
    }

    pub(super) fn connections(&self) -> Connections {
        Connections {
            active: self.active(),
            most: Some(self.most_connections()),
            exhausted: self.exhausted.load(Ordering::Relaxed),
        }
    }

    /// A transaction of our own. Rolled back unless committed. One that did not begin has done nothing, so another
    /// connection is taken where the first turns out to be broken.
    pub(super) async fn begin(&self) -> StoreResult<Session> {
        let mut resends = 0;
        loop {
            let mut held = self.hold().await?;
            let begin = sqlx::raw_sql("BEGIN");
            let Err(error) = begin.execute(held.get().map_err(not_sent)?).await else {
                return Ok(Session(held));
            };
            if !is_broken(&error) || resends == RESENDS {
                return Err(not_sent(error));
            }
            self.suspicion.raise();
            resends += 1;
            self.clock.sleep(PAUSE).await;
        }
    }

    async fn hold(&self) -> StoreResult<Held> {
        let connection = self.pool.acquire().await.map_err(|error| {
            // A server that is gone times out as well, but with a pool that isn't full.
            let is_full = self.active() >= self.most_connections();
            if matches!(error, Error::PoolTimedOut) && is_full {
                self.exhausted.fetch_add(1, Ordering::Relaxed);
            }
            not_sent(error)
        })?;
        Ok(Held(Some(connection)))
    }
}

fn is_worth_resending(error: &Error) -> bool {
    let lost_a_race = code(error).is_some_and(|code| code == "40001" || code == "40P01");
    is_broken(error) || lost_a_race
}

/// A transaction of our own.
pub(super) struct Session(Held);

impl Session {
    pub(super) async fn row(&mut self, statement: Bound) -> StoreResult<Option<PgRow>> {
        Ok(self.rows(statement).await?.pop())
    }

    pub(super) async fn rows(&mut self, statement: Bound) -> StoreResult<Vec<PgRow>> {
        self.try_rows(statement).await.map_err(store_error)
    }

    /// The same, with what the client says.
    pub(super) async fn try_rows(&mut self, statement: Bound) -> Result<Vec<PgRow>, Error> {
        self.0.rows(statement, false).await
    }

    /// Text without arguments, of one statement or several.
    pub(super) async fn script(&mut self, text: &str) -> StoreResult<Vec<PgRow>> {
        let connection = self.0.get().map_err(store_error)?;
        let script = sqlx::raw_sql(AssertSqlSafe(text));
        script.fetch_all(connection).await.map_err(store_error)
    }

    pub(super) async fn commit(mut self) -> StoreResult<()> {
        self.script("COMMIT").await?;
        self.0.give_back();
        Ok(())
    }
}

/// A connection that closes when dropped: a caller that leaves in the middle of a call leaves a reply on the way,
/// and nobody else may ever read it (I8).
struct Held(Option<PoolConnection<Postgres>>);

impl Held {
    fn get(&mut self) -> Result<&mut PgConnection, Error> {
        self.0.as_deref_mut().ok_or(Error::PoolClosed)
    }

    /// A pooler in transaction mode keeps the session for a transaction, and for nothing longer: preparing a
    /// statement and using it must be one.
    async fn rows(&mut self, statement: Bound, transact: bool) -> Result<Vec<PgRow>, Error> {
        let connection = self.get()?;
        if !transact {
            return statement.fetch_all(connection).await;
        }
        sqlx::raw_sql("BEGIN").execute(&mut *connection).await?;
        let rows = statement.fetch_all(&mut *connection).await?;
        sqlx::raw_sql("COMMIT").execute(connection).await?;
        Ok(rows)
    }

    fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}
