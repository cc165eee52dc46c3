//! [`Live`]: statistics of the last ten minutes in memory, per second, for the dashboard.
//!
//! | file | is |
//! |---|---|
//! | `second` | the counters of the current second, and the sample of a past one |
//! | `distribution` | histograms of durations |
//! | `hot_keys` | the most frequent keys, by a sketch of fixed size |
//! | `shadow` | what enforce mode would have done, for scopes in observe mode |

mod distribution;
mod hot_keys;
mod second;
mod shadow;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use semel::Semel;
use semel_core::Tick;
use semel_core::event::{Event, Observer, Step};

pub(crate) use hot_keys::HotKey;
use hot_keys::HotKeys;
use second::Second;
pub(crate) use second::{Distributions, EngineSnapshot, Latency, Sample};
use shadow::Shadow;
pub(crate) use shadow::ShadowScope;

/// The number of kept samples.
pub(crate) const KEPT_SECONDS: usize = 600;

/// The time span of the headline statistics.
pub(crate) const HEADLINE_SECONDS: usize = 60;

/// The interval at which the sketch of hot keys is rotated.
const SKETCH_SECONDS: u64 = 60;

const SECOND: Duration = Duration::from_secs(1);

/// The statistics of the last minutes. Clones share them. Pass it to [`semel::Builder::observer`],
/// then call [`watch`](Live::watch).
#[derive(Clone, Default)]
pub struct Live {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    // One lock for everything that an event updates. It is held for a few additions only.
    current: Mutex<CurrentSecond>,
    past: Mutex<PastSeconds>,
    shadow: Shadow,
}

#[derive(Default)]
struct CurrentSecond {
    second: Second,
    hot_keys: HotKeys,
}

#[derive(Default)]
struct PastSeconds {
    samples: VecDeque<Sample>,
    distributions: VecDeque<Distributions>,
    next: u64,
}

impl Live {
    /// Starts the task that closes a sample every second.
    pub fn watch(&self, semel: &Semel) {
        let engine = semel.engine().clone();
        let shared = Arc::clone(&self.shared);
        let spawn = Arc::clone(&engine.env().spawn);
        spawn.spawn(Box::pin(async move {
            let clock = &engine.env().clock;
            let mut began = clock.now();
            loop {
                clock.sleep(SECOND).await;
                let (ended, engine_now) = (clock.now(), EngineSnapshot::from_engine(&engine));
                shared.close_second(began, ended, engine_now);
                began = ended;
            }
        }));
    }

    /// The samples after this number, oldest first.
    pub(crate) fn samples_after(&self, number: Option<u64>) -> Vec<Sample> {
        let past = self.shared.past.lock();
        let is_new = |sample: &&Sample| number.is_none_or(|number| sample.number > number);
        past.samples.iter().filter(is_new).cloned().collect()
    }

    /// The latency over the last [`HEADLINE_SECONDS`] seconds.
    pub(crate) fn latency(&self) -> Latency {
        let past = self.shared.past.lock();
        let mut all = Distributions::default();
        for second in &past.distributions {
            all.add(second);
        }
        all.latency()
    }

    /// The most frequent keys of the last one to two minutes.
    pub(crate) fn hot_keys(&self, most: usize) -> Vec<HotKey> {
        self.shared.current.lock().hot_keys.top(most)
    }

    /// What enforce mode would have done since the start, by scope.
    pub(crate) fn shadow_report(&self) -> Vec<ShadowScope> {
        self.shared.shadow.report()
    }
}

impl Shared {
    fn close_second(&self, began: Tick, ended: Tick, engine: EngineSnapshot) {
        let mut current = self.current.lock();
        let second = std::mem::take(&mut current.second);
        let mut past = self.past.lock();
        let number = past.next;
        if number % SKETCH_SECONDS == SKETCH_SECONDS - 1 {
            current.hot_keys.rotate();
        }
        drop(current);
        past.next += 1;
        let (sample, distributions) = second.close(number, ended.since(began), engine);
        past.samples.push_back(sample);
        past.distributions.push_back(distributions);
        while past.samples.len() > KEPT_SECONDS {
            past.samples.pop_front();
        }
        while past.distributions.len() > HEADLINE_SECONDS {
            past.distributions.pop_front();
        }
    }
}

impl Observer for Live {
    fn observe(&self, event: &Event<'_>) {
        let shared = &self.shared;
        match event.step {
            Step::Observed { ref decision } => shared.shadow.count_difference(event, decision),
            Step::Answered { .. } => shared.shadow.count_request(event),
            _ => {}
        }
        let mut current = shared.current.lock();
        current.second.count(&event.step);
        if let Step::Answered { how, .. } = event.step {
            current.hot_keys.count(event, how);
        }
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Live({} seconds)", self.shared.past.lock().samples.len())
    }
}
