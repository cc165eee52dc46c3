//! [`HotKeys`]: which keys come most often, by the space-saving sketch of Metwally, Agrawal and El Abbadi: so many
//! counters and no more, and every count is too high by at most what it says itself.

use std::collections::HashMap;

use semel_core::event::{Ending, Event};
use semel_core::{Identity, KeyHint, Namespace};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::hex;

/// How many keys are counted at a time.
const COUNTERS: usize = 128;

/// A key that comes often.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct HotKey {
    /// The key's hash.
    id: String,
    /// The environment that it lives in.
    environment: String,
    /// The tenant.
    tenant: String,
    /// The scope.
    scope: String,
    /// How the key begins: at most eight characters, never more than half.
    key_hint: String,
    /// Requests in the last one to two minutes; at least so many.
    requests: u64,
    /// So many of them were replays.
    replayed: u64,
    /// How many more requests there may have been.
    uncertain: u64,
}

/// The minute that is being counted, and the one before.
#[derive(Debug, Default)]
pub(super) struct HotKeys {
    current: Sketch,
    before: Sketch,
}

impl HotKeys {
    pub(super) fn count(&mut self, event: &Event<'_>, how: Ending) {
        // Without a usable key there is nothing to tell apart.
        if *event.identity.as_bytes() != [0; 32] {
            self.current
                .count(event, matches!(how, Ending::Replayed(_)));
        }
    }

    /// Begins anew; what was counted so far still shows until the next turn.
    pub(super) fn turn(&mut self) {
        self.before = std::mem::take(&mut self.current);
    }

    pub(super) fn top(&self, most: usize) -> Vec<HotKey> {
        let mut keys: HashMap<Identity, HotKey> = HashMap::new();
        for slot in self.before.slots.iter().chain(&self.current.slots) {
            let key = keys.entry(slot.identity).or_insert_with(|| slot.key());
            key.requests += slot.count - slot.over;
            key.replayed += slot.replayed;
            key.uncertain += slot.over;
        }
        let mut keys: Vec<HotKey> = keys.into_values().collect();
        // A request and its retry are nothing to speak of. And where less is known than isn't, the counter went from key
        // to key.
        keys.retain(|key| key.requests > 2 && key.requests > key.uncertain);
        keys.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.id.cmp(&b.id)));
        keys.truncate(most);
        keys
    }
}

#[derive(Debug, Default)]
struct Sketch {
    slots: Vec<Slot>,
    places: HashMap<Identity, usize>,
}

#[derive(Clone, Debug)]
struct Slot {
    identity: Identity,
    namespace: Namespace,
    hint: KeyHint,
    count: u64,
    /// What of `count` may be others'.
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
        let at = match self.places.get(&event.identity) {
            Some(at) => *at,
            None => self.place(event),
        };
        let slot = &mut self.slots[at];
        slot.count += 1;
        slot.replayed += u64::from(replayed);
    }

    /// A counter for a key that has none: a free one, or that of the key seen least.
    fn place(&mut self, event: &Event<'_>) -> usize {
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
            self.places.remove(&evicted.identity);
            at
        };
        self.places.insert(event.identity, at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_core::event::Step;

    fn seen(keys: &mut HotKeys, number: u32, how: Ending) {
        let namespace = Namespace::new("test", "acme", "charge").unwrap();
        let identity = Identity::from_bytes(*blake3::hash(&number.to_le_bytes()).as_bytes());
        let event = Event {
            namespace: &namespace,
            hint: KeyHint::default(),
            identity,
            actor: None,
            step: Step::Passed,
        };
        keys.count(&event, how);
    }

    #[test]
    fn a_hot_key_is_found_among_many_and_memory_is_bounded() {
        let mut keys = HotKeys::default();
        for number in 0..20_000 {
            seen(&mut keys, number, Ending::Ran);
            if number % 20 == 0 {
                seen(&mut keys, 1_000_000, Ending::Replayed(None));
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
        assert_eq!(keys.current.places.len(), COUNTERS);
        // Keys that came once were once somebody's counter, and are not told as hot.
        assert_eq!(top.len(), 1, "{top:?}");
    }

    #[test]
    fn what_is_past_fades() {
        let mut keys = HotKeys::default();
        seen(&mut keys, 1, Ending::Ran);
        seen(&mut keys, 1, Ending::Ran);
        keys.turn();
        seen(&mut keys, 1, Ending::Ran);
        assert_eq!(keys.top(1)[0].requests, 3);
        keys.turn();
        assert!(keys.top(1).is_empty(), "one is nothing to speak of");
    }

    #[test]
    fn requests_without_a_key_are_nobodys() {
        let mut keys = HotKeys::default();
        let namespace = Namespace::new("", "", "charge").unwrap();
        let event = Event {
            namespace: &namespace,
            hint: KeyHint::default(),
            identity: Identity::from_bytes([0; 32]),
            actor: None,
            step: Step::Passed,
        };
        for _ in 0..3 {
            keys.count(&event, Ending::Ran);
        }
        assert!(keys.top(1).is_empty());
    }
}
