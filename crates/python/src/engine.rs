//! The engine on a runtime of its own.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use pyo3::exceptions::{PyConnectionAbortedError, PyValueError};
use pyo3::prelude::*;
use semel::{Semel, tokio_env};
use semel_core::{BoxFuture, Clock, StoreAdmin};
use semel_server::api::{ApiConfig, ApiState, router};
use semel_server::web::Access;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::options::NativeOptions;

/// The threads of a runtime. The waiting thread of Python does most of the work of its call.
const WORKERS: usize = 2;

/// How often a waiting thread looks for signals, such as Ctrl-C.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

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
pub(crate) struct EmbeddedEngine {
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
pub(crate) struct EnteredCall {
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
    /// Opens the store at `url`. `memory` is a memory store to go on with.
    pub(crate) fn open(
        py: Python<'_>,
        url: &str,
        options: &NativeOptions,
        memory: Option<Arc<dyn StoreAdmin>>,
    ) -> PyResult<Self> {
        let builder = options.builder().map_err(PyValueError::new_err)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("semel")
            .enable_all()
            .build()?;
        let clock = tokio_env().clock;
        let in_memory = url.trim_start().starts_with("memory:");
        let url = url.to_owned();
        let mut opening: BoxFuture<'static, _> = Box::pin(async move {
            let memory = match memory {
                None if in_memory => Some(semel::open_store(&url).await?),
                memory => memory,
            };
            let opened = match &memory {
                Some(store) => builder.open_on(Arc::clone(store)).await,
                None => builder.open(&url).await,
            };
            opened.map(|semel| (semel, memory))
        });
        let opened: Result<_, semel::OpenError> = loop {
            let turn = py.detach(|| runtime.block_on(turn(&mut opening, &*clock, SIGNALS_EVERY)));
            match turn {
                Some(opened) => break opened,
                None => py.check_signals()?,
            }
        };
        let (semel, memory) = opened.map_err(|error| PyValueError::new_err(error.to_string()))?;
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
        Ok(Self {
            parts: Some(parts),
            process: std::process::id(),
            calls: Arc::default(),
        })
    }

    /// The memory store, if the records are in memory and in this process.
    pub(crate) fn memory(&self) -> Option<Arc<dyn StoreAdmin>> {
        self.parts().ok()?.memory.clone()
    }

    /// Counts a thread as inside a call.
    pub(crate) fn enter(self: &Arc<Self>) -> PyResult<EnteredCall> {
        if self.parts()?.closing.is_cancelled() {
            return Err(closed());
        }
        let count = self.calls.count.lock();
        *count.unwrap_or_else(PoisonError::into_inner) += 1;
        Ok(EnteredCall {
            engine: Some(Arc::clone(self)),
            calls: Arc::clone(&self.calls),
        })
    }

    fn parts(&self) -> PyResult<&Parts> {
        let parts = self.parts.as_ref().ok_or_else(closed)?;
        if std::process::id() != self.process {
            return Err(PyConnectionAbortedError::new_err(
                "the store was opened in another process",
            ));
        }
        Ok(parts)
    }

    /// Ends all calls, waits for work without a caller for at most `grace`, and ends the runtime.
    /// Call it without the GIL.
    pub(crate) fn close(self: Arc<Self>, grace: Duration) {
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

/// What a turn of waiting ended with.
pub(crate) enum Turn<T> {
    Done(T),
    Closed,
    Later,
}

impl EnteredCall {
    fn parts(&self) -> PyResult<&Parts> {
        self.engine.as_ref().ok_or_else(closed)?.parts()
    }

    pub(crate) fn router(&self) -> PyResult<Router> {
        Ok(self.parts()?.router.clone())
    }

    pub(crate) fn clock(&self) -> PyResult<Arc<dyn Clock>> {
        Ok(Arc::clone(&self.parts()?.clock))
    }

    /// Works for a moment, after which the caller may look for signals.
    pub(crate) fn work<T>(
        &self,
        work: &mut BoxFuture<'static, T>,
        most: Duration,
    ) -> PyResult<Turn<T>> {
        let parts = self.parts()?;
        let clock = &*parts.clock;
        Ok(parts.runtime.block_on(async {
            tokio::select! {
                biased;
                done = turn(work, clock, most.min(SIGNALS_EVERY)) => {
                    done.map_or(Turn::Later, Turn::Done)
                }
                () = parts.closing.cancelled() => Turn::Closed,
            }
        }))
    }

    /// Starts a task. It gets a token that is cancelled when the store is closed.
    pub(crate) fn spawn<F>(
        &self,
        task: impl FnOnce(CancellationToken) -> F,
    ) -> PyResult<tokio::task::AbortHandle>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let parts = self.parts()?;
        let task = task(parts.closing.clone());
        Ok(parts.runtime.spawn(task).abort_handle())
    }
}

/// Polls `work` for at most `most`.
async fn turn<T>(work: &mut BoxFuture<'_, T>, clock: &dyn Clock, most: Duration) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = clock.sleep(most) => None,
    }
}

pub(crate) fn closed() -> PyErr {
    PyConnectionAbortedError::new_err("the store was closed")
}
