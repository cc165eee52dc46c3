//! [`Shadow`]: what observe mode would have done, by scope.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use semel_core::event::{Event, Would};
use serde::Serialize;
use utoipa::ToSchema;

/// The most scopes that are told apart; what comes after them is counted as [`OTHERS`].
const SCOPES: usize = 200;

const OTHERS: &str = "other";

/// What enforcing would have done to the requests of one scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct ShadowScope {
    /// Which.
    scope: String,
    /// Requests with a key, since the first of them that would have gone another way.
    requests: u64,
    /// Would have been answered from the record.
    replay: u64,
    /// Would have waited for another's run, or been refused.
    busy: u64,
    /// Would have been refused: the key came with another payload.
    mismatch: u64,
    /// Would have been refused: the outcome of an earlier run is not known.
    in_doubt: u64,
    /// Would have been refused: the store gave no answer.
    unavailable: u64,
    /// Would have been refused at the door: no key, or one that can't be used.
    refused: u64,
}

#[derive(Debug, Default)]
pub(super) struct Shadow {
    // So that a process that only enforces takes no lock.
    any: AtomicBool,
    scopes: Mutex<BTreeMap<String, ShadowScope>>,
}

impl Shadow {
    pub(super) fn observed(&self, event: &Event<'_>, would: &Would) {
        let mut scopes = self.scopes.lock();
        let scope = event.namespace.scope();
        let name = if scopes.contains_key(scope) || scopes.len() < SCOPES {
            scope
        } else {
            OTHERS
        };
        let found = scopes.entry(name.to_owned()).or_default();
        name.clone_into(&mut found.scope);
        *match would {
            Would::Replay => &mut found.replay,
            Would::Busy => &mut found.busy,
            Would::Mismatch => &mut found.mismatch,
            Would::InDoubt => &mut found.in_doubt,
            Would::Unavailable => &mut found.unavailable,
            Would::Refuse(_) => &mut found.refused,
        } += 1;
        self.any.store(true, Ordering::Relaxed);
    }

    pub(super) fn answered(&self, event: &Event<'_>) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        if let Some(found) = self.scopes.lock().get_mut(event.namespace.scope()) {
            found.requests += 1;
        }
    }

    pub(super) fn report(&self) -> Vec<ShadowScope> {
        self.scopes.lock().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_core::event::Step;
    use semel_core::{Identity, KeyHint, Namespace};

    fn told(shadow: &Shadow, scope: &str, would: Option<Would>) {
        let namespace = Namespace::new("", "", scope).unwrap();
        let event = Event {
            namespace: &namespace,
            hint: KeyHint::default(),
            identity: Identity::from_bytes([1; 32]),
            actor: None,
            step: Step::Passed,
        };
        match would {
            Some(would) => shadow.observed(&event, &would),
            None => shadow.answered(&event),
        }
    }

    #[test]
    fn each_scope_is_told_apart_up_to_a_bound() {
        let shadow = Shadow::default();
        told(&shadow, "charge", None);
        told(&shadow, "charge", Some(Would::Replay));
        told(&shadow, "charge", None);
        told(&shadow, "charge", Some(Would::Mismatch));
        told(&shadow, "refund", None);
        let report = shadow.report();
        assert_eq!(report.len(), 1, "nothing would have changed for refunds");
        let charge = &report[0];
        assert_eq!((charge.requests, charge.replay, charge.mismatch), (1, 1, 1));
        for number in 0..1000 {
            told(&shadow, &format!("scope-{number}"), Some(Would::Busy));
        }
        let report = shadow.report();
        assert_eq!(report.len(), SCOPES + 1);
        let others = report.iter().find(|found| found.scope == OTHERS).unwrap();
        assert_eq!(others.busy, 1000 - 199);
    }
}
