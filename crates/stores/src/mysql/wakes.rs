//! Wake-ups from other processes: the servers have no notifications, so one task looks for all who wait in this
//! process, with one statement, at growing intervals. A hint, as everywhere.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use semel_core::Clock;
use semel_core::identity::Address;
use semel_core::store::StoreResult;
use sqlx::Row as _;
use tokio::sync::Notify;

use super::Inner;
use super::error::store_error;
use super::sql::once;
use super::sweep::list;

/// Between two looks: from the first, growing by half, to the second; from the first again when somebody comes.
const SOON: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_millis(200);
/// How many records one statement looks at.
const AT_ONCE: usize = 256;

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
pub(super) fn look_out(inner: &Arc<Inner>, wakes: Arc<Wakes>, clock: Arc<dyn Clock>) {
    let lookout = Lookout {
        inner: Arc::downgrade(inner),
        clock,
        wakes,
    };
    tokio::spawn(lookout.run());
}

struct Lookout {
    inner: Weak<Inner>,
    clock: Arc<dyn Clock>,
    wakes: Arc<Wakes>,
}

impl Lookout {
    async fn run(self) {
        let mut pause = SOON;
        while self.is_wanted().await {
            tokio::select! {
                () = self.clock.sleep(pause) => pause = LATER.min(pause * 3 / 2),
                () = self.wakes.more.notified() => {
                    self.clock.sleep(SOON).await;
                    pause = SOON;
                }
            }
            let Some(inner) = self.inner.upgrade() else {
                return;
            };
            // An error: waiters poll meanwhile.
            let _ = self.look(&inner).await;
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

    /// Wakes whoever waits for a record that doesn't run.
    async fn look(&self, inner: &Inner) -> StoreResult<()> {
        let watched: Vec<Address> = {
            let mut watched = self.wakes.watched.lock();
            watched.retain(|address| inner.hub.is_watched(address));
            watched.iter().copied().collect()
        };
        for some in watched.chunks(AT_ONCE) {
            let rows = inner.link.rows(|| once(running(some))).await?;
            let running: Result<Vec<Vec<u8>>, _> = rows.iter().map(|row| row.try_get(0)).collect();
            let running: HashSet<Vec<u8>> = running.map_err(store_error)?.into_iter().collect();
            for address in some
                .iter()
                .filter(|address| !running.contains(&address[..]))
            {
                // Settled, put in doubt, or gone: whatever was waited for has happened.
                self.wakes.watched.lock().remove(address);
                inner.hub.wake(address);
            }
        }
        Ok(())
    }
}

/// Which of these are running.
fn running(addresses: &[Address]) -> String {
    format!(
        "SELECT address FROM semel_records WHERE state = 1 AND address IN ({})",
        list(addresses)
    )
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wakes.more.notify_one();
    }
}
