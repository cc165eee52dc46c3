//! Wake-ups from other processes: while somebody waits, the file's change counter is looked at.
//!
//! `PRAGMA data_version` changes when another connection has committed something, and is read from shared memory: no
//! query, no lock. Only then are the records looked at that somebody waits for. A hint, as everywhere.

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

/// How often the counter is looked at while somebody waits.
const EVERY: Duration = Duration::from_millis(10);

/// Who waits for what.
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

/// Looks for as long as the store is in use, while somebody waits.
pub(super) fn look_out(inner: &Arc<Inner>, wakes: Arc<Wakes>, options: Options) {
    let lookout = Lookout {
        inner: Arc::downgrade(inner),
        clock: Arc::clone(&inner.clock),
        wakes,
    };
    tokio::spawn(lookout.run(options));
}

struct Lookout {
    inner: Weak<Inner>,
    clock: Arc<dyn Clock>,
    wakes: Arc<Wakes>,
}

impl Lookout {
    async fn run(self, options: Options) {
        while self.is_wanted().await {
            if let Ok(mut connection) = SqliteConnection::connect_with(&options.connect()).await {
                // An error: waiters poll meanwhile.
                let _ = self.serve(&mut connection).await;
                let _ = connection.close().await;
            }
            self.clock.sleep(EVERY).await;
        }
    }

    /// Waits until somebody waits; `false` when the store is gone.
    async fn is_wanted(&self) -> bool {
        loop {
            if self.inner.strong_count() == 0 {
                return false;
            }
            if !self.wakes.watched.lock().is_empty() {
                return true;
            }
            // The store says so too when it goes.
            self.wakes.more.notified().await;
        }
    }

    /// Until nobody waits any more.
    async fn serve(&self, connection: &mut SqliteConnection) -> Result<(), Error> {
        let mut last = None;
        while self.anybody_waits() {
            let version = Some(version(connection).await?);
            // A record that was settled before this connection began to look has changed nothing since.
            let is_new = version != last || self.is_told_of_more();
            last = version;
            if is_new {
                self.look(connection).await?;
            }
            self.clock.sleep(EVERY).await;
        }
        Ok(())
    }

    /// Whoever left took nothing out of the list.
    fn anybody_waits(&self) -> bool {
        let Some(inner) = self.inner.upgrade() else {
            return false;
        };
        let mut watched = self.wakes.watched.lock();
        // Whoever comes is in the hub before it is in the list.
        if inner.hub.waiting() == 0 {
            watched.clear();
        }
        !watched.is_empty()
    }

    fn is_told_of_more(&self) -> bool {
        use futures_util::FutureExt as _;
        self.wakes.more.notified().now_or_never().is_some()
    }

    /// Looks at every record that is waited for, and wakes where it no longer runs.
    async fn look(&self, connection: &mut SqliteConnection) -> Result<(), Error> {
        let watched: Vec<Address> = self.wakes.watched.lock().iter().copied().collect();
        for address in watched {
            let Some(inner) = self.inner.upgrade() else {
                return Ok(());
            };
            // Settled, put in doubt, or gone: whatever was waited for has happened.
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
