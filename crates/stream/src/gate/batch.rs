//! [`Batch`]: takes operations through the gate, and records them together.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::{Gate, Hold, Lane};
use crate::journal::{Entry, JournalError};
use crate::key::{Epoch, SeqNo, SessionId, StreamKey};
use crate::marks::{MarkCheck, Order, Progress};
use crate::operation::{StreamOperation, Tenant};

/// What to do with an operation.
#[derive(Debug)]
pub enum GateVerdict {
    /// Apply it, then hand the ticket to [`Batch::applied`]; or drop the ticket, if applying
    /// failed.
    Apply(Ticket),
    /// It was applied before. Skip it, and acknowledge it after the commit.
    Duplicate,
    /// It is being applied by another right now, or its session is; or a write to the journal
    /// failed, and nothing that is applied can be recorded until the gate is opened again. Have it
    /// sent again later.
    Busy,
    /// It comes too early. Have it sent again later.
    Gap {
        /// The operation that must come first.
        expected: SeqNo,
    },
    /// It is from an earlier epoch of its producer. Never apply it.
    Stale {
        /// The epoch that the producer is in, or that was declared to be the first to count.
        current: Epoch,
    },
    /// There is no room for another tenant, or for another session of this one. Nothing was
    /// applied.
    Full,
}

/// The right to apply one operation.
#[derive(Debug)]
#[must_use = "hand it to `Batch::applied` once the operation was applied"]
pub struct Ticket {
    operation: StreamOperation,
    /// The operations that this one passes over: the first, and how many. Only with
    /// [`Order::Monotonic`].
    pub skips: Option<(SeqNo, u64)>,
}

/// The operations of one tenant in a batch.
#[derive(Debug)]
struct Part {
    lane: Arc<Lane>,
    held: HashSet<Hold>,
    progress: HashMap<SessionId, Progress>,
    keys: HashSet<StreamKey>,
}

/// Operations that are recorded together. Dropped without a commit, it has recorded nothing.
#[derive(Debug)]
pub struct Batch<'a> {
    gate: &'a Gate,
    lanes: HashMap<Tenant, Part>,
    applied: Vec<StreamOperation>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(gate: &'a Gate) -> Self {
        Self {
            gate,
            lanes: HashMap::new(),
            applied: Vec::new(),
        }
    }

    /// What to do with an operation, given all that was recorded, and what this batch has applied.
    /// What it may apply nobody else may until the batch ends.
    ///
    /// Once a write to the journal has failed, everything is [`GateVerdict::Busy`]: what can't be
    /// recorded would be applied again each time it is delivered.
    pub fn offer(&mut self, operation: &StreamOperation) -> GateVerdict {
        if self.gate.is_poisoned() {
            return GateVerdict::Busy;
        }
        let tenant = operation.tenant();
        if !self.lanes.contains_key(&tenant) {
            let Some(lane) = self.gate.lane(tenant) else {
                return GateVerdict::Full;
            };
            self.lanes.insert(tenant, Part::new(lane));
        }
        let Some(part) = self.lanes.get_mut(&tenant) else {
            return GateVerdict::Full;
        };
        let verdict = part.judge(operation, self.gate.limits.order);
        if matches!(verdict, GateVerdict::Duplicate) && part.uses_up_a_number(operation) {
            // Known by its key, under the number that is next: that is used up, or its session
            // would wait forever.
            self.note(*operation);
        }
        verdict
    }

    /// The operation was applied.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a ticket is used up: nothing is applied twice by one"
    )]
    pub fn applied(&mut self, ticket: Ticket) {
        self.note(ticket.operation);
    }

    fn note(&mut self, operation: StreamOperation) {
        if let Some(part) = self.lanes.get_mut(&operation.tenant()) {
            part.note(&operation);
        }
        self.applied.push(operation);
    }

    /// Records what was applied. Only then may anything that was offered be acknowledged.
    ///
    /// # Errors
    /// [`JournalError`] if the journal can't be written. It is unknown then whether the batch is
    /// recorded: acknowledge nothing, and have all of it delivered again. After that, even empty
    /// batches fail with
    /// [`JournalError::Poisoned`]: open the gate again.
    pub fn commit(self) -> Result<(), JournalError> {
        if self.gate.is_poisoned() {
            return Err(JournalError::Poisoned);
        }
        if self.applied.is_empty() {
            return Ok(());
        }
        let entries: Vec<Entry> = match self.gate.journal {
            Some(_) => self.applied.iter().copied().map(Entry::Applied).collect(),
            None => Vec::new(),
        };
        self.gate.record(&entries, || {
            for operation in &self.applied {
                if let Some(part) = self.lanes.get(&operation.tenant()) {
                    part.lane.record(operation);
                }
            }
        })
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for part in self.lanes.values() {
            let mut held = part.lane.held.lock();
            for hold in &part.held {
                held.remove(hold);
            }
        }
    }
}

