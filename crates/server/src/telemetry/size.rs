//! [`StoreSize`]: how much is in the store, asked for seldom.

use std::sync::Arc;
use std::time::Duration;

use semel::Semel;
use semel_core::Tick;
use semel_core::store::Stats;

/// How long an answer of the store is good for: whoever looks must not be able to load it.
const GOOD_FOR: Duration = Duration::from_secs(5);

/// How long the store may take: Prometheus waits 10 s by default, and an outage is when it is needed most.
const STORE_LIMIT: Duration = Duration::from_secs(1);

/// When it was asked, and what it said; nothing before the first time.
type Known = Option<(Tick, Option<Stats>)>;

/// When the store was last asked for its size, and what it said. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreSize {
    known: Arc<tokio::sync::Mutex<Known>>,
}

impl StoreSize {
    /// How much is in the store; `None` where it doesn't answer.
    pub(crate) async fn now(&self, semel: &Semel) -> Option<Stats> {
        let clock = &semel.engine().env().clock;
        let mut known = self.known.lock().await;
        let now = clock.now();
        if let Some((at, stats)) = *known
            && now.since(at) < GOOD_FOR
        {
            return stats;
        }
        let asked = tokio::time::timeout(STORE_LIMIT, semel.store().stats()).await;
        let stats = asked.ok().and_then(Result::ok);
        *known = Some((clock.now(), stats));
        stats
    }
}
