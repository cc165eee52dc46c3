//! The way to the server: a pool, and the rule that a connection whose call was cut short is never used again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel_core::store::{Connections, StoreResult};
use semel_core::{Clock, StoreError};
use sqlx::mysql::{MySqlPool, MySqlPoolOptions, MySqlQueryResult, MySqlRow};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Connection as _, Error, MySql, MySqlConnection};

use super::error::{
    DEADLOCK, LOCK_WAIT, after, is_broken, is_unknown, not_sent, number, store_error,
};
use super::options::Options;
use super::row::Bound;
use crate::suspicion::Suspicion;

pub(super) struct Link {
    pool: MySqlPool,
    clock: Arc<dyn Clock>,
    suspicion: Suspicion,
    /// How often no connection could be had because all were in use.
    exhausted: AtomicU64,
}

/// How often a statement is sent again: on another connection, after giving way to another session, after waiting for
/// a row in vain.
const RESENDS: usize = 2;
const DEADLOCKS: usize = 16;
const LOCK_WAITS: usize = 1;
/// Between two sendings.
const PAUSE: Duration = Duration::from_millis(20);
const SHORT_PAUSE: Duration = Duration::from_millis(2);
/// How long to wait for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(4);

/// No gaps are locked, and every statement sees what is committed; nobody waits for a row for a minute.
const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                       SET SESSION innodb_lock_wait_timeout = 2, autocommit = 1";

impl Link {
    pub(super) async fn open(options: &Options, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        // A pool would try again and again, and then say no more than that it took too long.
        let first = MySqlConnection::connect_with(&options.connect).await;
        drop(first.map_err(not_sent)?);
        let suspicion = Suspicion::new(Arc::clone(&clock));
        let tried = suspicion.clone();
        let pool = MySqlPoolOptions::new()
            .max_connections(options.max_connections)
            .acquire_timeout(CONNECT_LIMIT)
            .test_before_acquire(false)
            .after_connect(|connection, _| {
                Box::pin(async move { sqlx::raw_sql(SESSION).execute(connection).await.map(drop) })
            })
            .before_acquire(move |connection, meta| {
                let trusted = !tried.falls_on(meta.idle_for);
                Box::pin(async move { Ok(trusted || connection.ping().await.is_ok()) })
            });
        let pool = pool.connect_with(options.connect.clone()).await;
        Ok(Self {
            pool: pool.map_err(not_sent)?,
            clock,
            suspicion,
            exhausted: AtomicU64::new(0),
        })
    }

    /// Sends a statement that gives at most one row.
    pub(super) async fn row(&self, statement: impl Fn() -> Bound) -> StoreResult<Option<MySqlRow>> {
        Ok(self.rows(statement).await?.pop())
    }

    /// Sends a statement that gives rows.
    pub(super) async fn rows(&self, statement: impl Fn() -> Bound) -> StoreResult<Vec<MySqlRow>> {
        self.try_rows(statement).await.map_err(failed)
    }

    /// The same, for whoever wants to know the server's number.
    pub(super) async fn try_rows(
        &self,
        statement: impl Fn() -> Bound,
    ) -> Result<Vec<MySqlRow>, Failed> {
        self.send(statement, true).await.map(|(rows, _)| rows)
    }

    /// Sends a statement that gives none. What the number of rows says, and what it doesn't: see [`super::sql`].
    pub(super) async fn execute(
        &self,
        statement: impl Fn() -> Bound,
    ) -> Result<MySqlQueryResult, Failed> {
        self.send(statement, false).await.map(|(_, done)| done)
    }

