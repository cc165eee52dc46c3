//! Wake-ups from other processes: polls the file's change counter while there are waiters.
//!
//! `PRAGMA data_version` changes when another connection commits. It is read from shared memory,
//! without a query or a lock. Only when it has changed are the watched records read. They are
//! hints: waiters poll as well.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use semel_core::identity::Address;
use semel_core::record::offset;
use semel_core::{Clock, State};
use sqlx::{AssertSqlSafe, Connection as _, Error, SqliteConnection};
use tokio::sync::Notify;

use super::Inner;
use super::options::Options;

/// How often the counter is read while there are waiters.
const EVERY: Duration = Duration::from_millis(10);

/// The records that waiters of this process watch.
#[derive(Default)]
pub(super) struct Wakes {
    watched: Mutex<HashSet<Address>>,
    /// Something new is watched.
    more: Notify,
}

impl Wakes {
    pub(super) fn watch(&self, address: Address) {
        self.watched.lock().insert(address);
        self.more.notify_one();
    }
}

/// Starts the task that watches the file while there are waiters, until the store is dropped.
pub(super) fn watch_changes(inner: &Arc<Inner>, wakes: Arc<Wakes>, options: Options) {
    let lookout = ChangeWatcher {
        inner: Arc::downgrade(inner),
        clock: Arc::clone(&inner.clock),
        wakes,
    };
    tokio::spawn(lookout.run(options));
}

struct ChangeWatcher {
    inner: Weak<Inner>,
    clock: Arc<dyn Clock>,
    wakes: Arc<Wakes>,
}

impl ChangeWatcher {
    async fn run(self, options: Options) {
        while self.is_wanted().await {
            if let Ok(mut connection) = SqliteConnection::connect_with(&options.connect()).await {
                // On an error, waiters still poll on their own.
                let _ = self.serve(&mut connection).await;
                let _ = connection.close().await;
            }
            self.clock.sleep(EVERY).await;
        }
    }

    /// Waits for the first waiter. `false` if the store was dropped.
    async fn is_wanted(&self) -> bool {
        loop {
            if self.inner.strong_count() == 0 {
                return false;
            }
            if !self.wakes.watched.lock().is_empty() {
                return true;
            }
            // The store also notifies when it is dropped.
            self.wakes.more.notified().await;
        }
    }

    /// Watches the file until there are no waiters.
    async fn serve(&self, connection: &mut SqliteConnection) -> Result<(), Error> {
        let mut last = None;
        while self.has_waiters() {
            let version = Some(version(connection).await?);
            // A new watch needs a read as well: its record may have been settled before this
            // connection was opened.
            let is_new = version != last || self.has_new_watch();
            last = version;
            if is_new {
                self.look(connection).await?;
            }
            self.clock.sleep(EVERY).await;
        }
        Ok(())
    }

    /// Whether there are waiters. A waiter that leaves doesn't remove its record, so the set is
    /// cleared here.
    fn has_waiters(&self) -> bool {
        let Some(inner) = self.inner.upgrade() else {
            return false;
        };
        let mut watched = self.wakes.watched.lock();
        // A new waiter is in the hub before its record is in the set.
        if inner.hub.waiting() == 0 {
            watched.clear();
        }
        !watched.is_empty()
    }

    fn has_new_watch(&self) -> bool {
        use futures_util::FutureExt as _;
        self.wakes.more.notified().now_or_never().is_some()
    }

    /// Looks at every record that is waited for, and wakes if it no longer runs.
    async fn look(&self, connection: &mut SqliteConnection) -> Result<(), Error> {
        let watched: Vec<Address> = self.wakes.watched.lock().iter().copied().collect();
        for address in watched {
            let Some(inner) = self.inner.upgrade() else {
                return Ok(());
            };
            // Settled, in doubt, or gone: the waiters can go on.
            if inner.hub.is_watched(&address) && is_running(connection, &address).await? {
                continue;
            }
            self.wakes.watched.lock().remove(&address);
            inner.hub.wake(&address);
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wakes.more.notify_one();
    }
}

async fn version(connection: &mut SqliteConnection) -> Result<i64, Error> {
    sqlx::query_scalar("PRAGMA data_version")
        .fetch_one(connection)
        .await
}

async fn is_running(connection: &mut SqliteConnection, address: &Address) -> Result<bool, Error> {
    // The first byte has number 1.
    let text = format!(
        "SELECT substr(record, {}, 1) FROM records WHERE address = ?",
        offset::STATE + 1
    );
    let state = sqlx::query_scalar::<_, Vec<u8>>(AssertSqlSafe(text)).bind(address.to_vec());
    let state = state.fetch_optional(connection).await?;
    Ok(state.is_some_and(|state| state == [State::Running as u8]))
}
