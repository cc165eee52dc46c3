//! Graceful shutdown: counts running effects and all detached work, so that a process can end after
//! the last of it (P37).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::Shared;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// The counts of running work.
#[derive(Default)]
pub(super) struct RunningWork {
    effects: AtomicUsize,
    detached: AtomicUsize,
    wakers: Mutex<Vec<Waker>>,
}

/// Counts one effect while it exists: from its lease to its answer.
pub(super) struct EffectGuard(Arc<Shared>);

impl EffectGuard {
    pub(super) fn begin(engine: &Arc<Shared>) -> Self {
        engine.running.effects.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(engine))
    }
}

impl Drop for EffectGuard {
    fn drop(&mut self) {
        self.0.running.effects.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts one piece of detached work while it exists. It begins before the store is asked, because
/// a claim that is in flight or waits may win after its caller is gone. Every effect runs within
/// one of these.
pub(super) struct WorkGuard(Arc<RunningWork>);

impl WorkGuard {
    pub(super) fn begin(running: &Arc<RunningWork>) -> Self {
        running.detached.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(running))
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        if self.0.detached.fetch_sub(1, Ordering::SeqCst) == 1 {
            let wakers = std::mem::take(&mut *self.0.wakers.lock());
            for waker in wakers {
                waker.wake();
            }
        }
    }
}

impl RunningWork {
    /// How many effects run now.
    pub(super) fn count(&self) -> usize {
        self.effects.load(Ordering::SeqCst)
    }

    pub(super) async fn idle(&self) {
        poll_fn(|cx| {
            let mut wakers = self.wakers.lock();
            // Checked under the lock: the guard that is dropped last takes the wakers after this.
            if self.detached.load(Ordering::SeqCst) == 0 {
                return Poll::Ready(());
            }
            if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                wakers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}
