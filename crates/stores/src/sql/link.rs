//! The connection pool, and statements with retries after a broken connection.
//!
//! Retries are safe for every statement of the store: a claim, a renewal or a settlement that is
//! sent twice gives the same answer (P28). A connection whose call was cancelled is closed, because
//! its reply is still in flight and must not reach the next caller (I8).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel_core::store::{Connections, StoreResult};
use semel_core::{Clock, StoreError};
use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::{Connection as _, Error, Pool};

use super::dialect::{Connection, Dialect, Reply, Row, is_unknown, not_sent, store_error};
use super::pool_health::PoolHealth;
use crate::cas::unknown_if;

/// How long to wait for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(4);
/// How many times a statement is retried after a broken connection, and the pause before each
/// retry.
pub(crate) const RESENDS: usize = 2;
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// How a driver connects.
pub(crate) type ConnectOptions<D> = <Connection<D> as sqlx::Connection>::Options;

pub(crate) struct Link<D: Dialect> {
    pool: Pool<D::Db>,
    /// Whether each statement is sent in a transaction of its own. A pooler in transaction mode
    /// switches the session after each one, and a statement must be prepared and used in the same
    /// session.
    transacts: bool,
    clock: Arc<dyn Clock>,
    health: PoolHealth,
    /// How many times no connection was available because all were in use.
    exhausted: AtomicU64,
}

impl<D: Dialect> Link<D> {
    pub(crate) async fn open(
        options: ConnectOptions<D>,
        max_connections: u32,
        transacts: bool,
        clock: Arc<dyn Clock>,
    ) -> StoreResult<Self> {
        // One connection without the pool, because the pool would retry for long and then only
        // report a timeout.
        let first = Connection::<D>::connect_with(&options).await;
        drop(first.map_err(not_sent::<D>)?);
        let health = PoolHealth::new(Arc::clone(&clock));
        let checked = health.clone();
        let pool = PoolOptions::<D::Db>::new()
            .max_connections(max_connections)
            .acquire_timeout(CONNECT_LIMIT)
            .test_before_acquire(false)
            .after_connect(move |connection, _| {
                // Behind a pooler, the session is not ours.
                Box::pin(async move {
                    match transacts {
                        true => Ok(()),
                        false => D::set_up(connection).await,
                    }
                })
            })
            .before_acquire(move |connection, meta| {
                let needs_ping = checked.needs_ping(meta.idle_for);
                Box::pin(async move { Ok(!needs_ping || connection.ping().await.is_ok()) })
            });
        let pool = pool.connect_with(options).await;
        Ok(Self {
            transacts,
            pool: pool.map_err(not_sent::<D>)?,
            clock,
            health,
            exhausted: AtomicU64::new(0),
        })
    }

    /// Sends a statement that returns at most one row.
    pub(crate) async fn row(
        &self,
        statement: impl Fn() -> D::Bound,
    ) -> StoreResult<Option<Row<D>>> {
        Ok(self.rows(statement).await?.pop())
    }

    /// Sends a statement that returns rows.
    pub(crate) async fn rows(&self, statement: impl Fn() -> D::Bound) -> StoreResult<Vec<Row<D>>> {
        let reply = self.send(statement, true).await;
        reply.map(|reply| reply.rows).map_err(Failure::into)
    }

    /// Sends a statement, and retries as the dialect says.
    pub(crate) async fn send(
        &self,
        statement: impl Fn() -> D::Bound,
        wants_rows: bool,
    ) -> Result<Reply<D>, Failure<D>> {
        self.send_again(statement, wants_rows, true).await
    }

    /// As [`Self::send`], without a retry once the statement may have been applied: a second
    /// deletion would report that there was nothing to delete, or hit a later record.
    pub(crate) async fn send_once(
        &self,
        statement: impl Fn() -> D::Bound,
        wants_rows: bool,
    ) -> Result<Reply<D>, Failure<D>> {
        self.send_again(statement, wants_rows, false).await
    }

    async fn send_again(
        &self,
        statement: impl Fn() -> D::Bound,
        wants_rows: bool,
        is_repeatable: bool,
    ) -> Result<Reply<D>, Failure<D>> {
        let (mut resent, mut uncertain) = (0, false);
        loop {
            let fail = |error, sent| Failure::new(error, sent, uncertain);
            let mut held = self.acquire().await.map_err(|error| fail(error, false))?;
            let connection = held.get().map_err(|error| fail(error, false))?;
            let error = match self.send_on(connection, statement(), wants_rows).await {
                Ok(reply) => {
                    held.give_back();
                    return Ok(reply);
                }
                Err(error) => error,
            };
            if D::is_broken(&error) {
                self.health.note_broken();
            } else if !self.transacts {
                // With a transaction per statement, the failed one is still open, so the connection
                // is closed instead.
                held.give_back();
            }
            let (most, pause) = D::resends(&error);
            let is_unknown = is_unknown::<D>(&error);
            if resent >= most || (is_unknown && !is_repeatable) {
                return Err(fail(error, true));
            }
            uncertain |= is_unknown;
            resent += 1;
            self.clock.sleep(pause).await;
        }
    }

