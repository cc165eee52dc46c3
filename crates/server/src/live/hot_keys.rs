//! [`HotKeys`]: the most frequent keys, by the space-saving sketch of Metwally, Agrawal and El
//! Abbadi.
//!
//! The sketch has a fixed number of counters. Each counter knows by how much it may be too high.

use std::collections::HashMap;

use semel_core::event::{Ending, Event};
use semel_core::{Identity, KeyHint, Namespace};
use serde::Serialize;
use utoipa::ToSchema;

use crate::web::hex;

/// The number of counters.
const COUNTERS: usize = 128;

/// A frequent key.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct HotKey {
    /// The id of the record: a hash of the key.
    id: String,
    /// The environment of the key.
    environment: String,
    /// The tenant.
    tenant: String,
    /// The scope.
    scope: String,
    /// The first characters of the key: at most eight, and at most half of it.
    key_hint: String,
    /// The minimum number of requests in the last one to two minutes.
    requests: u64,
    /// How many of them were replays.
    replayed: u64,
    /// How many more requests there may have been.
    uncertain: u64,
}

/// The sketches of the current minute and of the one before.
#[derive(Debug, Default)]
pub(super) struct HotKeys {
    current: Sketch,
    previous: Sketch,
}

impl HotKeys {
    pub(super) fn count(&mut self, event: &Event<'_>, how: Ending) {
        // Requests without a valid key are not counted.
        if *event.identity.as_bytes() != [0; 32] {
            self.current
                .count(event, matches!(how, Ending::Replayed { .. }));
        }
    }

    /// Starts a new sketch. The old one still counts until the next rotation.
    pub(super) fn rotate(&mut self) {
        self.previous = std::mem::take(&mut self.current);
    }

    pub(super) fn top(&self, most: usize) -> Vec<HotKey> {
        let mut keys: HashMap<Identity, HotKey> = HashMap::new();
        for slot in self.previous.slots.iter().chain(&self.current.slots) {
            let key = keys.entry(slot.identity).or_insert_with(|| slot.key());
            key.requests += slot.count - slot.over;
            key.replayed += slot.replayed;
            key.uncertain += slot.over;
        }
        let mut keys: Vec<HotKey> = keys.into_values().collect();
        // A request and one retry are not frequent. If the uncertain part is larger than the
        // certain one, the counter was passed from key to key.
        keys.retain(|key| key.requests > 2 && key.requests > key.uncertain);
        keys.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.id.cmp(&b.id)));
        keys.truncate(most);
        keys
    }
}

#[derive(Debug, Default)]
struct Sketch {
    slots: Vec<Slot>,
    indexes: HashMap<Identity, usize>,
}

#[derive(Clone, Debug)]
struct Slot {
    identity: Identity,
    namespace: Namespace,
    hint: KeyHint,
    count: u64,
    /// The part of `count` that may belong to other keys.
    over: u64,
    replayed: u64,
}

impl Slot {
    fn key(&self) -> HotKey {
        HotKey {
            id: hex(self.identity.as_bytes()),
            environment: self.namespace.environment().to_owned(),
            tenant: self.namespace.tenant().to_owned(),
            scope: self.namespace.scope().to_owned(),
            key_hint: self.hint.as_str().to_owned(),
            requests: 0,
            replayed: 0,
            uncertain: 0,
        }
    }
}

impl Sketch {
    fn count(&mut self, event: &Event<'_>, replayed: bool) {
        let at = match self.indexes.get(&event.identity) {
            Some(at) => *at,
            None => self.assign_slot(event),
        };
        let slot = &mut self.slots[at];
        slot.count += 1;
        slot.replayed += u64::from(replayed);
    }

    /// Assigns a counter to a new key: a free one, or that of the least frequent key.
    fn assign_slot(&mut self, event: &Event<'_>) -> usize {
        let mut slot = Slot {
            identity: event.identity,
            namespace: event.namespace.clone(),
            hint: event.hint,
            count: 0,
            over: 0,
            replayed: 0,
        };
        let at = if self.slots.len() < COUNTERS {
            self.slots.push(slot);
            self.slots.len() - 1
        } else {
            let counts = self.slots.iter().map(|slot| slot.count).enumerate();
            let (at, least) = counts.min_by_key(|(_, count)| *count).unwrap_or_default();
            slot.count = least;
            slot.over = least;
            let evicted = std::mem::replace(&mut self.slots[at], slot);
            self.indexes.remove(&evicted.identity);
            at
        };
        self.indexes.insert(event.identity, at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_core::Timestamp;
    use semel_core::event::Step;

    const REPLAYED: Ending = Ending::Replayed {
        number: None,
        requested_at: Timestamp::from_micros(0),
    };

    fn count(keys: &mut HotKeys, number: u32, how: Ending) {
        let namespace = Namespace::new("test", "acme", "charge").unwrap();
        let identity = Identity::from_bytes(*blake3::hash(&number.to_le_bytes()).as_bytes());
        let event = Event::new(&namespace, KeyHint::default(), identity, Step::Passed);
        keys.count(&event, how);
    }

    #[test]
    fn hot_key_is_found_with_bounded_memory() {
        let mut keys = HotKeys::default();
        for number in 0..20_000 {
            count(&mut keys, number, Ending::Ran { bytes: 0 });
            if number % 20 == 0 {
                count(&mut keys, 1_000_000, REPLAYED);
            }
        }
        let top = keys.top(10);
        let hot = &top[0];
        assert_eq!(
            hot.id,
            hex(blake3::hash(&1_000_000_u32.to_le_bytes()).as_bytes())
        );
        assert!(
            hot.requests <= 1000 && hot.requests + hot.uncertain >= 1000,
            "{hot:?}"
        );
        assert!(hot.replayed > 900, "{hot:?}");
        assert_eq!(keys.current.slots.len(), COUNTERS);
        assert_eq!(keys.current.indexes.len(), COUNTERS);
        // Keys that came once had a counter for a while, but are not hot.
        assert_eq!(top.len(), 1, "{top:?}");
    }

    #[test]
    fn old_counts_expire() {
        let mut keys = HotKeys::default();
        count(&mut keys, 1, Ending::Ran { bytes: 0 });
        count(&mut keys, 1, Ending::Ran { bytes: 0 });
        keys.rotate();
        count(&mut keys, 1, Ending::Ran { bytes: 0 });
        assert_eq!(keys.top(1)[0].requests, 3);
        keys.rotate();
        assert!(keys.top(1).is_empty(), "one request is not frequent");
    }

    #[test]
    fn requests_without_a_key_are_not_counted() {
        let mut keys = HotKeys::default();
        let namespace = Namespace::new("", "", "charge").unwrap();
        let event = Event::new(
            &namespace,
            KeyHint::default(),
            Identity::from_bytes([0; 32]),
            Step::Passed,
        );
        for _ in 0..3 {
            keys.count(&event, Ending::Ran { bytes: 0 });
        }
        assert!(keys.top(1).is_empty());
    }
}
