//! The class `Store`, and `open`, which makes one.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use napi::{Env, Error, Result};
use napi_derive::napi;
use semel_embedded::{
    ApiRequest, EmbeddedEngine, EmbeddedOptions, EngineGone, Opening, OpeningTurn, RunningCall,
    TURN, call_limit,
};

use crate::ends::{End, Ends, Tell};
use crate::options::NativeOptions;

/// How long the end of a thread of JavaScript waits for settlements whose callers are gone.
const CLOSING_AT_EXIT: Duration = Duration::from_secs(2);

/// A store opened in this process, for one thread of JavaScript.
#[napi(js_name = "Store")]
pub(crate) struct NativeStore {
    shared: Arc<Shared>,
}

/// What the tasks of calls and the threads that open and close share with the store.
struct Shared {
    engine: Mutex<EngineState>,
    /// The calls that are under way, by their tickets.
    running: Mutex<HashMap<u32, RunningCall>>,
    ends: Ends,
}

enum EngineState {
    Opening,
    Open(Arc<EmbeddedEngine>),
    Closed,
}

/// Opens the store at `url`. `tell` gets `opened` or `failed` under `ticket`, and later what became
/// of each call.
#[napi]
pub(crate) fn open(
    env: Env,
    ticket: u32,
    url: String,
    options: NativeOptions,
    tell: Tell<'_>,
) -> Result<NativeStore> {
    let options = options.embedded().map_err(Error::from_reason)?;
    let shared = Arc::new(Shared {
        engine: Mutex::new(EngineState::Opening),
        running: Mutex::default(),
        ends: Ends::new(tell)?,
    });
    // The thread of JavaScript ends without closing what it opened: its connections end in order.
    env.add_env_cleanup_hook(Arc::downgrade(&shared), |shared| {
        if let Some(engine) = shared.upgrade().and_then(|shared| shared.take()) {
            engine.close(CLOSING_AT_EXIT);
        }
    })?;
    let opened = Arc::clone(&shared);
    in_background(move || {
        let opening = catch_unwind(AssertUnwindSafe(|| engine_at(&url, &options)));
        let end = match opening {
            Ok(Ok(engine)) => opened.put(engine),
            Ok(Err(reason)) => End::Failed(reason),
            Err(_) => End::Failed("the store could not be opened: the engine panicked".to_owned()),
        };
        opened.ends.tell(ticket, end);
    })?;
    Ok(NativeStore { shared })
}

fn engine_at(url: &str, options: &EmbeddedOptions) -> std::result::Result<EmbeddedEngine, String> {
    let mut opening = Opening::begin(url, options, None).map_err(|error| error.to_string())?;
    loop {
        match opening.work(TURN).map_err(|error| error.to_string())? {
            OpeningTurn::Opened(engine) => return Ok(engine),
            OpeningTurn::Later(later) => opening = later,
        }
    }
}

/// Work that waits, on a thread of its own.
fn in_background(work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name("semel-open".to_owned());
    thread.spawn(work)?;
    Ok(())
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, EngineState> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<u32, RunningCall>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes calls from now on, unless it was closed meanwhile.
    fn put(&self, engine: EmbeddedEngine) -> End {
        let mut state = self.state();
        match *state {
            EngineState::Opening => {
                *state = EngineState::Open(Arc::new(engine));
                End::Opened
            }
            EngineState::Open(_) | EngineState::Closed => End::Closed,
        }
    }

    /// Takes no calls from now on.
    fn take(&self) -> Option<Arc<EmbeddedEngine>> {
        match std::mem::replace(&mut *self.state(), EngineState::Closed) {
            EngineState::Open(engine) => Some(engine),
            EngineState::Opening | EngineState::Closed => None,
        }
    }

    fn engine(&self) -> std::result::Result<Arc<EmbeddedEngine>, EngineGone> {
        match &*self.state() {
            EngineState::Open(engine) => Ok(Arc::clone(engine)),
            EngineState::Opening | EngineState::Closed => Err(EngineGone::Closed),
        }
    }
}

#[napi]
#[expect(
    clippy::needless_pass_by_value,
    unreachable_pub,
    reason = "arguments from JavaScript arrive by value, and the macro takes public methods alone"
)]
impl NativeStore {
    /// Asks the API. `tell` gets `replied`, `timed_out` or `closed` under `ticket`.
    #[napi]
    pub fn start(
        &self,
        ticket: u32,
        method: String,
        path: String,
        body: Option<String>,
        seconds: f64,
    ) -> Result<()> {
        let engine = self.shared.engine().map_err(refused)?;
        let call = engine.enter().map_err(refused)?;
        let body = body.map(Into::into);
        let request = ApiRequest::new(&method, &path, body);
        let request = request.map_err(|error| Error::from_reason(error.to_string()))?;
        let shared = Arc::clone(&self.shared);
        // Held until the call is among those that run: its end, which takes it out, comes later.
        let mut running = self.shared.running();
        let started = call.start(request, call_limit(seconds), move |outcome| {
            shared.running().remove(&ticket);
            shared.ends.tell(ticket, End::Called(outcome));
        });
        running.insert(ticket, started.map_err(refused)?);
        Ok(())
    }

    /// Ends a call, as a caller of a sidecar does by hanging up. Its end is told to nobody.
    #[napi]
    pub fn cancel(&self, ticket: u32) {
        if let Some(call) = self.shared.running().remove(&ticket) {
            call.cancel();
        }
    }

    /// Ends the calls that are under way, waits at most `seconds` for settlements whose callers are
    /// gone, and closes the connections. `tell` gets `closed` under `ticket` after that.
    #[napi]
    pub fn close(&self, ticket: u32, seconds: f64) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        in_background(move || {
            if let Some(engine) = shared.take() {
                engine.close(call_limit(seconds));
            }
            shared.ends.tell(ticket, End::Closed);
        })
    }
}

fn refused(error: EngineGone) -> Error {
    Error::from_reason(error.to_string())
}
