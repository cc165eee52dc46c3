//! The engine on a runtime of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use semel::Semel;
use semel_core::{BoxFuture, Clock, StoreAdmin};
use semel_server::api::{ApiConfig, ApiState, router};
use semel_server::web::Access;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::request::{ApiReply, ApiRequest, CallOutcome, ask};

/// How often a waiting thread comes back to its caller, who may then look for signals.
pub const TURN: Duration = Duration::from_millis(50);

/// How long closing waits for threads that leave their calls.
const MOST_CLOSING: Duration = Duration::from_secs(5);

/// The bounds of the API itself: the caller here is whoever would configure a sidecar.
const MOST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
const MOST_RETENTION: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// An engine on a store, with a runtime of its own.
///
/// It belongs to the process that opened it: a fork copies neither the threads of the runtime nor
/// the meaning of its file descriptors. The copy in a child is never dropped, because that would
/// take the parent's sockets out of the parent's event queue, which both share.
pub struct EmbeddedEngine {
    parts: Option<Parts>,
    process: u32,
    calls: Arc<CallCount>,
}

struct Parts {
    runtime: Runtime,
    router: Router,
    semel: Semel,
    clock: Arc<dyn Clock>,
    memory: Option<Arc<dyn StoreAdmin>>,
    closing: CancellationToken,
}

/// The number of threads inside a call.
#[derive(Default)]
struct CallCount {
    count: Mutex<usize>,
    ended: Condvar,
}

/// A thread inside a call, until it is dropped.
///
/// It answers a request in turns of the thread itself, or starts a task that answers it.
pub struct EnteredCall {
    /// `None` while it is dropped.
    engine: Option<Arc<EmbeddedEngine>>,
    calls: Arc<CallCount>,
}

impl Drop for EnteredCall {
    fn drop(&mut self) {
        // The engine first: who closes it takes it for its own as soon as no thread is counted.
        drop(self.engine.take());
        let mut count = self.calls.count.lock();
        if let Ok(count) = &mut count {
            **count = count.saturating_sub(1);
        }
        drop(count);
        self.calls.ended.notify_all();
    }
}

impl EmbeddedEngine {
    /// The engine on an open store.
    pub(crate) fn new(
        runtime: Runtime,
        clock: Arc<dyn Clock>,
        semel: Semel,
        memory: Option<Arc<dyn StoreAdmin>>,
    ) -> Self {
        let config = ApiConfig {
            max_lease: MOST_LEASE,
            max_retention: MOST_RETENTION,
            ..ApiConfig::default()
        };
        let state = ApiState::new(semel.clone(), Access::Open, config);
        let parts = Parts {
            runtime,
            router: router(state),
            semel,
            clock,
            memory,
            closing: CancellationToken::new(),
        };
        Self {
            parts: Some(parts),
            process: std::process::id(),
            calls: Arc::default(),
        }
    }

    /// The memory store, if the records are in memory and in this process.
    #[must_use]
    pub fn memory(&self) -> Option<Arc<dyn StoreAdmin>> {
        self.parts().ok()?.memory.clone()
    }

    /// Counts a thread as inside a call.
    ///
    /// # Errors
    ///
    /// The engine is closed, or another process's.
    pub fn enter(self: &Arc<Self>) -> Result<EnteredCall, EngineGone> {
        if self.parts()?.closing.is_cancelled() {
            return Err(EngineGone::Closed);
        }
        let count = self.calls.count.lock();
        *count.unwrap_or_else(PoisonError::into_inner) += 1;
        Ok(EnteredCall {
            engine: Some(Arc::clone(self)),
            calls: Arc::clone(&self.calls),
        })
    }

    fn parts(&self) -> Result<&Parts, EngineGone> {
        let parts = self.parts.as_ref().ok_or(EngineGone::Closed)?;
        if std::process::id() != self.process {
            return Err(EngineGone::Elsewhere);
        }
        Ok(parts)
    }

    /// Ends all calls, waits for work without a caller for at most `grace`, and ends the runtime.
    ///
    /// The thread waits, so call it where nothing else needs the thread, and without a lock that a
    /// thread in a call may need.
    pub fn close(self: Arc<Self>, grace: Duration) {
        if let Ok(parts) = self.parts() {
            parts.closing.cancel();
            let count = self.calls.count.lock();
            let count = count.unwrap_or_else(PoisonError::into_inner);
            let wait = self
                .calls
                .ended
                .wait_timeout_while(count, MOST_CLOSING, |count| *count > 0);
            drop(wait);
        }
        // A thread that is still inside a call drops it later.
        if let Some(mut engine) = Arc::into_inner(self) {
            engine.shut_down(grace);
        }
    }

