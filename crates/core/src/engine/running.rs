//! Counts the effects that run, so that a process can end after the last one (P37).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::Shared;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

#[derive(Default)]
pub(super) struct Running {
    count: AtomicUsize,
    wakers: Mutex<Vec<Waker>>,
}

/// One effect, from its lease to its answer.
pub(super) struct Run(Arc<Shared>);

impl Run {
    pub(super) fn begin(engine: &Arc<Shared>) -> Self {
        engine.running.count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(engine))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let running = &self.0.running;
        if running.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            let wakers = std::mem::take(&mut *running.wakers.lock());
            for waker in wakers {
                waker.wake();
            }
        }
    }
}

impl Running {
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    pub(super) async fn idle(&self) {
        poll_fn(|cx| {
            let mut wakers = self.wakers.lock();
            // Looked at under the lock: whoever ends last takes the wakers after this.
            if self.count() == 0 {
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
