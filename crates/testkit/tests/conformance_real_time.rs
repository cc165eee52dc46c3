//! The suite as a server's store meets it: real time, short spans, another clock than the test's
//! own.
//!
//! What the suite waits for is the store's clock; this shows that it needs no say in how that
//! moves.

use std::sync::Arc;
use std::time::Duration;

use semel_conformance::{self, Scene, Spans, Subject};
use semel_core::clock::{Sleep, SystemTime};
use semel_core::{BoxFuture, Clock, MemoryConfig, MemoryStore, StoreAdmin, Tick, Timestamp};

/// The machine's time, on Tokio's timer.
#[derive(Default)]
struct RealClock(SystemTime);

impl Clock for RealClock {
    fn now(&self) -> Tick {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        self.0.wall()
    }

    #[expect(clippy::disallowed_methods, reason = "this is a Clock")]
    fn sleep(&self, for_time: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(for_time))
    }
}

struct RealTime {
    clock: Arc<RealClock>,
    store: MemoryStore,
}

impl RealTime {
    fn new() -> Self {
        let clock = Arc::new(RealClock::default());
        let store = MemoryStore::new(MemoryConfig::default(), clock.clone());
        Self { clock, store }
    }
}

impl Subject for RealTime {
    fn store(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.store.clone())
    }

    fn another(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.store.clone())
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.clock.sleep(time)
    }

    fn spans(&self) -> Spans {
        Spans::SERVER
    }

    fn tiny(&self) -> BoxFuture<'_, Option<Arc<dyn StoreAdmin>>> {
        Box::pin(async {
            let tiny =
                MemoryStore::new(MemoryConfig::default().with_capacity(2), self.clock.clone());
            Some(Arc::new(tiny) as Arc<dyn StoreAdmin>)
        })
    }
}

/// All checks at once, on one store: what they wait for, they wait for together.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suite_holds_in_real_time() {
    // Counts the store's records, so it wants the store for itself.
    const ALONE: &str = "p21_sweep_removes_the_expired";
    let shared: Arc<dyn Subject> = Arc::new(RealTime::new());
    let mut running = Vec::new();
    for check in semel_conformance::ALL {
        let subject = match check.name {
            ALONE => Arc::new(RealTime::new()),
            _ => Arc::clone(&shared),
        };
        running.push((check.name, tokio::spawn((check.run)(Scene::new(subject)))));
    }
    let mut failures = Vec::new();
    for (name, check) in running {
        match check.await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => failures.push(format!("{name}: {why:#}")),
            Err(panic) => failures.push(format!("{name}: {panic}")),
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
