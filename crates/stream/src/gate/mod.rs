//! [`Gate`]: deduplicates operations by marks and windows before they are applied.
//!
//! The steps: offer → (hold) → apply → applied → commit → acknowledge. An operation is recorded
//! only after it was applied, and may be acknowledged only after it is recorded.

mod batch;

use std::path::Path;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, RwLock};

use crate::journal::{Entry, Fsync, Journal, JournalError};
use crate::key::{Epoch, SessionId, StreamKey};
use crate::marks::{Mark, MarkError, Order, Progress, SeqNoTracker};
use crate::operation::{StreamOperation, Tenant};
use crate::window::IdempotencyStore;
pub use batch::{Batch, GateVerdict, Ticket};

/// The bounds of a gate. Every tenant has a window and marks of its own within them.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GateLimits {
    /// The most tenants. One more is refused, because evicting another would let its duplicates
    /// through.
    pub tenants: usize,
    /// The keys in each tenant's window.
    pub window: usize,
    /// The parts of a window, for threads.
    pub shards: usize,
    /// The most sessions of each tenant.
    pub sessions: usize,
    /// What happens to an operation that comes too early.
    pub order: Order,
}

/// 1,024 tenants, each with a window of 100,000 keys in 16 parts and 100,000 sessions, in order.
impl Default for GateLimits {
    fn default() -> Self {
        Self {
            tenants: 1_024,
            window: crate::DEFAULT_CAPACITY,
            shards: 16,
            sessions: 100_000,
            order: Order::Contiguous,
        }
    }
}

impl GateLimits {
    /// Sets [`tenants`](Self::tenants).
    #[must_use]
    pub const fn with_tenants(mut self, tenants: usize) -> Self {
        self.tenants = tenants;
        self
    }

    /// Sets [`window`](Self::window).
    #[must_use]
    pub const fn with_window(mut self, window: usize) -> Self {
        self.window = window;
        self
    }

    /// Sets [`shards`](Self::shards).
    #[must_use]
    pub const fn with_shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// Sets [`sessions`](Self::sessions).
    #[must_use]
    pub const fn with_sessions(mut self, sessions: usize) -> Self {
        self.sessions = sessions;
        self
    }

    /// Sets [`order`](Self::order).
    #[must_use]
    pub const fn with_order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }
}

/// A session or key that only one batch may work on at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Hold {
    Session(SessionId),
    Key(StreamKey),
}

/// The window and marks of one tenant.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) marks: SeqNoTracker,
    pub(crate) window: IdempotencyStore,
    held: Mutex<HashSet<Hold>>,
}

/// Marks and windows, for many threads.
///
/// ```
/// use semel_stream::{Gate, GateLimits, Mark, StreamOperation, SessionId, GateVerdict};
///
/// let gate = Gate::new(GateLimits::default());
/// let operation = StreamOperation::sequenced(SessionId::named("sensor-7"), Mark::new(0, 1));
/// for _ in 0..2 {
///     let mut batch = gate.batch();
///     match batch.offer(&operation) {
///         GateVerdict::Apply(ticket) => {
///             println!("applied");
///             batch.applied(ticket);
///         }
///         other => println!("not applied: {other:?}"), // the second time: Duplicate
///     }
///     batch.commit()?;
///     // Now it may be acknowledged.
/// }
/// # Ok::<(), semel_stream::JournalError>(())
/// ```
#[derive(Debug)]
pub struct Gate {
    lanes: RwLock<HashMap<Tenant, Arc<Lane>>>,
    limits: GateLimits,
    journal: Option<Journal>,
}

impl Gate {
    /// An empty gate in memory.
    #[must_use]
    pub fn new(limits: GateLimits) -> Self {
        Self {
            lanes: RwLock::default(),
            limits,
            journal: None,
        }
    }

    /// A durable gate: its marks and windows are in a journal in `folder`, and survive a restart.
    ///
    /// An operation that was applied but not committed when the process crashed is applied again,
    /// because the journal doesn't know about the effect. To avoid that, keep the marks in the
    /// effect's own database (feature `postgres`).
    ///
    /// After a write that failed it lets nothing through, and every commit fails with
    /// [`JournalError::Poisoned`]. Drop it and open it again, which reads what is on disk.
    ///
    /// # Errors
    /// [`JournalError`] if the folder can't be used, is in use, or what is in it is damaged.
    pub fn open(folder: &Path, limits: GateLimits, fsync: Fsync) -> Result<Self, JournalError> {
        let (journal, entries) = Journal::open(folder, fsync)?;
        let mut gate = Self::new(limits);
        entries.iter().for_each(|entry| gate.recover(entry));
        gate.journal = Some(journal);
        Ok(gate)
    }

