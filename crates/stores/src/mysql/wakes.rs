//! Wake-ups from other processes. The servers have no notifications, so one task polls for all
//! waiters of this process, with one statement, at growing intervals. They are hints: waiters poll
//! as well.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use semel_core::identity::Address;
use semel_core::store::StoreResult;
use semel_core::{Clock, State};
use sqlx::Row as _;
use tokio::sync::Notify;

use super::Inner;
use super::error::store_error;
use super::sql::{NOW, once};
use super::sweep::list;

/// The pause between two polls: grows from the first by half each time, up to the second. Reset
/// when a waiter comes.
const SOON: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_millis(200);
/// How many records one statement reads.
const AT_ONCE: usize = 256;

/// The records that waiters of this process watch.
#[derive(Default)]
pub(super) struct Wakes {
    /// And whether it was seen running since somebody began to wait.
    watched: Mutex<HashMap<Address, bool>>,
    /// Something new is watched.
    more: Notify,
}

impl Wakes {
    pub(super) fn watch(&self, address: Address) {
        self.watched.lock().entry(address).or_default();
        self.more.notify_one();
    }
}

/// Starts the task that polls while there are waiters, until the store is dropped.
pub(super) fn start_poller(inner: &Arc<Inner>, wakes: Arc<Wakes>, clock: Arc<dyn Clock>) {
    let lookout = WaitPoller {
        inner: Arc::downgrade(inner),
        clock,
        wakes,
    };
    tokio::spawn(lookout.run());
}

struct WaitPoller {
    inner: Weak<Inner>,
    clock: Arc<dyn Clock>,
    wakes: Arc<Wakes>,
}

impl WaitPoller {
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
            // On an error, waiters still poll on their own.
            let _ = self.look(&inner).await;
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
            // The store says so too when it goes.
            self.wakes.more.notified().await;
        }
    }

    /// Wakes the waiters of records that have ended.
    async fn look(&self, inner: &Inner) -> StoreResult<()> {
        let watched: Vec<Address> = {
            let mut watched = self.wakes.watched.lock();
            watched.retain(|address, _| inner.hub.is_watched(address));
            watched.keys().copied().collect()
        };
        for some in watched.chunks(AT_ONCE) {
            let rows = inner.link.rows(|| once(live(some))).await?;
            let states: Result<HashMap<Vec<u8>, i64>, _> = rows
                .iter()
                .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
                .collect();
            let states = states.map_err(store_error)?;
            for address in some {
                if self.wakes.has_ended(address, states.get(&address[..])) {
                    inner.hub.wake(address);
                }
            }
        }
        Ok(())
    }
}

impl Wakes {
    /// Whether what is waited for has ended, by the record's state now. Then it isn't watched any
    /// more.
    ///
    /// A record that is not there, or released, tells that only if it was seen running before: the
    /// run may be one in a transaction, whose record nobody sees (P34).
    fn has_ended(&self, address: &Address, state: Option<&i64>) -> bool {
        let mut watched = self.watched.lock();
        let Some(was_running) = watched.get_mut(address) else {
            return false;
        };
        let has_ended = match state {
            Some(&RUNNING) => {
                *was_running = true;
                false
            }
            None | Some(&RELEASED) => *was_running,
            // Settled, or put in doubt.
            Some(_) => true,
        };
        if has_ended {
            watched.remove(address);
        }
        has_ended
    }
}

const RUNNING: i64 = State::Running as i64;
const RELEASED: i64 = State::Released as i64;

/// Which of these have a record that has not expired, and its state.
fn live(addresses: &[Address]) -> String {
    format!(
        "SELECT address, CAST(state AS SIGNED) FROM semel_records WHERE address IN ({}) \
         AND written_us + retention_ms * 1000 > {NOW}",
        list(addresses)
    )
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wakes.more.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_was_seen_ends_by_vanishing() {
        let address = [7; 16];
        let has_ended = |states: &[Option<i64>]| {
            let wakes = Wakes::default();
            wakes.watch(address);
            let ended = |state: &Option<i64>| wakes.has_ended(&address, state.as_ref());
            states.iter().map(ended).collect::<Vec<_>>()
        };
        let (running, released) = (Some(RUNNING), Some(RELEASED));
        let completed = Some(State::Completed as i64);
        assert_eq!(has_ended(&[None, None, released]), [false, false, false]);
        assert_eq!(has_ended(&[running, None]), [false, true]);
        assert_eq!(has_ended(&[running, released]), [false, true]);
        // Once: nobody watches it any more.
        assert_eq!(
            has_ended(&[None, completed, completed]),
            [false, true, false]
        );
        assert_eq!(has_ended(&[Some(State::InDoubt as i64)]), [true]);
    }
}
