//! [`Shadow`]: what enforce mode would have done, for scopes in observe mode (shadow mode).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use semel_core::event::{Event, ShadowDecision};
use serde::Serialize;
use utoipa::ToSchema;

/// The maximum number of scopes. Further ones are counted as [`OTHERS`].
const MAX_SCOPES: usize = 200;

const OTHERS: &str = "other";

/// What enforce mode would have done with the requests of one scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct ShadowScope {
    /// The scope.
    scope: String,
    /// Requests with a key, since the first one with a difference.
    requests: u64,
    /// Requests that would have been replayed.
    replay: u64,
    /// Requests that would have waited for a running key, or been refused.
    busy: u64,
    /// Requests that would have been refused because of another payload.
    mismatch: u64,
    /// Calls that would have been held because they resemble an earlier one.
    held: u64,
    /// Requests that would have been refused because the key is in doubt.
    in_doubt: u64,
    /// Requests that would have been refused because the store did not answer.
    unavailable: u64,
    /// Requests that would have been refused because the key is missing or invalid.
    refused: u64,
}

#[derive(Debug, Default)]
pub(super) struct Shadow {
    // A process without observe mode takes no lock.
    any: AtomicBool,
    scopes: Mutex<BTreeMap<String, ShadowScope>>,
}

impl Shadow {
    pub(super) fn count_difference(&self, event: &Event<'_>, would: &ShadowDecision) {
        let mut scopes = self.scopes.lock();
        let scope = event.namespace.scope();
        let name = if scopes.contains_key(scope) || scopes.len() < MAX_SCOPES {
            scope
        } else {
            OTHERS
        };
        let found = scopes.entry(name.to_owned()).or_default();
        name.clone_into(&mut found.scope);
        *match would {
            ShadowDecision::Replay => &mut found.replay,
            ShadowDecision::Busy => &mut found.busy,
            ShadowDecision::Mismatch => &mut found.mismatch,
            ShadowDecision::Held => &mut found.held,
            ShadowDecision::InDoubt => &mut found.in_doubt,
            ShadowDecision::Unavailable => &mut found.unavailable,
            ShadowDecision::Refuse(_) => &mut found.refused,
            _ => return,
        } += 1;
        self.any.store(true, Ordering::Relaxed);
    }

    pub(super) fn count_request(&self, event: &Event<'_>) {
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

    fn count(shadow: &Shadow, scope: &str, would: Option<ShadowDecision>) {
        let namespace = Namespace::new("", "", scope).unwrap();
        let event = Event::new(
            &namespace,
            KeyHint::default(),
            Identity::from_bytes([1; 32]),
            Step::Passed,
        );
        match would {
            Some(would) => shadow.count_difference(&event, &would),
            None => shadow.count_request(&event),
        }
    }

    #[test]
    fn scopes_are_counted_separately_up_to_a_limit() {
        let shadow = Shadow::default();
        count(&shadow, "charge", None);
        count(&shadow, "charge", Some(ShadowDecision::Replay));
        count(&shadow, "charge", None);
        count(&shadow, "charge", Some(ShadowDecision::Mismatch));
        count(&shadow, "refund", None);
        let report = shadow.report();
        assert_eq!(report.len(), 1, "refunds have no difference");
        let charge = &report[0];
        assert_eq!((charge.requests, charge.replay, charge.mismatch), (1, 1, 1));
        for number in 0..1000 {
            count(
                &shadow,
                &format!("scope-{number}"),
                Some(ShadowDecision::Busy),
            );
        }
        let report = shadow.report();
        assert_eq!(report.len(), MAX_SCOPES + 1);
        let others = report.iter().find(|found| found.scope == OTHERS).unwrap();
        assert_eq!(others.busy, 1000 - 199);
    }
}
