//! [`Trail`]: the bounded queue from the engine and operators to the sink.

use std::sync::Arc;

use semel_core::Env;
use semel_core::event::{Event, Observer};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::counts::Count;
use super::entry::{Draft, Entry, PendingEvent, is_audited};
use super::sink::{AuditHistory, CopyStatus, Sink};
use super::writer::{QueueItem, TrailConfig, WriterState, run_writer};

/// The audit trail of a process. Clones share it. Pass it to [`semel::Builder::observer`].
///
/// It never blocks the engine. If the queue is full, events are lost, and the next entry has their
/// number. An operator's change waits until its entry is written.
#[derive(Clone)]
pub struct Trail {
    shared: Arc<Shared>,
}

struct Shared {
    queue: mpsc::Sender<QueueItem>,
    writer: Arc<WriterState>,
}

/// The audit trail could not be written.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the audit trail can't be written")]
pub struct AuditWriteError;

impl Trail {
    /// Starts a trail on the current runtime.
    #[must_use]
    pub fn start(sink: Arc<dyn Sink>, config: TrailConfig, env: Env) -> Self {
        let (queue, items) = mpsc::channel(config.queue.max(1));
        let writer = Arc::new(WriterState::new(sink, env, config));
        let spawn = Arc::clone(&writer.env.spawn);
        spawn.spawn(Box::pin(run_writer(Arc::clone(&writer), items)));
        let shared = Arc::new(Shared { queue, writer });
        Self { shared }
    }

    /// Writes an entry, and waits until the sink has it.
    ///
    /// # Errors
    /// [`AuditWriteError`] if the sink did not accept it.
    pub async fn record(&self, draft: Draft) -> Result<(), AuditWriteError> {
        let entry = self.shared.writer.create_entry(draft);
        let (done, written) = oneshot::channel();
        let sent = self
            .shared
            .queue
            .send(QueueItem::Entry(Box::new(entry), done))
            .await;
        sent.map_err(|_| AuditWriteError)?;
        written
            .await
            .unwrap_or(false)
            .then_some(())
            .ok_or(AuditWriteError)
    }

    /// Erases the name of `actor` from the entries in the queue, in memory and in the sink, and
    /// returns the number of changed entries. Entries of operators keep the name. Records do not
    /// change, so no effect runs again.
    ///
    /// # Errors
    /// If the sink fails.
    pub async fn erase(&self, actor: &str) -> std::io::Result<u64> {
        let (done, erased) = oneshot::channel();
        // The queue ensures that earlier entries are written first.
        let sent = self
            .shared
            .queue
            .send(QueueItem::Erase(actor.to_owned(), done))
            .await;
        sent.map_err(|_| std::io::Error::other(AuditWriteError))?;
        erased
            .await
            .map_err(|_| std::io::Error::other(AuditWriteError))?
    }

    /// The entries about the record with this id, from the sink and from memory.
    pub async fn history(&self, id: &str, most: usize) -> AuditHistory {
        let writer = &self.shared.writer;
        let kept = writer.sink.history(id, most).await.unwrap_or_default();
        let mut entries = kept.entries;
        let known: std::collections::HashSet<_> =
            entries.iter().map(|entry| entry.event_id.clone()).collect();
        let fresh = writer
            .recent
            .find(id)
            .into_iter()
            .filter(|entry| !known.contains(&entry.event_id));
        entries.extend(fresh.map(|entry| (*entry).clone()));
        entries.sort_by(|a, b| a.time.cmp(&b.time));
        let over = entries.len().saturating_sub(most);
        entries.drain(..over);
        let complete = kept.complete && over == 0;
        AuditHistory { entries, complete }
    }

    /// A subscription to new entries, and the last `recent` entries before it.
    pub(crate) fn follow(
        &self,
        recent: usize,
    ) -> (Vec<Arc<Entry>>, broadcast::Receiver<Arc<Entry>>) {
        let writer = &self.shared.writer;
        writer.recent.follow(recent, || writer.live.subscribe())
    }

    /// The event counts since the start.
    #[must_use]
    pub fn counts(&self) -> Vec<Count> {
        self.shared.writer.counts.all()
    }

    /// The number of lost entries since the start, because the queue was full or the sink failed.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.writer.counts.lost()
    }

    /// The number of entries that wait for the sink.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.queue.max_capacity() - self.shared.queue.capacity()
    }

    /// The state of the copies of the trail.
    #[must_use]
    pub fn copies(&self) -> Vec<CopyStatus> {
        self.shared.writer.sink.copies()
    }

    /// The name of the sink.
    #[must_use]
    pub fn sink_name(&self) -> &'static str {
        self.shared.writer.sink.name()
    }

    /// Writes all queued entries before the process ends.
    pub async fn flush(&self) {
        // An erasure of the empty name changes nothing, and all earlier entries are written first.
        let _ = self.erase("").await;
        self.shared.writer.sink.flush().await;
    }
}

impl std::fmt::Debug for Trail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trail({}, {} waiting)", self.sink_name(), self.waiting())
    }
}

impl Observer for Trail {
    fn observe(&self, event: &Event<'_>) {
        let writer = &self.shared.writer;
        writer.counts.count(&event.step);
        if !is_audited(&event.step) {
            return;
        }
        let pending = PendingEvent::new(event, writer.env.clock.wall());
        if self
            .shared
            .queue
            .try_send(QueueItem::Event(pending))
            .is_err()
        {
            writer.add_lost(1);
        }
    }

    fn wants_times(&self) -> bool {
        false
    }
}
