//! The writer of the audit trail: takes entries from the queue and writes them to the sink in
//! batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel_core::Env;
use serde_json::Map;
use tokio::sync::{broadcast, mpsc, oneshot};

use super::counts::Counts;
use super::entry::{Draft, Entry, PendingEvent};
use super::recent::RecentEntries;
use super::sink::Sink;
use crate::web::format_time;

/// The maximum number of entries in a batch.
const BATCH_SIZE: usize = 256;

/// The number of attempts to write a batch.
const MAX_ATTEMPTS: u32 = 4;

/// The limits of a [`Trail`](super::Trail).
#[derive(Clone, Copy, Debug)]
pub struct TrailConfig {
    /// The maximum number of entries that wait for the sink. Further events are lost and counted.
    /// Default: 65,536.
    pub queue: usize,
    /// The number of entries in memory, for histories. Default: 10,000.
    pub recent: usize,
    /// How many entries a live stream may fall behind before it gets a gap. Default: 1,024.
    pub behind: usize,
}

impl Default for TrailConfig {
    fn default() -> Self {
        Self {
            queue: 65_536,
            recent: 10_000,
            behind: 1_024,
        }
    }
}

/// The state that the trail and its writer share.
pub(super) struct WriterState {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) env: Env,
    pub(super) counts: Counts,
    pub(super) recent: RecentEntries,
    pub(super) live: broadcast::Sender<Arc<Entry>>,
    // Entries lost since the last gap entry.
    unreported: AtomicU64,
    process: u64,
    number: AtomicU64,
}

/// An item of the queue.
pub(super) enum QueueItem {
    Event(PendingEvent),
    Entry(Box<Entry>, oneshot::Sender<bool>),
    Erase(String, oneshot::Sender<std::io::Result<u64>>),
}

impl WriterState {
    pub(super) fn new(sink: Arc<dyn Sink>, env: Env, config: TrailConfig) -> Self {
        let (live, _) = broadcast::channel(config.behind.max(1));
        // Wide enough to be unique among all processes, because copies detect duplicates by it.
        let process = u64::try_from(env.entropy.next_u128() >> 64).unwrap_or(0);
        Self {
            sink,
            env,
            counts: Counts::default(),
            recent: RecentEntries::new(config.recent),
            live,
            unreported: AtomicU64::new(0),
            process,
            number: AtomicU64::new(0),
        }
    }

    fn next_id(&self) -> String {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}-{number}", self.process)
    }

    pub(super) fn create_entry(&self, draft: Draft) -> Entry {
        let part = |of: fn(&semel_core::Namespace) -> &str| {
            draft.namespace.as_ref().map_or("", of).to_owned()
        };
        Entry {
            event_id: self.next_id(),
            time: format_time(self.env.clock.wall()),
            kind: draft.kind.to_owned(),
            code: None,
            environment: part(semel_core::Namespace::environment),
            tenant: part(semel_core::Namespace::tenant),
            scope: part(semel_core::Namespace::scope),
            operation: None,
            key_prefix: None,
            id: draft.id,
            actor: draft.actor,
            detail: draft.detail,
            chain: None,
        }
    }

    /// Counts lost entries.
    pub(super) fn add_lost(&self, many: u64) {
        self.counts.add_lost(many);
        self.unreported.fetch_add(many, Ordering::Relaxed);
    }

    /// An entry with the number of lost entries, if there are any.
    fn take_gap(&self) -> Option<Entry> {
        let lost = self.unreported.swap(0, Ordering::Relaxed);
        (lost > 0).then(|| {
            let mut detail = Map::new();
            detail.insert("lost".to_owned(), lost.into());
            self.create_entry(Draft {
                kind: "audit.gap",
                detail,
                ..Draft::default()
            })
        })
    }

    async fn write(&self, batch: &[Entry]) -> bool {
        let mut pause = Duration::from_millis(50);
        for attempt in 1..=MAX_ATTEMPTS {
            match self.sink.write(batch).await {
                Ok(()) => return true,
                Err(error) => {
                    tracing::warn!(
                        sink = self.sink.name(),
                        attempt,
                        %error,
                        "audit entries could not be written"
                    );
                }
            }
            if attempt < MAX_ATTEMPTS {
                self.env.clock.sleep(pause).await;
                pause *= 4;
            }
        }
        self.add_lost(batch.len() as u64);
        false
    }
}

/// Writes queued items until the last [`Trail`](super::trail::Trail) is dropped and the queue is
/// empty.
pub(super) async fn run_writer(state: Arc<WriterState>, mut items: mpsc::Receiver<QueueItem>) {
    let mut items_taken = Vec::with_capacity(BATCH_SIZE);
    while items.recv_many(&mut items_taken, BATCH_SIZE).await > 0 {
        let mut batch = WriteBatch::default();
        batch.entries.extend(state.take_gap());
        for item in items_taken.drain(..) {
            match item {
                QueueItem::Event(event) => batch.entries.push(event.to_entry(state.next_id())),
                QueueItem::Entry(entry, done) => {
                    batch.entries.push(*entry);
                    batch.waiting.push(done);
                }
                QueueItem::Erase(actor, done) => {
                    std::mem::take(&mut batch).write(&state).await;
                    state.recent.erase(&actor);
                    spawn_erasure(&state, actor, done);
                }
            }
        }
        batch.write(&state).await;
    }
}

/// Erases on a separate task, because an unavailable copy must not delay the writer.
fn spawn_erasure(
    state: &Arc<WriterState>,
    actor: String,
    done: oneshot::Sender<std::io::Result<u64>>,
) {
    let sink = Arc::clone(&state.sink);
    state.env.spawn.spawn(Box::pin(async move {
        let erased = match actor.as_str() {
            "" => Ok(0),
            actor => sink.erase(actor).await,
        };
        // The caller may have disconnected.
        let _ = done.send(erased);
    }));
}

#[derive(Default)]
struct WriteBatch {
    entries: Vec<Entry>,
    waiting: Vec<oneshot::Sender<bool>>,
}

impl WriteBatch {
    async fn write(self, state: &WriterState) {
        for entry in &self.entries {
            let entry = Arc::new(entry.clone());
            state.recent.push(Arc::clone(&entry), || {
                // There may be no listener.
                let _ = state.live.send(entry);
            });
        }
        let written = self.entries.is_empty() || state.write(&self.entries).await;
        for done in self.waiting {
            // The caller may have disconnected.
            let _ = done.send(written);
        }
    }
}
