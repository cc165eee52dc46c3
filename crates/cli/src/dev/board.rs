//! The board: all runs, bounded, with events noted by the client, the service and the sidecars.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel::core::Clock;
use tokio::sync::watch;

use super::run::{Event, Run, order};

/// The most events of one run.
const MAX_RUN_EVENTS: usize = 80;
/// The most events of all runs; the oldest runs go first.
const MAX_EVENTS: usize = 300;

/// All runs, with a version that changes whenever they do.
pub(super) struct Board {
    pub(super) clock: Arc<dyn Clock>,
    runs: Mutex<VecDeque<Run>>,
    version: watch::Sender<u64>,
}

impl Board {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            runs: Mutex::default(),
            version: watch::Sender::new(1),
        }
    }

    /// Now, in milliseconds of the wall clock, which all processes of this machine share.
    pub(super) fn wall_ms(&self) -> u64 {
        self.clock.wall().as_micros() / 1000
    }

    pub(super) fn follow(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Tells the page that there is something new.
    pub(super) fn touch(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        self.lock().iter().cloned().collect()
    }

    pub(super) fn run(&self, number: u32) -> Option<Run> {
        self.lock().iter().find(|run| run.number == number).cloned()
    }

    pub(super) fn begin(&self, run: Run) {
        self.lock().push_back(run);
        self.touch();
    }

    pub(super) fn change(&self, number: u32, change: impl FnOnce(&mut Run)) {
        if let Some(run) = self.lock().iter_mut().find(|run| run.number == number) {
            change(run);
        }
        self.touch();
    }

    /// Notes an event of the client, which happens now.
    pub(super) fn note(&self, number: u32, event: Event) {
        self.note_at(|run| run.number == number, self.wall_ms(), event);
    }

    /// Notes an event about the run that `fits`; events about other keys and orders are left out.
    pub(super) fn note_at(&self, fits: impl Fn(&Run) -> bool, wall_ms: u64, mut event: Event) {
        let mut runs = self.lock();
        let Some(run) = runs.iter_mut().find(|run| fits(run)) else {
            return;
        };
        if run.events.len() >= MAX_RUN_EVENTS {
            return;
        }
        event.at = wall_ms.saturating_sub(run.began);
        // Sidecars tell of an event a little later than it happens.
        let place = run
            .events
            .partition_point(|other| order(other) <= order(&event));
        run.events.insert(place, event);
        forget_oldest(&mut runs);
        drop(runs);
        self.touch();
    }

    /// Waits until `is_so` is true of a run, or until the run is forgotten.
    pub(super) async fn until(&self, number: u32, is_so: impl Fn(&Run) -> bool) {
        let mut news = self.follow();
        while self.run(number).is_some_and(|run| !is_so(&run)) {
            if news.changed().await.is_err() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the newest run and as many before it as fit.
fn forget_oldest(runs: &mut VecDeque<Run>) {
    let mut events: usize = runs.iter().map(|run| run.events.len()).sum();
    while events > MAX_EVENTS && runs.len() > 1 {
        events -= runs.pop_front().map_or(0, |run| run.events.len());
    }
}

#[cfg(test)]
mod tests {
    use super::super::run::{Crash, Kind, Lane, Scenario};
    use super::*;

    fn board() -> Board {
        Board::new(semel::tokio_env().clock)
    }

    fn run(number: u32, began: u64) -> Run {
        Run {
            number,
            scenario: Scenario::Send,
            with_semel: true,
            crash: Crash::Hold,
            order: format!("ord-{number}"),
            key: String::new(),
            id: String::new(),
            began,
            is_done: false,
            verdict: None,
            replies: Vec::new(),
            events: Vec::new(),
        }
    }

    #[test]
    fn an_event_that_is_told_late_takes_its_place() {
        let board = board();
        board.begin(run(1, 1000));
        let arrow = |kind| Event::arrow(kind, Lane::A, Lane::Service, "");
        let is_first = |run: &Run| run.number == 1;
        board.note_at(is_first, 1005, arrow(Kind::Begin));
        board.note_at(is_first, 1003, arrow(Kind::Request));
        board.note_at(is_first, 1005, arrow(Kind::Claim));
        board.note_at(|run| run.number == 2, 1005, arrow(Kind::Reply));
        let events = board.run(1).expect("a run").events;
        let kinds: Vec<_> = events.iter().map(|event| (event.at, event.kind)).collect();
        let expected = [(3, Kind::Request), (5, Kind::Claim), (5, Kind::Begin)];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn the_oldest_runs_are_forgotten() {
        let board = board();
        for number in 1..=10 {
            board.begin(run(number, 0));
            for _ in 0..MAX_RUN_EVENTS + 5 {
                board.note(number, Event::arrow(Kind::Note, Lane::A, Lane::A, ""));
            }
        }
        let runs = board.runs();
        assert_eq!(runs.last().map(|run| run.number), Some(10));
        let events: usize = runs.iter().map(|run| run.events.len()).sum();
        assert!(events <= MAX_EVENTS && runs.len() == 3, "{events}");
    }
}
