//! Runs the checker.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use serde::Serialize;
use stateright::report::{ReportData, ReportDiscovery, Reporter};
use stateright::{Checker, HasDiscoveries, Model, Path};

use super::Protocol;
use super::explain::explain;
use super::moving::{self, Moving};
use super::properties::{ALWAYS, EVERY_RULE, Findings};
use super::property::Property;
use super::reach::SOMETIMES;
use super::spaces::Space;

/// What a run over one space found.
#[derive(Clone, Debug, Serialize)]
pub struct ModelOutcome {
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

impl ModelOutcome {
    /// Whether every property holds.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.properties.iter().all(|property| property.holds)
    }
}

/// Visits every state of the space. `progress` is told of states and time.
pub fn check(
    space: Space,
    threads: usize,
    progress: impl FnMut(usize, Duration) + Send,
) -> ModelOutcome {
    let mut properties = Vec::new();
    let (states, depth, seconds) = match space {
        Space::Store(config) => explore(
            Protocol::new(config),
            Order::Depth,
            threads,
            progress,
            |model| {
                let names = (names_of(ALWAYS), names_of(SOMETIMES));
                properties = outcomes(&model.findings, names, |name| config.is_beyond(name));
            },
        ),
        Space::Move(config) => explore(
            Moving::new(config),
            Order::Breadth,
            threads,
            progress,
            |model| {
                let names = (moving_rules().collect(), moving_outcomes().collect());
                properties = outcomes(&model.findings, names, |_| false);
                // Each outcome of a move has to be reached in one of its spaces: see
                // `moving_outcomes`.
                properties.retain(|property| property.holds || property.expectation == "always");
            },
        ),
    };
    ModelOutcome {
        name: space.name(),
        states,
        depth,
        seconds,
        properties,
    }
}

/// Which states are visited first.
#[derive(Clone, Copy)]
enum Order {
    /// Keeps one number per state, where breadth first keeps its whole frontier. But each state on
    /// its list has the way that led to it.
    Depth,
    /// For smaller spaces in which a node may wait and ask again: that makes for ways as long as
    /// the space is large.
    Breadth,
}

/// Goes through a model; then `look`s at what it found. Gives states, depth and seconds.
fn explore<M>(
    model: M,
    order: Order,
    threads: usize,
    progress: impl FnMut(usize, Duration) + Send,
    look: impl FnOnce(&M),
) -> (usize, usize, f64)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Debug + Clone + PartialEq,
{
    let mut watch = Watch {
        progress,
        seen: None,
    };
    // To the end, whatever is found on the way.
    let never = HasDiscoveries::AnyOf(BTreeSet::new());
    let checker = model.checker().threads(threads).finish_when(never);
    let (states, depth) = match order {
        Order::Depth => ended(checker.spawn_dfs(), &mut watch, look),
        Order::Breadth => ended(checker.spawn_bfs(), &mut watch, look),
    };
    let seconds = watch.seen.unwrap_or_default().as_secs_f64();
    (states, depth, seconds)
}

/// Waits for the end, and `look`s. Gives states and depth.
fn ended<M, F>(
    checker: impl Checker<M> + Send + Sync,
    watch: &mut Watch<F>,
    look: impl FnOnce(&M),
) -> (usize, usize)
where
    M: Model,
    M::State: Clone + Debug + Hash + PartialEq,
    M::Action: Clone + Debug + PartialEq,
    F: FnMut(usize, Duration) + Send,
{
    let checker = checker.join_and_report(watch);
    look(checker.model());
    (checker.unique_state_count(), checker.max_depth())
}

type Names = Vec<&'static str>;

fn names_of(properties: &[Property]) -> Names {
    properties.iter().map(|property| property.name).collect()
}

fn outcomes(
    findings: &Findings,
    (always, sometimes): (Names, Names),
    is_beyond: impl Fn(&str) -> bool,
) -> Vec<PropertyOutcome> {
    let outcome = |name, expectation, holds| PropertyOutcome {
        name,
        expectation,
        holds,
    };
    let always = always.into_iter().enumerate();
    let always = always.map(|(at, name)| outcome(name, "always", !findings.is_broken(at)));
    let sometimes = sometimes.into_iter().enumerate();
    let sometimes = sometimes
        .filter(|(_, name)| !is_beyond(name))
        .map(|(at, name)| outcome(name, "sometimes", findings.is_reached(at)));
    always.chain(sometimes).collect()
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
pub fn violation(space: Space, wanted: Option<&str>) -> Option<Counterexample> {
    let index = |names: Names| {
        let position = |name| names.iter().position(|known| *known == name);
        wanted.map(|name| position(name).expect("the name of a property"))
    };
    match space {
        Space::Store(config) => {
            let wanted = index(names_of(ALWAYS));
            let model = Protocol {
                wanted,
                ..Protocol::new(config)
            };
            shortest(model, |model, path| {
                let end = path.last_state();
                let broken = ALWAYS.iter().filter(|p| !(p.condition)(model, end));
                let properties = broken.map(|property| property.name).collect();
                let steps = explain(path);
                Counterexample { properties, steps }
            })
        }
        Space::Move(config) => {
            let wanted = index(moving_rules().collect());
            let mut model = Moving::new(config);
            model.wanted = wanted;
            shortest(model, |model, path| {
                let end = path.last_state();
                let broken = moving::ALWAYS.iter().filter(|p| !p.holds(model, end));
                let properties = broken.map(|property| property.name).collect();
                let steps = moving::explain(path);
                Counterexample { properties, steps }
            })
        }
    }
}

/// The shortest way to a state that breaks a rule.
fn shortest<M>(
    model: M,
    tell: impl FnOnce(&M, Path<M::State, M::Action>) -> Counterexample,
) -> Option<Counterexample>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Debug + Clone + PartialEq,
{
    // One thread, breadth first: then the first that is found is the shortest.
    let checker = model
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let path = checker.discovery(EVERY_RULE)?;
    Some(tell(checker.model(), path))
}

/// The names of the properties that must always hold.
pub fn rules() -> impl Iterator<Item = &'static str> {
    names_of(ALWAYS).into_iter().chain(moving_rules())
}

fn moving_rules() -> impl Iterator<Item = &'static str> {
    moving::ALWAYS.iter().map(|property| property.name)
}

/// The names of what has to be possible in one space of moves or another.
pub fn moving_outcomes() -> impl Iterator<Item = &'static str> {
    moving::SOMETIMES.iter().map(|(name, _)| *name)
}

/// Tells somebody else about the run.
struct Watch<F> {
    progress: F,
    seen: Option<Duration>,
}

impl<M: Model, F: FnMut(usize, Duration)> Reporter<M> for Watch<F>
where
    M::State: Debug + Hash,
    M::Action: Debug,
{
    fn report_checking(&mut self, data: ReportData) {
        self.seen = Some(data.duration);
        (self.progress)(data.unique_states, data.duration);
    }

    fn report_discoveries(&mut self, _: &M, _: BTreeMap<&'static str, ReportDiscovery<M>>) {}

    fn delay(&self) -> Duration {
        Duration::from_millis(250)
    }
}
