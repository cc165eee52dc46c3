//! Renewals: the watcher misses no lease, also not one that comes while it scans or ends.

use std::sync::Arc;
use std::time::Duration;

use semel_core::clock::Sleep;
use semel_core::engine::{Engine, EngineConfig, Report, Request, Response, Verdict};
use semel_core::env::Entropy;
use semel_core::event::{Event, Observer, Step};
use semel_core::policy::Policy;
use semel_core::wake::Hub;
use semel_core::{
    BoxFuture, Clock, Env, Fingerprint, Key, MemoryConfig, MemoryStore, Namespace, Secret, Spawn,
    Tick, Timestamp,
};
use shuttle::sync::atomic::Ordering::SeqCst;
use shuttle::thread;

use super::{ManualClock, Seen, explore, join};

const LEASE: Duration = Duration::from_millis(300);

/// A clock that whoever sleeps moves on.
#[derive(Clone, Default)]
struct JumpingClock(ManualClock);

impl Clock for JumpingClock {
    fn now(&self) -> Tick {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        self.0.wall()
    }

    fn sleep(&self, for_time: Duration) -> Sleep {
        let clock = self.0.clone();
        let until = self.now().plus(for_time).since_origin().as_millis() + 1;
        let until = u64::try_from(until).expect("a near time");
        Box::pin(async move {
            shuttle::future::yield_now().await;
            clock.0.fetch_max(until, SeqCst);
        })
    }
}

struct Tasks;

impl Spawn for Tasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(shuttle::future::spawn(task));
    }
}

struct OneToken;

impl Entropy for OneToken {
    fn next_u128(&self) -> u128 {
        7
    }
}

/// Wakes a run when its lease was renewed.
struct Renewed(Hub);

impl Observer for Renewed {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event.step, Step::Renewed { .. }) {
            self.0.wake(&event.identity.address());
        }
    }

    fn wants_times(&self) -> bool {
        false
    }
}

fn engine_of(hub: &Hub) -> Engine {
    let clock = Arc::new(JumpingClock::default());
    let store = MemoryStore::new(
        MemoryConfig::default().with_capacity(8),
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let env = Env::new(clock, Arc::new(Tasks), Arc::new(OneToken));
    let observer = Arc::new(Renewed(hub.clone()));
    let config = EngineConfig::default();
    Engine::with(Arc::new(store), env, Secret::none(), config, observer)
}

/// Runs an effect that ends once its lease was renewed. A lease that nobody renews is a deadlock.
fn run_until_renewed(engine: &Engine, hub: &Hub, key: &str) -> bool {
    let policy = Policy::default().with_lease(LEASE);
    let request = Request::new(
        engine,
        Namespace::new("", "", "charge").expect("a namespace"),
        &Key::parse(key).expect("a key"),
        Fingerprint::from_bytes([1; 17]),
        Arc::new(policy),
    );
    let (hub, identity) = (hub.clone(), *request.identity());
    let effect = move |_| async move {
        hub.watch(&identity).await;
        Report::new((), Verdict::NoEffect)
    };
    let response = shuttle::future::block_on(engine.execute(request, effect));
    matches!(response, Response::Ran(_))
}

#[test]
fn p31_every_lease_is_renewed() {
    static RAN: Seen = Seen::new();
    explore(|| {
        let hub = Hub::new();
        let engine = engine_of(&hub);
        let runs = ["a", "b"].map(|key| {
            let (engine, hub) = (engine.clone(), hub.clone());
            thread::spawn(move || {
                // The second run starts when the watcher may be about to end.
                for turn in ["1", "2"] {
                    if run_until_renewed(&engine, &hub, &format!("{key}{turn}")) {
                        RAN.note();
                    }
                }
            })
        });
        join(runs.into());
    });
    RAN.assert_happened("an effect ran until it was renewed");
}
