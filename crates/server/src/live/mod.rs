//! [`Live`]: the last ten minutes in memory, second by second, for people who watch. What is kept for longer is
//! Prometheus's business.
//!
//! | file | is |
//! |---|---|
//! | `second` | the second that is being counted, and what is kept of one that is over |
//! | `hot` | which keys come most often: a sketch of bounded size, on hashes |
//! | `shadow` | what observe mode would have done, by scope |

mod hot;
mod second;
mod shadow;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use semel::Semel;
use semel_core::Tick;
use semel_core::event::{Event, Observer, Step};

pub(crate) use hot::HotKey;
use hot::HotKeys;
use second::Second;
pub(crate) use second::{Latency, Now, Sample, Spans};
use shadow::Shadow;
pub(crate) use shadow::ShadowScope;

/// How many seconds are kept.
pub(crate) const KEPT: usize = 600;

/// Over how many seconds the headline figures go.
pub(crate) const HEADLINE: usize = 60;

/// After how many seconds the sketch of hot keys begins anew; the one before it still counts until then.
const SKETCH: u64 = 60;

const SECOND: Duration = Duration::from_secs(1);

/// The figures of the last minutes. Cheap to clone; give it to [`semel::Builder::observer`], then call
/// [`watch`](Live::watch).
#[derive(Clone, Default)]
pub struct Live {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    // One lock for all that an event touches: it is held for the time of a few additions.
    open: Mutex<Open>,
    past: Mutex<Past>,
    shadow: Shadow,
}

#[derive(Default)]
struct Open {
    second: Second,
    hot: HotKeys,
}

#[derive(Default)]
struct Past {
    samples: VecDeque<Sample>,
    spans: VecDeque<Spans>,
    next: u64,
}

impl Live {
    /// Closes a second every second, from now on and for as long as the runtime is there.
    pub fn watch(&self, semel: &Semel) {
        let engine = semel.engine().clone();
        let shared = Arc::clone(&self.shared);
        let spawn = Arc::clone(&engine.env().spawn);
        spawn.spawn(Box::pin(async move {
            let clock = &engine.env().clock;
            let mut began = clock.now();
            loop {
                clock.sleep(SECOND).await;
                let (ended, now) = (clock.now(), Now::of(&engine));
                shared.close(began, ended, now);
                began = ended;
            }
        }));
    }

    /// The samples after the one of this number, oldest first.
    pub(crate) fn after(&self, number: Option<u64>) -> Vec<Sample> {
        let past = self.shared.past.lock();
        let is_new = |sample: &&Sample| number.is_none_or(|number| sample.number > number);
        past.samples.iter().filter(is_new).cloned().collect()
    }

    /// How long requests took over the last [`HEADLINE`] seconds.
    pub(crate) fn latency(&self) -> Latency {
        let past = self.shared.past.lock();
        let mut all = Spans::default();
        for spans in &past.spans {
            all.add(spans);
        }
        all.latency()
    }

    /// The keys that came most often in the last minute or two, the most frequent first.
    pub(crate) fn hot(&self, most: usize) -> Vec<HotKey> {
        self.shared.open.lock().hot.top(most)
    }

    /// What observe mode would have done since the start, by scope.
    pub(crate) fn shadow(&self) -> Vec<ShadowScope> {
        self.shared.shadow.report()
    }
}

impl Shared {
    fn close(&self, began: Tick, ended: Tick, now: Now) {
        let mut open = self.open.lock();
        let second = std::mem::take(&mut open.second);
        let mut past = self.past.lock();
        let number = past.next;
        if number % SKETCH == SKETCH - 1 {
            open.hot.turn();
        }
        drop(open);
        past.next += 1;
        let (sample, spans) = second.close(number, ended.since(began), now);
        past.samples.push_back(sample);
        past.spans.push_back(spans);
        while past.samples.len() > KEPT {
            past.samples.pop_front();
        }
        while past.spans.len() > HEADLINE {
            past.spans.pop_front();
        }
    }
}

impl Observer for Live {
    fn observe(&self, event: &Event<'_>) {
        let shared = &self.shared;
        match event.step {
            Step::Observed { ref would } => shared.shadow.observed(event, would),
            Step::Answered { .. } => shared.shadow.answered(event),
            _ => {}
        }
        let mut open = shared.open.lock();
        open.second.count(&event.step);
        if let Step::Answered { how, .. } = event.step {
            open.hot.count(event, how);
        }
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Live({} seconds)", self.shared.past.lock().samples.len())
    }
}
