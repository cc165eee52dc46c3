//! Counts the effects that run, and all that is seen through to its end, so that a process can end after the last of
//! it (P37).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::Shared;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

#[derive(Default)]
pub(super) struct Running {
    effects: AtomicUsize,
    under_way: AtomicUsize,
    wakers: Mutex<Vec<Waker>>,
}

/// One effect, from its lease to its answer.
pub(super) struct Run(Arc<Shared>);

impl Run {
    pub(super) fn begin(engine: &Arc<Shared>) -> Self {
        engine.running.effects.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(engine))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.0.running.effects.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What is seen through to its end, from before the store is asked: a claim that is on its way, or waits, may win when
/// its caller has long left. Every effect runs within one of these.
pub(super) struct UnderWay(Arc<Running>);

impl UnderWay {
    pub(super) fn begin(running: &Arc<Running>) -> Self {
        running.under_way.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(running))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::SeqCst) == 1 {
            let wakers = std::mem::take(&mut *self.0.wakers.lock());
            for waker in wakers {
                waker.wake();
            }
        }
    }
}

impl Running {
    /// How many effects run.
    pub(super) fn count(&self) -> usize {
        self.effects.load(Ordering::SeqCst)
    }

    pub(super) async fn idle(&self) {
        poll_fn(|cx| {
            let mut wakers = self.wakers.lock();
            // Looked at under the lock: whoever ends last takes the wakers after this.
            if self.under_way.load(Ordering::SeqCst) == 0 {
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
