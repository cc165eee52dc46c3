//! The class `Store`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use semel_core::BoxFuture;

use crate::engine::{EmbeddedEngine, Turn, closed};
use crate::options::NativeOptions;
#[cfg(unix)]
use crate::queue::CompletionQueue;
use crate::request::{ApiReply, CallOutcome, PyReply, ask, build_request};

/// A store opened in this process. All methods may be called by any thread.
#[pyclass(frozen, name = "Store", module = "semel._native")]
pub(crate) struct NativeStore {
    /// `None` once it is closed. The lock is held for a moment, and only with the GIL, without
    /// which no process forks.
    engine: Mutex<Option<Arc<EmbeddedEngine>>>,
}

impl NativeStore {
    fn engine(&self) -> PyResult<Arc<EmbeddedEngine>> {
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        engine.clone().ok_or_else(closed)
    }
}

#[pymethods]
impl NativeStore {
    /// Opens the store at `url`. `kept` is a memory store to go on with.
    #[new]
    #[pyo3(signature = (url, options, kept = None))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "arguments from Python arrive by value"
    )]
    fn new(
        py: Python<'_>,
        url: &str,
        options: NativeOptions,
        kept: Option<&KeptMemory>,
    ) -> PyResult<Self> {
        let memory = kept.map(|kept| Arc::clone(&kept.0));
        let engine = EmbeddedEngine::open(py, url, &options, memory)?;
        Ok(Self {
            engine: Mutex::new(Some(Arc::new(engine))),
        })
    }

    /// Asks the API, and waits for its reply: status, headers, body. `None` if it takes longer than
    /// `seconds`.
    #[pyo3(signature = (method, path, body, seconds))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
        seconds: f64,
    ) -> PyResult<Option<PyReply<'py>>> {
        let call = self.engine()?.enter()?;
        let (router, clock) = (call.router()?, call.clock()?);
        let request = build_request(method, path, body)?;
        let most = limit(seconds);
        let began = clock.now();
        let mut work: BoxFuture<'static, ApiReply> = Box::pin(ask(router, request));
        loop {
            let left = most.saturating_sub(clock.now().since(began));
            match py.detach(|| call.work(&mut work, left))? {
                Turn::Done(reply) => return reply.into_python(py).map(Some),
                Turn::Closed => return Err(closed()),
                Turn::Later if left.is_zero() => return Ok(None),
                Turn::Later => py.check_signals()?,
            }
        }
    }

    /// Asks the API, and tells `queue` its reply under `ticket`.
    #[cfg(unix)]
    fn start(
        &self,
        queue: &CompletionQueue,
        ticket: u64,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
        seconds: f64,
    ) -> PyResult<RunningCall> {
        let call = self.engine()?.enter()?;
        let (router, clock) = (call.router()?, call.clock()?);
        let request = build_request(method, path, body)?;
        let completion = queue.begin(ticket);
        let most = limit(seconds);
        let task = call.spawn(|closing| async move {
            let mut work: BoxFuture<'static, ApiReply> = Box::pin(ask(router, request));
            let outcome = tokio::select! {
                biased;
                reply = &mut work => CallOutcome::Replied(reply),
                () = closing.cancelled() => CallOutcome::Closed,
                () = clock.sleep(most) => CallOutcome::TimedOut,
            };
            completion.finish(outcome);
        })?;
        Ok(RunningCall(task))
    }

    /// What a store in memory holds, for another `Store`; `None` for other stores.
    fn keep(&self) -> PyResult<Option<KeptMemory>> {
        Ok(self.engine()?.memory().map(KeptMemory))
    }

    /// Ends the calls that are under way, waits at most `seconds` for settlements whose callers are
    /// gone, and closes the connections.
    #[pyo3(signature = (seconds))]
    fn close(&self, py: Python<'_>, seconds: f64) {
        let engine = self.engine.lock();
        let engine = engine.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(engine) = engine {
            py.detach(|| engine.close(limit(seconds)));
        }
    }
}

/// The records of a memory store.
#[pyclass(frozen, name = "Kept", module = "semel._native")]
pub(crate) struct KeptMemory(Arc<dyn semel_core::StoreAdmin>);

/// A call whose end a queue is told.
#[cfg(unix)]
#[pyclass(frozen, name = "Call", module = "semel._native")]
pub(crate) struct RunningCall(tokio::task::AbortHandle);

#[cfg(unix)]
#[pymethods]
impl RunningCall {
    /// Ends it, as a caller of a sidecar does by hanging up.
    fn cancel(&self) {
        self.0.abort();
    }
}

/// The longest time of a call.
const MOST_SECONDS: f64 = 1e6;

fn limit(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.min(MOST_SECONDS)).unwrap_or_default()
}
