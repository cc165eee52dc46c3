//! Wake-ups: how a waiter learns that a record was settled without asking over and over.
//!
//! A store keeps one [`Hub`]; whatever tells it that a record changed (its own settle, a pub/sub
//! message, a notification) goes through [`Hub::wake`].

use crate::sync::atomic::{AtomicUsize, Ordering};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hashbrown::HashMap;

use crate::identity::{Address, Identity};
use crate::sync::Mutex;

/// Who waits for which record, in this process.
#[derive(Clone, Default)]
pub struct Hub {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    // Read before the lock: a settle that nobody waits for costs one load.
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
    /// A hub that nobody waits at.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts waiting for `identity`. Whatever is woken from now on is not missed.
    pub fn watch(&self, identity: &Identity) -> Wakeup {
        let slot = Arc::new(Slot::default());
        let address = identity.address();
        let mut slots = self.inner.slots.lock();
        slots.entry(address).or_default().push(Arc::clone(&slot));
        self.inner.waiting.fetch_add(1, Ordering::SeqCst);
        drop(slots);
        Wakeup {
            place: Some(Place {
                hub: Arc::clone(&self.inner),
                address,
                slot,
            }),
        }
    }

    /// Wakes everybody who waits for the record at `address`.
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

    /// Whether anybody waits for the record at `address` now.
    #[must_use]
    pub fn is_watched(&self, address: &Address) -> bool {
        self.waiting() > 0 && self.inner.slots.lock().contains_key(address)
    }

    /// How many wait now.
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

/// Completes when the record it was made for was settled. Leaves the hub when dropped.
#[must_use = "a wake-up does nothing unless awaited"]
pub struct Wakeup {
    place: Option<Place>,
}

struct Place {
    hub: Arc<Inner>,
    address: Address,
    slot: Arc<Slot>,
}

impl Wakeup {
    /// A wake-up that never comes, for stores that can't give one.
    pub const fn never() -> Self {
        Self { place: None }
    }
}

impl Future for Wakeup {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(place) = &self.place else {
            return Poll::Pending;
        };
        let mut state = place.slot.state.lock();
        if state.woken {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Wakeup {
    fn drop(&mut self) {
        let Some(Place { hub, address, slot }) = self.place.take() else {
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
