//! The state of the dashboard, and its updates.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use semel::core::Tick;

use crate::client::view::{Entry, Stats};

/// The number of rates in the plot.
const RATES: usize = 240;
/// The number of entries in the list.
const ENTRIES: usize = 200;
/// The time span of hot scopes.
const HOT: Duration = Duration::from_secs(60);
/// The number of events kept to rank the scopes.
const HAPPENINGS: usize = 20_000;

/// Events per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) requests: f64,
    pub(super) fresh: f64,
    pub(super) replays: f64,
    pub(super) conflicts: f64,
    pub(super) busy: f64,
    pub(super) passed: f64,
    pub(super) store_failures: f64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubts {
    pub(super) count: u64,
    /// Whether all records were counted.
    pub(super) is_all: bool,
}

/// A scope, and its events in the last minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scope {
    pub(super) name: String,
    pub(super) fresh: u64,
    pub(super) replays: u64,
    pub(super) troubles: u64,
}

pub(super) struct Model {
    pub(super) name: String,
    /// Whether a sidecar is shown, not a store.
    pub(super) is_sidecar: bool,
    pub(super) paused: bool,
    /// The refresh interval, in milliseconds.
    pub(super) every: u64,
    pub(super) now: Stats,
    pub(super) rates: Rates,
    /// Requests per second, the newest last.
    pub(super) history: VecDeque<u64>,
    pub(super) doubts: Option<Doubts>,
    /// Entries, the newest first.
    pub(super) entries: VecDeque<Entry>,
    /// Why no updates arrive.
    pub(super) silence: Option<String>,
    happened: VecDeque<(Tick, String, EventClass)>,
    at: Option<Tick>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventClass {
    Fresh,
    Replay,
    Trouble,
}

impl Model {
    pub(super) fn new(name: String, is_sidecar: bool, every: u64) -> Self {
        Self {
            name,
            is_sidecar,
            paused: false,
            every,
            now: Stats::default(),
            rates: Rates::default(),
            history: VecDeque::new(),
            doubts: None,
            entries: VecDeque::new(),
            silence: None,
            happened: VecDeque::new(),
            at: None,
        }
    }

    /// Takes new statistics. The rates are the differences from the last ones.
    pub(super) fn stats(&mut self, stats: Stats, at: Tick) {
        self.silence = None;
        let restarted = stats.uptime_ms < self.now.uptime_ms;
        if let Some(before) = self.at.filter(|_| !restarted) {
            let seconds = at.since(before).as_secs_f64().max(0.001);
            let rate = |names: &[&str]| {
                let more = |name: &&str| stats.count(name).saturating_sub(self.now.count(name));
                names.iter().map(more).sum::<u64>() as f64 / seconds
            };
            self.rates = Rates {
                fresh: rate(&["claimed", "taken_over"]),
                replays: rate(&["replayed"]),
                conflicts: rate(&["mismatched", "held"]),
                busy: rate(&["busy"]),
                passed: rate(&["passed"]),
                store_failures: rate(&["store_failed"]),
                requests: rate(&[
                    "claimed",
                    "taken_over",
                    "replayed",
                    "mismatched",
                    "busy",
                    "in_doubt",
                    "refused",
                ]),
            };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate is small, and not negative"
            )]
            self.history.push_back(self.rates.requests.ceil() as u64);
            while self.history.len() > RATES {
                self.history.pop_front();
            }
        }
        self.now = stats;
        self.at = Some(at);
        let oldest = |(when, ..): &(Tick, String, EventClass)| at.since(*when) > HOT;
        while self.happened.front().is_some_and(oldest) {
            self.happened.pop_front();
        }
    }

    pub(super) fn silent(&mut self, why: &str) {
        self.silence = Some(why.to_owned());
        self.rates = Rates::default();
    }

    pub(super) fn entry(&mut self, entry: Entry, at: Tick) {
        let what = match entry.kind.as_str() {
            "idempotency.key.created" => Some(EventClass::Fresh),
            "idempotency.replay" => Some(EventClass::Replay),
            "idempotency.takeover"
            | "idempotency.conflict"
            | "idempotency.busy"
            | "idempotency.in_doubt"
            | "idempotency.lease.lost"
            | "idempotency.unrecorded" => Some(EventClass::Trouble),
            _ => None,
        };
        // The first entries are older than this command.
        let age = Duration::from_millis(entry.age_ms(&self.now.time));
        let at = Tick::new(at.since_origin().saturating_sub(age));
        if let Some(what) = what.filter(|_| age <= HOT) {
            self.happened.push_back((at, entry.scope.clone(), what));
            if self.happened.len() > HAPPENINGS {
                self.happened.pop_front();
            }
        }
        self.entries.push_front(entry);
        self.entries.truncate(ENTRIES);
    }

    /// The scopes of the last minute, the busiest first.
    pub(super) fn hot(&self) -> Vec<Scope> {
        let mut scopes: BTreeMap<&str, Scope> = BTreeMap::new();
        for (_, name, what) in &self.happened {
            let scope = scopes.entry(name).or_insert_with(|| Scope {
                name: name.clone(),
                ..Scope::default()
            });
            match what {
                EventClass::Fresh => scope.fresh += 1,
                EventClass::Replay => scope.replays += 1,
                EventClass::Trouble => scope.troubles += 1,
            }
        }
        let mut scopes: Vec<Scope> = scopes.into_values().collect();
        scopes.sort_by_key(|scope| std::cmp::Reverse(scope.fresh + scope.replays + scope.troubles));
        scopes
    }
}
