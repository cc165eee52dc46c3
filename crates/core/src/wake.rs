//! Wake-ups: notify waiters that a record was settled, so that they don't have to poll.
//!
//! A store has one [`Hub`]. Every signal that a record has changed (its own settle, a pub/sub
//! message, a notification) goes through [`Hub::wake`].

use crate::sync::atomic::{AtomicUsize, Ordering};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hashbrown::HashMap;

use crate::identity::{Address, Identity};
use crate::sync::Mutex;

/// The waiters of this process, by record.
#[derive(Clone, Default)]
pub struct Hub {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Read before the lock is taken: a settlement without waiters costs one load.
    waiting: AtomicUsize,
    slots: Mutex<HashMap<Address, Vec<Arc<Slot>>>>,
}

#[derive(Default)]
struct Slot {
    state: Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    woken: bool,
    waker: Option<Waker>,
}

impl Hub {
    /// A hub without waiters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts to watch the record of `identity`. No wake-up from now on is missed.
    pub fn watch(&self, identity: &Identity) -> Wakeup {
        let slot = Arc::new(Slot::default());
        let address = identity.address();
        let mut slots = self.inner.slots.lock();
        slots.entry(address).or_default().push(Arc::clone(&slot));
        self.inner.waiting.fetch_add(1, Ordering::SeqCst);
        drop(slots);
        Wakeup {
            registration: Some(Registration {
                hub: Arc::clone(&self.inner),
                address,
                slot,
            }),
        }
    }

    /// Wakes all waiters of the record at `address`.
    pub fn wake(&self, address: &Address) {
        if self.inner.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let woken = self.inner.slots.lock().remove(address).unwrap_or_default();
        self.inner.waiting.fetch_sub(woken.len(), Ordering::SeqCst);
        for slot in woken {
            let mut state = slot.state.lock();
            state.woken = true;
            let waker = state.waker.take();
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Whether the record at `address` has waiters now.
    #[must_use]
    pub fn is_watched(&self, address: &Address) -> bool {
        self.waiting() > 0 && self.inner.slots.lock().contains_key(address)
    }

    /// The number of waiters now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.waiting.load(Ordering::SeqCst)
    }
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hub({} waiting)", self.waiting())
    }
}

/// Completes when the watched record was settled. Leaves the hub when dropped.
#[must_use = "a wake-up does nothing unless awaited"]
pub struct Wakeup {
    registration: Option<Registration>,
}

/// The entry of one waiter in the hub.
struct Registration {
    hub: Arc<Inner>,
    address: Address,
    slot: Arc<Slot>,
}

impl Wakeup {
    /// A wake-up that never comes, for stores that can't give one.
    pub const fn never() -> Self {
        Self { registration: None }
    }
}

impl Future for Wakeup {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(registration) = &self.registration else {
            return Poll::Pending;
        };
        let mut state = registration.slot.state.lock();
        if state.woken {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Wakeup {
    fn drop(&mut self) {
        let Some(Registration { hub, address, slot }) = self.registration.take() else {
            return;
        };
        let mut slots = hub.slots.lock();
        let Some(waiting) = slots.get_mut(&address) else {
            return;
        };
        let before = waiting.len();
        waiting.retain(|other| !Arc::ptr_eq(other, &slot));
        hub.waiting
            .fetch_sub(before - waiting.len(), Ordering::SeqCst);
        if waiting.is_empty() {
            slots.remove(&address);
        }
    }
}

impl std::fmt::Debug for Wakeup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wakeup")
    }
}
