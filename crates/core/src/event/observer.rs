//! [`Observer`]: what takes events.

use std::fmt;
use std::sync::Arc;

use super::Event;

/// Takes events. Called on the hot path: return quickly, never block.
pub trait Observer: Send + Sync + 'static {
    /// Takes one event.
    fn observe(&self, event: &Event<'_>);

    /// Whether it wants events at all. The engine makes none for an observer that returns `false`.
    /// Called once, when the engine is made.
    fn wants_events(&self) -> bool {
        true
    }

    /// Whether it wants durations: [`Step::StoreCalled`](super::Step::StoreCalled) and
    /// [`Step::Answered`](super::Step::Answered). Each costs a read of the clock, so an observer
    /// that doesn't use them should return `false`. Called once, when the engine is made.
    fn wants_times(&self) -> bool {
        true
    }
}

/// Several observers, which get each event in order.
#[derive(Clone)]
pub struct ObserverList(Vec<Arc<dyn Observer>>);

impl ObserverList {
    /// Makes one observer of several.
    #[must_use]
    pub const fn new(observers: Vec<Arc<dyn Observer>>) -> Self {
        Self(observers)
    }
}

impl fmt::Debug for ObserverList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObserverList({})", self.0.len())
    }
}

impl Observer for ObserverList {
    fn observe(&self, event: &Event<'_>) {
        for observer in &self.0 {
            observer.observe(event);
        }
    }

    fn wants_events(&self) -> bool {
        self.0.iter().any(|observer| observer.wants_events())
    }

    fn wants_times(&self) -> bool {
        self.0.iter().any(|observer| observer.wants_times())
    }
}

/// An observer that ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopObserver;

impl Observer for NoopObserver {
    fn observe(&self, _: &Event<'_>) {}

    fn wants_events(&self) -> bool {
        false
    }

    fn wants_times(&self) -> bool {
        false
    }
}