    fn shut_down(&mut self, grace: Duration) {
        let Some(parts) = self.parts.take() else {
            return;
        };
        if std::process::id() != self.process {
            std::mem::forget(parts);
            return;
        }
        // Settlements whose callers are gone are finished first. A claim that waits would take
        // long.
        let Parts {
            runtime,
            semel,
            clock,
            router,
            ..
        } = parts;
        let mut idle: BoxFuture<'_, ()> = Box::pin(semel.idle());
        runtime.block_on(turn(&mut idle, &*clock, grace));
        drop(idle);
        drop((router, semel));
        runtime.shutdown_timeout(MOST_CLOSING);
    }
}

impl Drop for EmbeddedEngine {
    fn drop(&mut self) {
        let Some(parts) = self.parts.take() else {
            return;
        };
        if std::process::id() == self.process {
            parts.runtime.shutdown_background();
        } else {
            std::mem::forget(parts);
        }
    }
}

/// Why an engine takes no calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineGone {
    /// It was closed.
    #[error("the store was closed")]
    Closed,
    /// A process that was forked has a copy of its parent's, which is of no use.
    #[error("the store was opened in another process")]
    Elsewhere,
}

/// What a turn of waiting ended with.
pub enum Turn<T> {
    /// The work is done.
    Done(T),
    /// The store was closed meanwhile.
    Closed,
    /// The turn is over, and the work is not.
    Later,
}

/// A task that answers a request.
#[derive(Debug)]
pub struct RunningCall(tokio::task::AbortHandle);

impl RunningCall {
    /// Ends it, as a caller of a sidecar does by hanging up. Nobody is told.
    pub fn cancel(&self) {
        self.0.abort();
    }
}

impl EnteredCall {
    fn parts(&self) -> Result<&Parts, EngineGone> {
        self.engine.as_ref().ok_or(EngineGone::Closed)?.parts()
    }

    /// The clock of the engine.
    ///
    /// # Errors
    ///
    /// The engine is another process's.
    pub fn clock(&self) -> Result<Arc<dyn Clock>, EngineGone> {
        Ok(Arc::clone(&self.parts()?.clock))
    }

    /// The work of answering a request.
    ///
    /// # Errors
    ///
    /// The engine is another process's.
    pub fn ask(&self, request: ApiRequest) -> Result<BoxFuture<'static, ApiReply>, EngineGone> {
        Ok(Box::pin(ask(self.parts()?.router.clone(), request)))
    }

    /// Works for a moment, at most [`TURN`], after which the caller may look for signals.
    ///
    /// # Errors
    ///
    /// The engine is another process's.
    pub fn work<T>(
        &self,
        work: &mut BoxFuture<'static, T>,
        most: Duration,
    ) -> Result<Turn<T>, EngineGone> {
        let parts = self.parts()?;
        let clock = &*parts.clock;
        Ok(parts.runtime.block_on(async {
            tokio::select! {
                biased;
                done = turn(work, clock, most.min(TURN)) => {
                    done.map_or(Turn::Later, Turn::Done)
                }
                () = parts.closing.cancelled() => Turn::Closed,
            }
        }))
    }

    /// Starts a task that answers a request, and calls `told` with the outcome, on a thread of the
    /// runtime. A task that panics counts as closed. If the call is cancelled, `told` is dropped.
    ///
    /// # Errors
    ///
    /// The engine is another process's.
    pub fn start(
        &self,
        request: ApiRequest,
        most: Duration,
        told: impl FnOnce(CallOutcome) + Send + 'static,
    ) -> Result<RunningCall, EngineGone> {
        let parts = self.parts()?;
        let (clock, closing) = (Arc::clone(&parts.clock), parts.closing.clone());
        let mut work = Box::pin(catch_panic(self.ask(request)?));
        let task = parts.runtime.spawn(async move {
            let outcome = tokio::select! {
                biased;
                reply = &mut work => reply.map_or(CallOutcome::Closed, CallOutcome::Replied),
                () = closing.cancelled() => CallOutcome::Closed,
                () = clock.sleep(most) => CallOutcome::TimedOut,
            };
            told(outcome);
        });
        Ok(RunningCall(task.abort_handle()))
    }
}

/// Runs `work` to its end. `None` if it panics: whoever waits must hear of it.
async fn catch_panic<T>(mut work: BoxFuture<'static, T>) -> Option<T> {
    let poll = |context: &mut Context<'_>| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
    };
    std::future::poll_fn(poll).await
}

/// Polls `work` for at most `most`.
pub(crate) async fn turn<T>(
    work: &mut BoxFuture<'_, T>,
    clock: &dyn Clock,
    most: Duration,
) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = clock.sleep(most) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_ends_the_work_and_is_heard_of() {
        let broken: BoxFuture<'static, u8> = Box::pin(async { panic!("a defect") });
        assert_eq!(catch_panic(broken).await, None);
        assert_eq!(catch_panic(Box::pin(async { 7 })).await, Some(7));
    }
}