    fn recover(&self, entry: &Entry) {
        match *entry {
            Entry::Head { .. } => {}
            Entry::Session(tenant, session, progress) => {
                self.lane_or_beyond(tenant).marks.restore(session, progress);
            }
            Entry::Applied(operation) => {
                let lane = self.lane_or_beyond(operation.tenant());
                if let Some((session, at)) = operation.place() {
                    let progress = lane.marks.progress(session).advanced(at);
                    lane.marks.restore(session, progress);
                }
                if let Some(key) = operation.window_key() {
                    let _ = lane.window.check_and_record(key);
                }
            }
            Entry::Fenced(tenant, session, fence) => {
                let marks = &self.lane_or_beyond(tenant).marks;
                let progress = Progress {
                    fence,
                    ..marks.progress(session)
                };
                marks.restore(session, progress);
            }
            Entry::Retired(tenant, session) => {
                self.lane_or_beyond(tenant).marks.retire(session);
            }
        }
    }

    /// Writes `entries` to the journal and then to memory, with no snapshot in between.
    fn record<T>(&self, entries: &[Entry], know: impl FnOnce() -> T) -> Result<T, JournalError> {
        let Some(journal) = &self.journal else {
            return Ok(know());
        };
        let committing = journal.committing();
        journal.append(entries)?;
        let known = know();
        drop(committing);
        if journal.is_long(self.live()) {
            journal.compact(|| self.snapshot().entries())?;
        }
        Ok(known)
    }

    /// Whether nothing can be recorded any more.
    fn is_poisoned(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::is_poisoned)
    }

    fn live(&self) -> usize {
        let lanes = self.lanes();
        lanes
            .iter()
            .map(|(_, lane)| lane.window.len() + lane.marks.len())
            .sum()
    }

    /// A snapshot of all that is recorded, to be stored or taken over by another process.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (tenant, lane) in self.lanes() {
            let sessions = lane.marks.all().into_iter();
            snapshot
                .sessions
                .extend(sessions.map(|(session, progress)| (tenant, session, progress)));
            let keys = lane.window.keys().into_iter();
            snapshot.keys.extend(keys.map(|key| (tenant, key)));
        }
        snapshot
    }

    /// A gate restored from a snapshot. With smaller limits, the oldest keys of a window are
    /// evicted, but sessions beyond the bound are kept.
    #[must_use]
    pub fn restore(limits: GateLimits, snapshot: &Snapshot) -> Self {
        let gate = Self::new(limits);
        for (tenant, session, progress) in &snapshot.sessions {
            gate.lane_or_beyond(*tenant)
                .marks
                .restore(*session, *progress);
        }
        for (tenant, key) in &snapshot.keys {
            let _ = gate.lane_or_beyond(*tenant).window.check_and_record(*key);
        }
        gate
    }

    /// Begins a batch: one operation or many, recorded together.
    #[must_use]
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// Ends all epochs of a session before `epoch` (fencing). Returns the last operation that was
    /// applied, after which the restarted producer continues.
    ///
    /// # Errors
    /// [`FenceError`]; nothing is changed then.
    pub fn fence(
        &self,
        tenant: Tenant,
        session: SessionId,
        epoch: Epoch,
    ) -> Result<Mark, FenceError> {
        let lane = self.lane(tenant).ok_or(FenceError::Full)?;
        let hold = Hold::Session(session);
        if !lane.held.lock().insert(hold) {
            return Err(FenceError::Busy);
        }
        let mark = self.fence_held(&lane, tenant, session, epoch);
        lane.held.lock().remove(&hold);
        mark
    }

    fn fence_held(
        &self,
        lane: &Lane,
        tenant: Tenant,
        session: SessionId,
        epoch: Epoch,
    ) -> Result<Mark, FenceError> {
        let current = lane.marks.progress(session).fence;
        if epoch < current {
            return Err(FenceError::Stale { current });
        }
        if !lane.marks.has_room(session) {
            return Err(FenceError::Full);
        }
        let entry = Entry::Fenced(tenant, session, epoch);
        let mark = self.record(&[entry], || lane.marks.fence(session, epoch))?;
        mark.map_err(|error| match error {
            MarkError::Behind => FenceError::Busy,
            MarkError::Full => FenceError::Full,
        })
    }

    /// The progress of a session.
    #[must_use]
    pub fn progress(&self, tenant: Tenant, session: SessionId) -> Progress {
        let lanes = self.lanes.read();
        lanes
            .get(&tenant)
            .map_or_else(Progress::default, |lane| lane.marks.progress(session))
    }

    /// Forgets a session that will never send again, so that another has room.
    ///
    /// # Errors
    /// [`JournalError`] if the journal can't be written.
    pub fn retire(&self, tenant: Tenant, session: SessionId) -> Result<(), JournalError> {
        let lane = self.lanes.read().get(&tenant).map(Arc::clone);
        if let Some(lane) = lane {
            let entry = Entry::Retired(tenant, session);
            self.record(&[entry], || lane.marks.retire(session))?;
        }
        Ok(())
    }

    /// How many keys and sessions a tenant has now.
    #[must_use]
    pub fn usage(&self, tenant: Tenant) -> (usize, usize) {
        let lanes = self.lanes.read();
        lanes
            .get(&tenant)
            .map_or((0, 0), |lane| (lane.window.len(), lane.marks.len()))
    }

    pub(crate) fn lanes(&self) -> Vec<(Tenant, Arc<Lane>)> {
        let lanes = self.lanes.read();
        lanes
            .iter()
            .map(|(tenant, lane)| (*tenant, Arc::clone(lane)))
            .collect()
    }

    /// The tenant's lane, created at its first operation; `None` if the bound on tenants is
    /// reached.
    fn lane(&self, tenant: Tenant) -> Option<Arc<Lane>> {
        if let Some(lane) = self.lanes.read().get(&tenant) {
            return Some(Arc::clone(lane));
        }
        let mut lanes = self.lanes.write();
        let room = lanes.len() < self.limits.tenants || lanes.contains_key(&tenant);
        room.then(|| make(&mut lanes, tenant, &self.limits))
    }

    /// The same, past the bound too: what was recorded is never left behind.
    fn lane_or_beyond(&self, tenant: Tenant) -> Arc<Lane> {
        make(&mut self.lanes.write(), tenant, &self.limits)
    }
}