    /// Sends, and sends again on another connection where the first turns out to be broken, and where the server chose
    /// this session to give way. That is safe for every statement of ours: a claim, a renewal or a settlement that is
    /// sent again gives the same answer (P28).
    async fn send(
        &self,
        statement: impl Fn() -> Bound,
        gives_rows: bool,
    ) -> Result<(Vec<MySqlRow>, MySqlQueryResult), Failed> {
        let (mut sent, mut unknown) = (0, false);
        loop {
            let not_sent = |error| Failed::NotSent { error, unknown };
            let mut held = self.hold().await.map_err(not_sent)?;
            let connection = held.get().map_err(not_sent)?;
            let outcome = if gives_rows {
                let rows = statement().fetch_all(connection).await;
                rows.map(|rows| (rows, MySqlQueryResult::default()))
            } else {
                let done = statement().execute(connection).await;
                done.map(|done| (Vec::new(), done))
            };
            let error = match outcome {
                Ok(answer) => {
                    held.give_back();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            if is_broken(&error) {
                self.suspicion.raise();
            } else {
                held.give_back();
            }
            let (most, pause) = resends(&error);
            if sent >= most {
                return Err(Failed::Sent { error, unknown });
            }
            unknown |= is_unknown(&error);
            sent += 1;
            self.clock.sleep(pause).await;
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

    /// A session of its own, for several statements.
    pub(super) async fn session(&self) -> StoreResult<Session> {
        Ok(Session(self.hold().await.map_err(not_sent)?))
    }

    async fn hold(&self) -> Result<Held, Error> {
        let connection = self.pool.acquire().await.inspect_err(|error| {
            // A server that is gone times out as well, but with a pool that isn't full.
            let is_full = self.active() >= self.most_connections();
            if matches!(error, Error::PoolTimedOut) && is_full {
                self.exhausted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Held(Some(connection?)))
    }
}

/// What became of a statement.
pub(super) enum Failed {
    /// No connection could be had.
    NotSent {
        error: Error,
        /// Whether it was sent before, and may have been done.
        unknown: bool,
    },
    /// It was sent, and refused or not answered.
    Sent {
        error: Error,
        /// The same.
        unknown: bool,
    },
}

impl Failed {
    /// Whether the server said this number.
    pub(super) fn is(&self, wanted: u16) -> bool {
        matches!(self, Self::Sent { error, .. } if number(error) == Some(wanted))
    }

    /// Whether an earlier sending of it may have been done.
    pub(super) const fn is_open(&self) -> bool {
        match self {
            Self::NotSent { unknown, .. } | Self::Sent { unknown, .. } => *unknown,
        }
    }
}

/// As a store error.
pub(super) fn failed(what: Failed) -> StoreError {
    match what {
        Failed::NotSent { error, unknown } => after(unknown, not_sent(error)),
        Failed::Sent { error, unknown } => after(unknown, store_error(error)),
    }
}

/// How often to send again after this error, and how long to wait before.
fn resends(error: &Error) -> (usize, Duration) {
    match number(error) {
        Some(DEADLOCK) => (DEADLOCKS, SHORT_PAUSE),
        Some(LOCK_WAIT) => (LOCK_WAITS, SHORT_PAUSE),
        _ if is_broken(error) => (RESENDS, PAUSE),
        _ => (0, PAUSE),
    }
}

/// Several statements on one connection, which is closed unless it is given back.
pub(super) struct Session(Held);

impl Session {
    /// Text without arguments, of one statement or several.
    pub(super) async fn script(&mut self, text: &str) -> StoreResult<Vec<MySqlRow>> {
        let connection = self.0.get().map_err(store_error)?;
        let script = sqlx::raw_sql(AssertSqlSafe(text));
        script.fetch_all(connection).await.map_err(store_error)
    }

    pub(super) fn give_back(self) {
        self.0.give_back();
    }
}

/// A connection that closes when dropped: a caller that leaves in the middle of a call leaves a reply on the way, and
/// nobody else may ever read it (I8).
struct Held(Option<PoolConnection<MySql>>);

impl Held {
    fn get(&mut self) -> Result<&mut MySqlConnection, Error> {
        self.0.as_deref_mut().ok_or(Error::PoolClosed)
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
