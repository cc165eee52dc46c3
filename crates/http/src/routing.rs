//! The state that all requests of a layer share, and the routing of a path to its rules.

use std::sync::Arc;

use semel_core::KeyRules;
use semel_core::engine::Engine;

use crate::pattern::Pattern;
use crate::reading::{Readings, readings, soften};
use crate::rules::Rules;

/// The engine and the rules of a layer.
pub(crate) struct LayerState {
    pub(crate) engine: Engine,
    pub(crate) key_rules: KeyRules,
    pub(crate) documentation: Option<String>,
    pub(crate) routes: Vec<Arc<Rules>>,
    pub(crate) defaults: Arc<Rules>,
}

impl LayerState {
    /// The rules for a path. There are several if services may read the path in ways that have
    /// different rules.
    pub(crate) fn rules(&self, path: &str) -> MatchedRules<'_> {
        let exact = self.find(|pattern| pattern.matches(path));
        if self.routes.is_empty() {
            return MatchedRules::One(&self.defaults);
        }
        let soft = || {
            let path = soften(path);
            self.find(|pattern| pattern.matches_soft(&path))
        };
        let first = exact.or_else(soft).unwrap_or(&self.defaults);
        let mut found = vec![first];
        match readings(path) {
            Readings::Plain => {}
            Readings::TooLong => found.extend(self.routes.iter().chain([&self.defaults])),
            Readings::Odd(readings) => found.extend(readings.iter().map(|reading| {
                let rules = self.find(|pattern| pattern.matches_soft(reading));
                rules.unwrap_or(&self.defaults)
            })),
        }
        match found.iter().all(|rules| Arc::ptr_eq(rules, first)) {
            true => MatchedRules::One(first),
            false => MatchedRules::Several(found),
        }
    }

    /// The first route with a matching pattern.
    fn find(&self, fits: impl Fn(&Pattern) -> bool) -> Option<&Arc<Rules>> {
        let mut routes = self.routes.iter();
        routes.find(|rules| rules.path.as_ref().is_some_and(&fits))
    }
}

/// The rules that apply to a path.
pub(crate) enum MatchedRules<'a> {
    One(&'a Arc<Rules>),
    /// The path is ambiguous: the first rules apply to it as written, the others to its other
    /// readings.
    Several(Vec<&'a Arc<Rules>>),
}