fn make(lanes: &mut HashMap<Tenant, Arc<Lane>>, tenant: Tenant, limits: &GateLimits) -> Arc<Lane> {
    let lane = lanes.entry(tenant).or_insert_with(|| {
        Arc::new(Lane {
            marks: SeqNoTracker::new(limits.sessions, limits.order),
            window: IdempotencyStore::sharded(limits.window, limits.shards),
            held: Mutex::default(),
        })
    });
    Arc::clone(lane)
}

/// All that a gate has recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// What is kept of each session.
    pub sessions: Vec<(Tenant, SessionId, Progress)>,
    /// The keys of each window, the oldest first.
    pub keys: Vec<(Tenant, StreamKey)>,
}

impl Snapshot {
    fn entries(&self) -> Vec<Entry> {
        let sessions = self.sessions.iter();
        let sessions =
            sessions.map(|&(tenant, session, kept)| Entry::Session(tenant, session, kept));
        let keys = self.keys.iter();
        let keys = keys
            .map(|&(tenant, key)| Entry::Applied(StreamOperation::keyed(key).with_tenant(tenant)));
        sessions.chain(keys).collect()
    }
}

/// Why no epoch was ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// An operation of the session is being applied; retry when it is done.
    #[error("an operation of the session is being applied; retry")]
    Busy,
    /// A later epoch has begun: another process is the producer now.
    #[error("epoch {} has begun; the caller is not the producer any more", current.0)]
    Stale {
        /// That epoch.
        current: Epoch,
    },
    /// No room.
    #[error("no room for another tenant or session")]
    Full,
    /// It can't be written down.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Lane {
    fn record(&self, operation: &StreamOperation) {
        if let Some((session, at)) = operation.place() {
            // Nobody else moves it. There was room when it was offered; if another took it since,
            // it is kept all the same, as a forgotten mark would let the operation through again.
            if self.marks.advance(session, at) == Err(MarkError::Full) {
                self.marks
                    .restore(session, Progress::default().advanced(at));
            }
        }
        if let Some(key) = operation.window_key() {
            let _ = self.window.check_and_record(key);
        }
    }
}