impl Part {
    fn new(lane: Arc<Lane>) -> Self {
        Self {
            lane,
            held: HashSet::new(),
            progress: HashMap::new(),
            keys: HashSet::new(),
        }
    }

    fn judge(&mut self, operation: &StreamOperation, order: Order) -> GateVerdict {
        let mut skips = None;
        if let Some((session, at)) = operation.place() {
            // Marks only grow: what is behind one needs no hold to be known as a duplicate.
            match self.progress(session).check(at, order) {
                MarkCheck::Duplicate => return GateVerdict::Duplicate,
                MarkCheck::Stale { current } => return GateVerdict::Stale { current },
                MarkCheck::Next | MarkCheck::Skips { .. } | MarkCheck::Gap { .. } => {}
            }
            let ours = self.held.contains(&Hold::Session(session));
            if !self.hold(Hold::Session(session)) {
                return GateVerdict::Busy;
            }
            let refused = match self.progress(session).check(at, order) {
                MarkCheck::Next if self.lane.marks.has_room(session) => None,
                MarkCheck::Skips { first, missing } if self.lane.marks.has_room(session) => {
                    skips = Some((first, missing));
                    None
                }
                MarkCheck::Next | MarkCheck::Skips { .. } => Some(GateVerdict::Full),
                MarkCheck::Duplicate => Some(GateVerdict::Duplicate),
                MarkCheck::Gap { expected } => Some(GateVerdict::Gap { expected }),
                MarkCheck::Stale { current } => Some(GateVerdict::Stale { current }),
            };
            if let Some(verdict) = refused {
                if !ours {
                    self.release(Hold::Session(session));
                }
                return verdict;
            }
        }
        if let Some(key) = operation.window_key() {
            if self.keys.contains(&key) {
                return GateVerdict::Duplicate;
            }
            if !self.hold(Hold::Key(key)) {
                return GateVerdict::Busy;
            }
            // Only now: whoever held it before may have recorded it.
            if self.lane.window.contains(key) {
                self.release(Hold::Key(key));
                return GateVerdict::Duplicate;
            }
        }
        GateVerdict::Apply(Ticket {
            operation: *operation,
            skips,
        })
    }

    /// Whether an operation that is a duplicate by its key has the number that its session waits
    /// for. A later one it doesn't use up: nobody would be told of those that it passes over (I15).
    fn uses_up_a_number(&self, operation: &StreamOperation) -> bool {
        operation.place().is_some_and(|(session, at)| {
            self.held.contains(&Hold::Session(session))
                && self.progress(session).check(at, Order::Monotonic) == MarkCheck::Next
        })
    }

    fn note(&mut self, operation: &StreamOperation) {
        if let Some((session, at)) = operation.place() {
            let advanced = self.progress(session).advanced(at);
            self.progress.insert(session, advanced);
        }
        self.keys.extend(operation.window_key());
    }

    fn progress(&self, session: SessionId) -> Progress {
        let provisional = self.progress.get(&session).copied();
        provisional.unwrap_or_else(|| self.lane.marks.progress(session))
    }

    fn hold(&mut self, hold: Hold) -> bool {
        if self.held.contains(&hold) {
            return true;
        }
        let free = self.lane.held.lock().insert(hold);
        if free {
            self.held.insert(hold);
        }
        free
    }

    fn release(&mut self, hold: Hold) {
        self.held.remove(&hold);
        self.lane.held.lock().remove(&hold);
    }
}
