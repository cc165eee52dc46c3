//! Runs the checker.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use stateright::report::{ReportData, ReportDiscovery, Reporter};
use stateright::{Checker as _, HasDiscoveries, Model as _};

use super::Protocol;
use super::config::Config;
use super::explain::explain;
use super::properties::{ALWAYS, EVERY_RULE, Property};
use super::reach::SOMETIMES;

/// What a run over one space found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Of the space.
    pub name: &'static str,
    /// Different states, all of them visited.
    pub states: usize,
    /// Steps of the longest path walked.
    pub depth: usize,
    /// How long it took.
    pub seconds: f64,
    /// Each property, and whether it holds.
    pub properties: Vec<PropertyOutcome>,
}

/// Whether a property holds.
#[derive(Clone, Debug, Serialize)]
pub struct PropertyOutcome {
    /// Of the property.
    pub name: &'static str,
    /// `always` or `sometimes`.
    pub expectation: &'static str,
    /// Never violated, or reached.
    pub holds: bool,
}

impl Outcome {
    /// Whether every property holds.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.properties.iter().all(|property| property.holds)
    }
}

/// Visits every state of the space that `config` bounds. `progress` is told of states and time.
pub fn check(
    config: Config,
    threads: usize,
    progress: impl FnMut(usize, Duration) + Send,
) -> Outcome {
    let mut watch = Watch {
        progress,
        seen: None,
    };
    // Depth first: it keeps one number per state, where breadth first keeps its whole frontier. And
    // to the end, whatever is found on the way.
    let never = HasDiscoveries::AnyOf(BTreeSet::new());
    let checker = Protocol::new(config)
        .checker()
        .threads(threads)
        .finish_when(never);
    let checker = checker.spawn_dfs().join_and_report(&mut watch);
    let findings = &checker.model().findings;
    let always = outcomes(ALWAYS, "always", |index| !findings.is_broken(index));
    let sometimes = outcomes(SOMETIMES, "sometimes", |index| findings.is_reached(index));
    let within = sometimes.filter(|property| !config.is_beyond(property.name));
    Outcome {
        name: config.name,
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        seconds: watch.seen.unwrap_or_default().as_secs_f64(),
        properties: always.chain(within).collect(),
    }
}

fn outcomes(
    properties: &'static [Property],
    expectation: &'static str,
    holds: impl Fn(usize) -> bool,
) -> impl Iterator<Item = PropertyOutcome> {
    let named = properties.iter().enumerate();
    named.map(move |(index, p)| PropertyOutcome {
        name: p.name,
        expectation,
        holds: holds(index),
    })
}

/// How a property comes to be violated.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The properties that do not hold at its end.
    pub properties: Vec<&'static str>,
    /// What happened, step by step.
    pub steps: Vec<String>,
}

/// The shortest way to violate a property, if there is one: any, or the one called `wanted`.
///
/// # Panics
/// If no property is called `wanted`.
#[must_use]
pub fn violation(config: Config, wanted: Option<&str>) -> Option<Counterexample> {
    let index = |name| ALWAYS.iter().position(|property| property.name == name);
    let wanted = wanted.map(|name| index(name).expect("the name of a property"));
    // One thread, breadth first: then the first that is found is the shortest.
    let model = Protocol {
        wanted,
        ..Protocol::new(config)
    };
    let checker = model
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let path = checker.discovery(EVERY_RULE)?;
    let (model, end) = (checker.model(), path.last_state());
    let broken = ALWAYS
        .iter()
        .filter(|property| !(property.condition)(model, end));
    let properties = broken.map(|property| property.name).collect();
    Some(Counterexample {
        properties,
        steps: explain(path),
    })
}

/// The names of the properties that must always hold.
pub fn rules() -> impl Iterator<Item = &'static str> {
    ALWAYS.iter().map(|property| property.name)
}

/// Tells somebody else about the run.
struct Watch<F> {
    progress: F,
    seen: Option<Duration>,
}

impl<F: FnMut(usize, Duration)> Reporter<Protocol> for Watch<F> {
    fn report_checking(&mut self, data: ReportData) {
        self.seen = Some(data.duration);
        (self.progress)(data.unique_states, data.duration);
    }

    fn report_discoveries(
        &mut self,
        _: &Protocol,
        _: BTreeMap<&'static str, ReportDiscovery<Protocol>>,
    ) {
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(250)
    }
}
