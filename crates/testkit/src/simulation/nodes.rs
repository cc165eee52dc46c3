//! The start of a node: an engine of its own, on a wire to the store.

use std::sync::Arc;
use std::time::Duration;

use semel_core::engine::{BreakerConfig, CacheConfig, Engine, EngineConfig};
use semel_core::event::NoopObserver;
use semel_core::{Env, Secret, Store};
use semel_stores::encrypted::EncryptedStore;

use super::clocks::{NodeClock, NodeTasks};
use super::sched::Place;
use super::wire::Wire;
use super::world::{Node, NodeFlaw, World};

impl World {
    /// Starts a node anew: nothing is left of its life before.
    pub(super) fn start(self: &Arc<Self>, node: usize) {
        let mut nodes = self.nodes.lock();
        let Node { life, drift, .. } = nodes[node];
        let life = life + 1;
        let clock = NodeClock {
            sched: self.sched.clone(),
            drift,
            skew: self.dice.below(1 << 40),
        };
        let env = Env::new(
            Arc::new(clock),
            Arc::new(NodeTasks {
                sched: self.sched.clone(),
                place: Place::Node { node, life },
            }),
            Arc::new(self.dice.clone()),
        );
        let wire = Arc::new(Wire::new(self, node));
        let keys = self.encryption.as_ref().and_then(|keys| keys.get(node));
        let store: Arc<dyn Store> = match keys {
            // Operators of these worlds reach the store itself, and write plain text.
            Some(keys) => Arc::new(EncryptedStore::new(wire, keys.clone(), false)),
            None => wire,
        };
        let engine = Engine::with(
            store,
            env,
            Secret::none(),
            self.config(),
            Arc::new(NoopObserver),
        );
        let place = &mut nodes[node];
        let before = place.engine.replace(engine);
        place.life = life;
        drop(nodes);
        drop(before);
    }

    fn config(&self) -> EngineConfig {
        let call_limit = match self.flaw {
            Some(NodeFlaw::CallsGivenUpLate) => 8 * self.plan.call_limit,
            _ => self.plan.call_limit,
        };
        EngineConfig::default()
            .with_max_waiters(1024)
            .with_max_waiters_per_tenant(512)
            .with_call_limit(Duration::from_micros(call_limit))
            .with_breaker(
                BreakerConfig::default()
                    .with_failures(self.plan.breaker_failures)
                    .with_first_try(Duration::from_secs(60))
                    .with_open_for(Duration::from_secs(60)),
            )
            // Room for every key of a world: what would be dropped first is not the seed's to
            // decide.
            .with_cache(
                CacheConfig::default()
                    .with_max_bytes(if self.plan.cache { 4 << 20 } else { 0 })
                    .with_max_age(Duration::from_secs(30)),
            )
    }
}
