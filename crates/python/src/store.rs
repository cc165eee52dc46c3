//! The class `Store`.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use pyo3::prelude::*;
use semel_core::StoreAdmin;
#[cfg(unix)]
use semel_embedded::RunningCall;
use semel_embedded::{
    ApiRequest, EmbeddedEngine, EngineGone, Opening, OpeningTurn, TURN, Turn, call_limit,
};

use crate::options::NativeOptions;
#[cfg(unix)]
use crate::queue::CompletionQueue;
use crate::reply::{PyReply, gone, invalid, not_opened, reply_to_python};

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
        engine.clone().ok_or_else(|| gone(EngineGone::Closed))
    }
}

#[pymethods]
impl NativeStore {
    /// Opens the store at `url`. `kept` is a memory store to go on with.
    #[new]
    #[pyo3(signature = (url, options, kept = None))]
    fn new(
        py: Python<'_>,
        url: &str,
        options: NativeOptions,
        kept: Option<&KeptMemory>,
    ) -> PyResult<Self> {
        let memory = kept.map(|kept| Arc::clone(&kept.0));
        let opening = Opening::begin(url, &options.into(), memory);
        let engine = open(py, opening.map_err(not_opened)?)?;
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
        let call = self.engine()?.enter().map_err(gone)?;
        let clock = call.clock().map_err(gone)?;
        let mut work = call.ask(build(method, path, body)?).map_err(gone)?;
        let most = call_limit(seconds);
        let began = clock.now();
        loop {
            let left = most.saturating_sub(clock.now().since(began));
            match py.detach(|| call.work(&mut work, left)).map_err(gone)? {
                Turn::Done(reply) => return reply_to_python(&reply, py).map(Some),
                Turn::Closed => return Err(gone(EngineGone::Closed)),
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
    ) -> PyResult<PyRunningCall> {
        let call = self.engine()?.enter().map_err(gone)?;
        let request = build(method, path, body)?;
        let completion = queue.begin(ticket);
        let told = move |outcome| completion.finish(outcome);
        let running = call.start(request, call_limit(seconds), told);
        running.map(PyRunningCall).map_err(gone)
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
            py.detach(|| engine.close(call_limit(seconds)));
        }
    }
}

/// The records of a memory store.
#[pyclass(frozen, name = "Kept", module = "semel._native")]
pub(crate) struct KeptMemory(Arc<dyn StoreAdmin>);

/// A call whose end a queue is told.
#[cfg(unix)]
#[pyclass(frozen, name = "Call", module = "semel._native")]
pub(crate) struct PyRunningCall(RunningCall);

#[cfg(unix)]
#[pymethods]
impl PyRunningCall {
    /// Ends it, as a caller of a sidecar does by hanging up.
    fn cancel(&self) {
        self.0.cancel();
    }
}

/// Opens a store, and looks for signals, such as Ctrl-C, meanwhile.
fn open(py: Python<'_>, mut opening: Opening) -> PyResult<EmbeddedEngine> {
    loop {
        match py.detach(|| opening.work(TURN)).map_err(not_opened)? {
            OpeningTurn::Opened(engine) => return Ok(engine),
            OpeningTurn::Later(later) => opening = later,
        }
        py.check_signals()?;
    }
}

fn build(method: &str, path: &str, body: Option<&[u8]>) -> PyResult<ApiRequest> {
    let body = body.map(Bytes::copy_from_slice);
    ApiRequest::new(method, path, body).map_err(invalid)
}
