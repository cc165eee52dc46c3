//! [`Seldom`]: what the store is asked for when somebody looks, but seldom.

use std::sync::Arc;
use std::time::Duration;

use semel_core::{Clock, Tick};

/// How long an answer of the store is good for: whoever looks must not be able to load it.
const GOOD_FOR: Duration = Duration::from_secs(5);

/// And so many times as long as it took, where counting is slow.
const TIMES: u32 = 20;

/// How long the store may take: Prometheus waits 10 s by default, and an outage is when it is needed most.
const STORE_LIMIT: Duration = Duration::from_secs(1);

/// Until when it holds, and what was said; nothing before the first time.
type Known<T> = Option<(Tick, Option<T>)>;

/// What the store said when it was last asked. Clones share it.
#[derive(Debug)]
pub(crate) struct Seldom<T> {
    known: Arc<tokio::sync::Mutex<Known<T>>>,
}

impl<T> Clone for Seldom<T> {
    fn clone(&self) -> Self {
        Self {
            known: Arc::clone(&self.known),
        }
    }
}

impl<T> Default for Seldom<T> {
    fn default() -> Self {
        Self {
            known: Arc::default(),
        }
    }
}

impl<T: Clone> Seldom<T> {
    /// What it said lately, or says now; `None` where it doesn't answer.
    pub(crate) async fn now<E>(
        &self,
        clock: &dyn Clock,
        ask: impl Future<Output = Result<T, E>>,
    ) -> Option<T> {
        let mut known = self.known.lock().await;
        let began = clock.now();
        if let Some((until, said)) = &*known
            && began < *until
        {
            return said.clone();
        }
        let asked = tokio::time::timeout(STORE_LIMIT, ask).await;
        let said = asked.ok().and_then(Result::ok);
        let now = clock.now();
        let pause = GOOD_FOR.max(now.since(began) * TIMES);
        *known = Some((now.plus(pause), said.clone()));
        said
    }
}
