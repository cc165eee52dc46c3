//! A store that is being opened.

use std::sync::Arc;
use std::time::Duration;

use semel::{Semel, tokio_env};
use semel_core::{BoxFuture, Clock, StoreAdmin};
use tokio::runtime::Runtime;

use crate::engine::{EmbeddedEngine, turn};
use crate::options::EmbeddedOptions;

/// The threads of a runtime.
const WORKERS: usize = 2;

/// Why a store was not opened. Its text names neither passwords nor keys.
#[derive(Debug, thiserror::Error)]
pub enum OpeningError {
    /// The machine has no threads for a runtime.
    #[error("no runtime could be started: {0}")]
    Runtime(std::io::Error),
    /// The settings or the store are wrong, or the store is out of reach.
    #[error("{0}")]
    Refused(String),
}

/// What a store of [`Semel`] was opened as: the records, too, where they are in memory.
type Opened = Result<(Semel, Option<Arc<dyn StoreAdmin>>), semel::OpenError>;

/// A store that is being opened, turn by turn.
pub struct Opening {
    // Dropped before the runtime that it was made for.
    work: BoxFuture<'static, Opened>,
    runtime: Runtime,
    clock: Arc<dyn Clock>,
}

/// What a turn of opening ended with.
pub enum OpeningTurn {
    /// The store is open.
    Opened(EmbeddedEngine),
    /// It takes another turn.
    Later(Opening),
}

impl Opening {
    /// Begins to open the store at `url`. `memory` is a memory store to go on with.
    ///
    /// # Errors
    ///
    /// The options are wrong, or there is no runtime.
    pub fn begin(
        url: &str,
        options: &EmbeddedOptions,
        memory: Option<Arc<dyn StoreAdmin>>,
    ) -> Result<Self, OpeningError> {
        let builder = options.builder().map_err(OpeningError::Refused)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("semel")
            .enable_all()
            .build()
            .map_err(OpeningError::Runtime)?;
        let in_memory = url.trim_start().starts_with("memory:");
        let url = url.to_owned();
        let work: BoxFuture<'static, Opened> = Box::pin(async move {
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
        Ok(Self {
            work,
            runtime,
            clock: tokio_env().clock,
        })
    }

    /// Works for at most `most`.
    ///
    /// # Errors
    ///
    /// The store can't be opened.
    pub fn work(mut self, most: Duration) -> Result<OpeningTurn, OpeningError> {
        let turn = turn(&mut self.work, &*self.clock, most);
        let Some(opened) = self.runtime.block_on(turn) else {
            return Ok(OpeningTurn::Later(self));
        };
        let (semel, memory) = opened.map_err(|error| OpeningError::Refused(error.to_string()))?;
        let engine = EmbeddedEngine::new(self.runtime, self.clock, semel, memory);
        Ok(OpeningTurn::Opened(engine))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::engine::EngineGone;
    use crate::request::{ApiRequest, CallOutcome};

    const GRACE: Duration = Duration::from_secs(1);
    const LONG: Duration = Duration::from_secs(60);

    fn opened(url: &str, options: &EmbeddedOptions) -> Result<Arc<EmbeddedEngine>, OpeningError> {
        let mut opening = Opening::begin(url, options, None)?;
        loop {
            match opening.work(LONG)? {
                OpeningTurn::Opened(engine) => return Ok(Arc::new(engine)),
                OpeningTurn::Later(later) => opening = later,
            }
        }
    }

    fn claim(key: &str) -> ApiRequest {
        let body = format!(r#"{{"scope":"charge","key":"{key}","payload":1}}"#);
        ApiRequest::new("POST", "v1/claims", Some(body.into())).unwrap()
    }

    /// What is told of a request, when it is.
    fn started(
        engine: &Arc<EmbeddedEngine>,
        request: ApiRequest,
        most: Duration,
    ) -> mpsc::Receiver<CallOutcome> {
        let (tell, told) = mpsc::channel();
        let call = engine.enter().unwrap();
        let heard = move |outcome| tell.send(outcome).unwrap();
        call.start(request, most, heard).unwrap();
        told
    }

    #[test]
    fn a_claim_is_won_and_one_that_waits_has_its_time() {
        let engine = opened("memory://", &EmbeddedOptions::default()).unwrap();
        let won = started(&engine, claim("k"), LONG).recv().unwrap();
        assert!(matches!(won, CallOutcome::Replied(reply) if reply.status == 201));
        let waits = started(&engine, claim("k"), Duration::from_millis(20));
        assert!(matches!(waits.recv().unwrap(), CallOutcome::TimedOut));
        engine.close(GRACE);
    }

    #[test]
    fn closing_ends_calls_that_wait_and_refuses_others() {
        let engine = opened("memory://", &EmbeddedOptions::default()).unwrap();
        started(&engine, claim("k"), LONG).recv().unwrap();
        let waits = started(&engine, claim("k"), LONG);
        Arc::clone(&engine).close(GRACE);
        assert!(matches!(waits.recv().unwrap(), CallOutcome::Closed));
        assert_eq!(engine.enter().err(), Some(EngineGone::Closed));
    }

    #[test]
    fn what_is_wrong_with_the_settings_is_told_without_them() {
        let keys = EmbeddedOptions {
            encryption_keys: Some("nonsense".to_owned()),
            ..EmbeddedOptions::default()
        };
        let why = opened("memory://", &keys).err().unwrap().to_string();
        assert!(why.contains("encryption_keys") && !why.contains("nonsense"));
        let far = "redis://:hunter2@127.0.0.1:1";
        let why = opened(far, &EmbeddedOptions::default()).err().unwrap();
        assert!(!why.to_string().contains("hunter2"));
    }
}
