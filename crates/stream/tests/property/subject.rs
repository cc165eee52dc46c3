//! What is tested: the gate, or the gate used in one of the ways that lose or repeat operations.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use semel_stream::{
    Batch, Epoch, FenceError, Fsync, Gate, GateLimits, GateVerdict, IdempotencyStore, Mark, Order,
    SessionId, StreamOperation, Tenant,
};

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Commits before the effects are, so that a crash between the two loses them.
    MarkBeforeEffect,
    /// A window smaller than the time within which duplicates come.
    SmallWindow,
    /// All lives of a producer are one.
    EpochIgnored,
    /// What comes early is applied.
    GapsPassedOver,
    /// The key is recorded by the check, and stays there when the effect fails.
    RecordsAtTheCheck,
    /// A restarted consumer begins with nothing.
    ForgetsAtRestart,
}

/// A consumer's memory, with a mistake or without.
pub(crate) struct Subject {
    pub(crate) bug: Option<Bug>,
    /// None only while it restarts.
    gate: Option<Gate>,
    /// Where it keeps what it records; in memory without.
    folder: Option<PathBuf>,
    /// For [`Bug::RecordsAtTheCheck`].
    checked: IdempotencyStore,
}

/// Enough for the duplicates that the world makes: see `world::LATEST`.
const WINDOW: usize = 4_000;

impl Subject {
    pub(crate) fn new(bug: Option<Bug>, folder: Option<PathBuf>) -> Self {
        let gate = match &folder {
            Some(folder) => open(folder, bug),
            None => Gate::new(limits(bug)),
        };
        Self {
            bug,
            gate: Some(gate),
            folder,
            checked: IdempotencyStore::new(WINDOW),
        }
    }

    fn gate(&self) -> &Gate {
        self.gate.as_ref().expect("it runs")
    }

    pub(crate) fn batch(&self) -> Batch<'_> {
        self.gate().batch()
    }

    pub(crate) fn offer(&self, batch: &mut Batch<'_>, operation: &StreamOperation) -> GateVerdict {
        if self.bug == Some(Bug::RecordsAtTheCheck) && operation.place().is_none() {
            let key = operation.key().expect("a place or a key");
            if !self.checked.check_and_record(key) {
                return GateVerdict::Duplicate;
            }
        }
        batch.offer(&self.seen(operation))
    }

    /// The operation, as this consumer sees it.
    fn seen(&self, operation: &StreamOperation) -> StreamOperation {
        match (self.bug, operation.place()) {
            (Some(Bug::EpochIgnored), Some((session, at))) => {
                StreamOperation::sequenced(session, Mark::new(0, at.seqno.0))
                    .with_tenant(operation.tenant())
            }
            _ => *operation,
        }
    }

    pub(crate) fn fence(&self, session: SessionId, epoch: u64) -> Result<Mark, FenceError> {
        let epoch = if self.bug == Some(Bug::EpochIgnored) {
            0
        } else {
            epoch
        };
        self.gate().fence(Tenant::default(), session, Epoch(epoch))
    }

    /// The process ends, and another takes up what was kept.
    pub(crate) fn restart(&mut self) {
        let before = self.gate.take().expect("it runs");
        let gate = match (self.bug, &self.folder) {
            (Some(Bug::ForgetsAtRestart), _) => Gate::new(limits(self.bug)),
            (_, None) => Gate::restore(limits(self.bug), &before.snapshot()),
            (_, Some(folder)) => {
                drop(before);
                half_a_frame(folder);
                open(folder, self.bug)
            }
        };
        self.gate = Some(gate);
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn open(folder: &Path, bug: Option<Bug>) -> Gate {
    Gate::open(folder, limits(bug), Fsync::Never).expect("a journal")
}

/// The process died while it wrote.
fn half_a_frame(folder: &Path) {
    for item in std::fs::read_dir(folder).expect("a folder") {
        let path = item.expect("a file").path();
        if path.extension().is_some_and(|ending| ending == "journal") {
            let mut file = File::options()
                .append(true)
                .open(path)
                .expect("the journal");
            file.write_all(&[3; 37]).expect("room");
        }
    }
}

fn limits(bug: Option<Bug>) -> GateLimits {
    let window = if bug == Some(Bug::SmallWindow) {
        50
    } else {
        WINDOW
    };
    let order = match bug {
        Some(Bug::GapsPassedOver) => Order::Monotonic,
        _ => Order::Contiguous,
    };
    GateLimits::default()
        .with_window(window)
        .with_order(order)
        .with_shards(1)
}