    async fn send_on(
        &self,
        connection: &mut Connection<D>,
        statement: D::Bound,
        wants_rows: bool,
    ) -> Result<Reply<D>, Error> {
        if !self.transacts {
            return D::send(connection, statement, wants_rows).await;
        }
        D::script(connection, "BEGIN").await?;
        let reply = D::send(connection, statement, wants_rows).await?;
        D::script(connection, "COMMIT").await?;
        Ok(reply)
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The size of the pool.
    pub(crate) fn most_connections(&self) -> u32 {
        self.pool.options().get_max_connections()
    }

    fn active(&self) -> u32 {
        let idle = u32::try_from(self.pool.num_idle()).unwrap_or(u32::MAX);
        self.pool.size().saturating_sub(idle)
    }

    pub(crate) fn connections(&self) -> Connections {
        Connections::new(self.active())
            .with_most(self.most_connections())
            .with_exhausted(self.exhausted.load(Ordering::Relaxed))
    }

    /// One connection for several statements, after `begin` was sent on it. Nothing has happened
    /// before that, so another connection is tried if the first one is broken.
    pub(crate) async fn session(&self, begin: Option<&'static str>) -> StoreResult<Session<D>> {
        let mut resent = 0;
        loop {
            let mut held = self.acquire().await.map_err(not_sent::<D>)?;
            let Some(begin) = begin else {
                return Ok(Session(held));
            };
            let connection = held.get().map_err(not_sent::<D>)?;
            let Err(error) = D::script(connection, begin).await else {
                return Ok(Session(held));
            };
            if !D::is_broken(&error) || resent == RESENDS {
                return Err(not_sent::<D>(error));
            }
            self.health.note_broken();
            resent += 1;
            self.clock.sleep(PAUSE).await;
        }
    }

    async fn acquire(&self) -> Result<CheckedOut<D>, Error> {
        let connection = self.pool.acquire().await.inspect_err(|error| {
            // A server that is gone times out as well, but with a pool that isn't full.
            let is_full = self.active() >= self.most_connections();
            if matches!(error, Error::PoolTimedOut) && is_full {
                self.exhausted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(CheckedOut(Some(connection?)))
    }
}

/// Why a statement failed.
pub(crate) struct Failure<D> {
    pub(crate) error: Error,
    /// Whether the last attempt was sent; `false` if no connection could be had.
    is_sent: bool,
    /// Whether an earlier attempt may have been applied.
    pub(crate) is_uncertain: bool,
    dialect: std::marker::PhantomData<fn() -> D>,
}

impl<D> Failure<D> {
    const fn new(error: Error, is_sent: bool, is_uncertain: bool) -> Self {
        Self {
            error,
            is_sent,
            is_uncertain,
            dialect: std::marker::PhantomData,
        }
    }
}

impl<D: Dialect> From<Failure<D>> for StoreError {
    fn from(failure: Failure<D>) -> Self {
        let error = match failure.is_sent {
            true => store_error::<D>(failure.error),
            false => not_sent::<D>(failure.error),
        };
        unknown_if(failure.is_uncertain, error)
    }
}

/// One connection for several statements. It is closed unless it is given back, and the server
/// rolls back what is open.
pub(crate) struct Session<D: Dialect>(CheckedOut<D>);

impl<D: Dialect> Session<D> {
    /// Sends a statement once.
    pub(crate) async fn rows(&mut self, statement: D::Bound) -> Result<Vec<Row<D>>, Error> {
        Ok(D::send(self.0.get()?, statement, true).await?.rows)
    }

    /// Text without arguments, of one statement or several.
    pub(crate) async fn script(&mut self, text: &str) -> StoreResult<Vec<Row<D>>> {
        let connection = self.0.get().map_err(store_error::<D>)?;
        D::script(connection, text).await.map_err(store_error::<D>)
    }

    pub(crate) async fn commit(mut self) -> StoreResult<()> {
        self.script("COMMIT").await?;
        self.give_back();
        Ok(())
    }

    pub(crate) fn give_back(self) {
        self.0.give_back();
    }
}

/// A connection that closes when dropped.
struct CheckedOut<D: Dialect>(Option<PoolConnection<D::Db>>);

impl<D: Dialect> CheckedOut<D> {
    fn get(&mut self) -> Result<&mut Connection<D>, Error> {
        self.0.as_deref_mut().ok_or(Error::PoolClosed)
    }

    fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl<D: Dialect> Drop for CheckedOut<D> {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}
