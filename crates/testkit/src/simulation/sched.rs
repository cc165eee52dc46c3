//! Time and tasks of a simulated world: one thread, one queue of timers, one list of what is ready.
//!
//! Nothing here asks the machine for anything: time moves only to the next timer, and which of
//! several ready tasks goes first is up to the seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use semel_core::BoxFuture;

/// Microseconds since the world began.
pub(super) type Micros = u64;

/// Where a task runs: a node by its number, or the world itself, which neither stops nor dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Callers, messages on their way, the server of the store.
    World,
    /// A node, and which of its lives.
    Node { node: usize, life: u32 },
}

/// A handle on time and tasks. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Sched {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    now: AtomicU64,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    timers: BinaryHeap<Reverse<(Micros, u64, u32)>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    next: u64,
    ready: Vec<TaskId>,
    spawned: Vec<(Place, BoxFuture<'static, ()>)>,
}

/// A timer that somebody waits for; one that was given up has no waker.
struct Slot {
    number: u64,
    waker: Option<Waker>,
}

/// Which task, and which of those that had its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskId {
    pub(super) index: u32,
    pub(super) number: u32,
}

impl Sched {
    /// Now.
    pub(super) fn now(&self) -> Micros {
        self.shared.now.load(Ordering::Relaxed)
    }

    /// Completes `for_time` from now.
    pub(super) fn sleep(&self, for_time: Micros) -> Timer {
        self.until(self.now().saturating_add(for_time))
    }

    /// Completes at `due`.
    pub(super) fn until(&self, due: Micros) -> Timer {
        Timer {
            sched: self.clone(),
            due,
            slot: None,
        }
    }

    /// Starts a task.
    pub(super) fn spawn(&self, place: Place, task: BoxFuture<'static, ()>) {
        self.shared.queue.lock().spawned.push((place, task));
    }

    /// Tasks started since the last look.
    pub(super) fn take_spawned(&self, into: &mut Vec<(Place, BoxFuture<'static, ()>)>) {
        into.append(&mut self.shared.queue.lock().spawned);
    }

    /// One of the tasks that are ready, by `pick` of how many there are.
    pub(super) fn take_ready(&self, pick: impl FnOnce(usize) -> usize) -> Option<TaskId> {
        let mut queue = self.shared.queue.lock();
        match queue.ready.len() {
            0 => None,
            1 => queue.ready.pop(),
            many => Some(queue.ready.swap_remove(pick(many))),
        }
    }

    /// Puts back a task that can't go on now.
    pub(super) fn is_ready(&self, task: TaskId) {
        self.shared.queue.lock().ready.push(task);
    }

    /// Moves time to the next timer and wakes who waits for it; `false` where nobody waits.
    pub(super) fn advance(&self) -> bool {
        loop {
            let mut queue = self.shared.queue.lock();
            let Some(Reverse((due, number, index))) = queue.timers.pop() else {
                return false;
            };
            let slot = &mut queue.slots[index as usize];
            if slot.number != number {
                continue;
            }
            let Some(waker) = slot.waker.take() else {
                continue;
            };
            drop(queue);
            self.shared.now.fetch_max(due, Ordering::Relaxed);
            waker.wake();
            return true;
        }
    }

    /// A waker for `task`.
    pub(super) fn waker(&self, task: TaskId) -> (Waker, Arc<TaskWaker>) {
        let waker = Arc::new(TaskWaker {
            task,
            woken: AtomicBool::new(false),
            shared: Arc::clone(&self.shared),
        });
        (Waker::from(Arc::clone(&waker)), waker)
    }

    /// Forgets all that is yet to come, so that nothing keeps anything alive.
    pub(super) fn clear(&self) {
        let mut queue = self.shared.queue.lock();
        let gone = std::mem::take(&mut *queue);
        drop(queue);
        drop(gone);
    }
}

/// Wakes one task, once until it was polled.
pub(super) struct TaskWaker {
    task: TaskId,
    woken: AtomicBool,
    shared: Arc<Shared>,
}

impl TaskWaker {
    /// The task is about to be polled: what happens from now on wakes it again.
    pub(super) fn polled(&self) {
        self.woken.store(false, Ordering::Relaxed);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Relaxed) {
            self.shared.queue.lock().ready.push(self.task);
        }
    }
}

/// A span of simulated time.
pub(super) struct Timer {
    sched: Sched,
    due: Micros,
    slot: Option<(u32, u64)>,
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.sched.now() >= self.due {
            return Poll::Ready(());
        }
        let shared = Arc::clone(&self.sched.shared);
        let mut queue = shared.queue.lock();
        if let Some((index, _)) = self.slot {
            // Ours until dropped: nobody else writes here.
            queue.slots[index as usize].waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let number = queue.next;
        queue.next += 1;
        let slot = Slot {
            number,
            waker: Some(cx.waker().clone()),
        };
        let index = match queue.free.pop() {
            Some(index) => {
                queue.slots[index as usize] = slot;
                index
            }
            None => {
                queue.slots.push(slot);
                u32::try_from(queue.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        queue.timers.push(Reverse((self.due, number, index)));
        drop(queue);
        self.slot = Some((index, number));
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let Some((index, number)) = self.slot else {
            return;
        };
        let mut queue = self.sched.shared.queue.lock();
        // A world that is over has forgotten its timers.
        let Some(slot) = queue.slots.get_mut(index as usize) else {
            return;
        };
        if slot.number == number {
            let waker = slot.waker.take();
            queue.free.push(index);
            drop(queue);
            drop(waker);
        }
    }
}
