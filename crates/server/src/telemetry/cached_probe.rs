//! [`CachedProbe`]: caches statistics of the store, so that scrapes cannot overload it.

use std::sync::Arc;
use std::time::Duration;

use semel_core::{Clock, Tick};

/// The minimum time that a result is cached.
const MIN_CACHED_FOR: Duration = Duration::from_secs(5);

/// A result is cached for at least this many times the duration of its query.
const DURATION_FACTOR: u32 = 20;

/// How long the store may take. Prometheus waits 10 s by default, and needs metrics most in an
/// outage.
const STORE_LIMIT: Duration = Duration::from_secs(1);

/// The end of validity and the result of the last query; `None` before the first.
type Cached<T> = Option<(Tick, Option<T>)>;

/// The cached result of a store query. Clones share it.
#[derive(Debug)]
pub(crate) struct CachedProbe<T> {
    cached: Arc<tokio::sync::Mutex<Cached<T>>>,
}

impl<T> Clone for CachedProbe<T> {
    fn clone(&self) -> Self {
        Self {
            cached: Arc::clone(&self.cached),
        }
    }
}

impl<T> Default for CachedProbe<T> {
    fn default() -> Self {
        Self {
            cached: Arc::default(),
        }
    }
}

impl<T: Clone> CachedProbe<T> {
    /// The cached or current result; `None` if the store does not answer.
    pub(crate) async fn get<E>(
        &self,
        clock: &dyn Clock,
        query: impl Future<Output = Result<T, E>>,
    ) -> Option<T> {
        let mut cached = self.cached.lock().await;
        let began = clock.now();
        if let Some((until, result)) = &*cached
            && began < *until
        {
            return result.clone();
        }
        let answer = clock.timeout(STORE_LIMIT, query).await;
        let result = answer.ok().and_then(Result::ok);
        let now = clock.now();
        let pause = MIN_CACHED_FOR.max(now.since(began) * DURATION_FACTOR);
        *cached = Some((now.plus(pause), result.clone()));
        result
    }
}
