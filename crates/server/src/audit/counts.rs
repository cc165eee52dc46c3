//! Event counts since the start of the process.

use std::sync::atomic::{AtomicU64, Ordering};

use semel_core::event::Step;
use serde::Serialize;
use utoipa::ToSchema;

/// The count of one kind of event.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Count {
    /// The kind of event.
    pub name: &'static str,
    /// The count since the start of the process.
    pub count: u64,
}

macro_rules! counts {
    ($($name:ident $pattern:pat)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $($name: AtomicU64,)*
            audit_lost: AtomicU64,
        }

        impl Counts {
            pub(crate) fn count(&self, step: &Step) {
                let counter = match step {
                    $($pattern => &self.$name,)*
                    _ => return,
                };
                counter.fetch_add(1, Ordering::Relaxed);
            }

            pub(crate) fn all(&self) -> Vec<Count> {
                vec![
                    $(Count { name: stringify!($name), count: self.$name.load(Ordering::Relaxed) },)*
                    Count { name: "audit_lost", count: self.lost() },
                ]
            }
        }
    };
}

counts! {
    claimed Step::Claimed { attempt: 1, .. }
    taken_over Step::Claimed { .. }
    replayed Step::Replayed { .. }
    mismatched Step::Mismatched { .. }
    held Step::Held { .. }
    waited Step::WaitEnded { .. }
    busy Step::Busy { .. }
    renewed Step::Renewed { .. }
    lease_lost Step::LeaseLost { .. }
    completed Step::Settled { state: semel_core::State::Completed, .. }
    failed Step::Settled { state: semel_core::State::Failed, .. }
    released Step::Settled { state: semel_core::State::Released, .. }
    doubted Step::Settled { .. }
    unrecorded Step::Unrecorded { .. }
    in_doubt Step::InDoubt { .. }
    verified Step::Verified { .. }
    resolved Step::Resolved { .. }
    unlocked Step::Unlocked { .. }
    reset Step::Deleted
    swept Step::Swept { .. }
    store_failed Step::StoreFailed { .. }
    failed_open Step::FailedOpen
    passed Step::Passed
    refused Step::Refused { .. }
}

impl Counts {
    pub(crate) fn add_lost(&self, many: u64) {
        self.audit_lost.fetch_add(many, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self) -> u64 {
        self.audit_lost.load(Ordering::Relaxed)
    }
}
