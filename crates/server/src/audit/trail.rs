//! [`Trail`]: from the engine's events and operators' changes to the sink, through a bounded queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel_core::Env;
use semel_core::event::{Event, Observer};
use serde_json::{Map, Value};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::counts::{Count, Counts};
use super::entry::{Entry, Noted, is_audited};
use super::recent::Recent;
use super::ship::Shipping;
use super::sink::{History, Sink};
use crate::api::time;

/// How much a [`Trail`] holds.
#[derive(Clone, Copy, Debug)]
pub struct TrailConfig {
    /// The most entries that wait for the sink. Past it, engine events are left out and counted. 65,536.
    pub queue: usize,
    /// The last entries that are kept in memory, for histories. 10,000.
    pub recent: usize,
    /// How far a live stream may fall behind before it is told of a gap. 1,024.
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

/// The audit trail of a process. Cheap to clone; give it to [`semel::Builder::observer`].
///
/// Never holds up the engine: an event finds room in the queue, or is counted as lost, and the next entry
/// that is written says how many were lost before it. An operator's change waits for its entry to be written.
#[derive(Clone)]
pub struct Trail {
    shared: Arc<Shared>,
}

struct Shared {
    queue: mpsc::Sender<Item>,
    inner: Arc<Inner>,
}

struct Inner {
    sink: Arc<dyn Sink>,
    env: Env,
    counts: Counts,
    recent: Recent,
    live: broadcast::Sender<Arc<Entry>>,
    // Lost since the last gap was told.
    untold: AtomicU64,
    process: u64,
    number: AtomicU64,
}

enum Item {
    Noted(Noted),
    Entry(Box<Entry>, oneshot::Sender<bool>),
    Erase(String, oneshot::Sender<std::io::Result<u64>>),
}

/// The audit trail could not be written to.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the audit trail can't be written to")]
pub struct NotWritten;

/// How many entries are written at once.
const LOT: usize = 256;

/// How often a lot is sent to the sink before it is given up.
const TRIES: u32 = 4;

impl Trail {
    /// Starts a trail on the runtime that this is called in.
    #[must_use]
    pub fn start(sink: Arc<dyn Sink>, config: TrailConfig, env: Env) -> Self {
        let (queue, items) = mpsc::channel(config.queue.max(1));
        let (live, _) = broadcast::channel(config.behind.max(1));
        // Wide enough that no two processes of a fleet share it: copies tell duplicates by it.
        let process = u64::try_from(env.entropy.next_u128() >> 64).unwrap_or(0);
        let inner = Arc::new(Inner {
            sink,
            env,
            counts: Counts::default(),
            recent: Recent::new(config.recent),
            live,
            untold: AtomicU64::new(0),
            process,
            number: AtomicU64::new(0),
        });
        let spawn = Arc::clone(&inner.env.spawn);
        spawn.spawn(Box::pin(write_all(Arc::clone(&inner), items)));
        let shared = Arc::new(Shared { queue, inner });
        Self { shared }
    }

    /// Writes an operator's entry, and waits until the sink has it.
    ///
    /// # Errors
    /// [`NotWritten`] where the sink didn't take it.
    pub async fn record(&self, draft: Draft) -> Result<(), NotWritten> {
        let entry = self.shared.inner.entry(draft);
        let (done, written) = oneshot::channel();
        let sent = self
            .shared
            .queue
            .send(Item::Entry(Box::new(entry), done))
            .await;
        sent.map_err(|_| NotWritten)?;
        written
            .await
            .unwrap_or(false)
            .then_some(())
            .ok_or(NotWritten)
    }

    /// Makes every entry of `actor` nameless: what waits, what is in memory, what the sink keeps. Entries that tell what an
    /// operator did keep the name. Records are not touched, so no effect can run again because of it. Answers in how many kept entries.
    ///
    /// # Errors
    /// Where the sink can't.
    pub async fn erase(&self, actor: &str) -> std::io::Result<u64> {
        let (done, erased) = oneshot::channel();
        // Through the queue: behind everything that was noted before.
        let sent = self
            .shared
            .queue
            .send(Item::Erase(actor.to_owned(), done))
            .await;
        sent.map_err(|_| std::io::Error::other(NotWritten))?;
        erased
            .await
            .map_err(|_| std::io::Error::other(NotWritten))?
    }

    /// What is known of the key with this hash: from the sink, and from memory what the sink doesn't tell.
    pub async fn history(&self, id: &str, most: usize) -> History {
        let inner = &self.shared.inner;
        let kept = inner.sink.history(id, most).await.unwrap_or_default();
        let mut entries = kept.entries;
        let known: std::collections::HashSet<_> =
            entries.iter().map(|entry| entry.event_id.clone()).collect();
        let fresh = inner
            .recent
            .about(id)
            .into_iter()
            .filter(|entry| !known.contains(&entry.event_id));
        entries.extend(fresh.map(|entry| (*entry).clone()));
        entries.sort_by(|a, b| a.time.cmp(&b.time));
        let over = entries.len().saturating_sub(most);
        entries.drain(..over);
        let complete = kept.complete && over == 0;
        History { entries, complete }
    }

    /// What comes from now on, and the last `recent` entries before it.
    pub(crate) fn follow(
        &self,
        recent: usize,
    ) -> (Vec<Arc<Entry>>, broadcast::Receiver<Arc<Entry>>) {
        let inner = &self.shared.inner;
        inner.recent.last_and(recent, || inner.live.subscribe())
    }

    /// What has happened since the start.
    #[must_use]
    pub fn counts(&self) -> Vec<Count> {
        self.shared.inner.counts.all()
    }

    /// Entries that were left out since the start: the queue was full, or the sink didn't take them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.inner.counts.lost()
    }

    /// Entries that wait for the sink.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.queue.max_capacity() - self.shared.queue.capacity()
    }

    /// Copies of the trail elsewhere, and how far behind they are.
    #[must_use]
    pub fn copies(&self) -> Vec<Shipping> {
        self.shared.inner.sink.copies()
    }

    /// The sink's name.
    #[must_use]
    pub fn sink_name(&self) -> &'static str {
        self.shared.inner.sink.name()
    }

    /// Waits until everything noted so far was given to the sink: before a process ends.
    pub async fn flush(&self) {
        // Nobody has this name, and whatever came before is written first.
        let _ = self.erase("").await;
        self.shared.inner.sink.flush().await;
    }
}

impl std::fmt::Debug for Trail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trail({}, {} waiting)", self.sink_name(), self.waiting())
    }
}

impl Observer for Trail {
    fn observe(&self, event: &Event<'_>) {
        let inner = &self.shared.inner;
        inner.counts.count(&event.step);
        if !is_audited(&event.step) {
            return;
        }
        let noted = Noted {
            at: inner.env.clock.wall(),
            namespace: event.namespace.clone(),
            identity: event.identity,
            actor: event.actor.map(Into::into),
            step: event.step,
        };
        if self.shared.queue.try_send(Item::Noted(noted)).is_err() {
            inner.lose(1);
        }
    }

    fn wants_times(&self) -> bool {
        false
    }
}

/// An entry to be written: what a caller knows of it.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// What happened.
    pub kind: &'static str,
    /// Where the key lives: environment, tenant, scope.
    pub place: Option<semel_core::Namespace>,
    /// The key's hash.
    pub id: Option<String>,
    /// Who acted.
    pub actor: Option<String>,
    /// What else there is to say.
    pub detail: Map<String, Value>,
}

impl Inner {
    fn next_id(&self) -> String {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}-{number}", self.process)
    }

    fn entry(&self, draft: Draft) -> Entry {
        let part =
            |of: fn(&semel_core::Namespace) -> &str| draft.place.as_ref().map_or("", of).to_owned();
        Entry {
            event_id: self.next_id(),
            time: time(self.env.clock.wall()),
            kind: draft.kind.to_owned(),
            code: None,
            environment: part(semel_core::Namespace::environment),
            tenant: part(semel_core::Namespace::tenant),
            scope: part(semel_core::Namespace::scope),
            id: draft.id,
            actor: draft.actor,
            detail: draft.detail,
            chain: None,
        }
    }

    fn lose(&self, many: u64) {
        self.counts.lose(many);
        self.untold.fetch_add(many, Ordering::Relaxed);
    }

    /// Says how many entries were lost, if any were.
    fn gap(&self) -> Option<Entry> {
        let lost = self.untold.swap(0, Ordering::Relaxed);
        (lost > 0).then(|| {
            let mut detail = Map::new();
            detail.insert("lost".to_owned(), lost.into());
            self.entry(Draft {
                kind: "audit.gap",
                detail,
                ..Draft::default()
            })
        })
    }

    async fn write(&self, lot: &[Entry]) -> bool {
        let mut pause = Duration::from_millis(50);
        for tried in 1..=TRIES {
            match self.sink.write(lot).await {
                Ok(()) => return true,
                Err(error) => {
                    tracing::warn!(sink = self.sink.name(), tried, %error, "audit entries not written");
                }
            }
            if tried < TRIES {
                self.env.clock.sleep(pause).await;
                pause *= 4;
            }
        }
        self.lose(lot.len() as u64);
        false
    }
}

/// Ends when the last [`Trail`] is dropped and everything is written.
async fn write_all(inner: Arc<Inner>, mut items: mpsc::Receiver<Item>) {
    let mut taken = Vec::with_capacity(LOT);
    while items.recv_many(&mut taken, LOT).await > 0 {
        let mut lot = Lot::default();
        lot.entries.extend(inner.gap());
        for item in taken.drain(..) {
            match item {
                Item::Noted(noted) => lot.entries.push(noted.entry(inner.next_id())),
                Item::Entry(entry, done) => {
                    lot.entries.push(*entry);
                    lot.waiting.push(done);
                }
                Item::Erase(actor, done) => {
                    std::mem::take(&mut lot).write(&inner).await;
                    inner.recent.erase(&actor);
                    erase(&inner, actor, done);
                }
            }
        }
        lot.write(&inner).await;
    }
}

/// On a task of its own: a copy elsewhere that gives no answer must not hold up what is written meanwhile.
fn erase(inner: &Arc<Inner>, actor: String, done: oneshot::Sender<std::io::Result<u64>>) {
    let sink = Arc::clone(&inner.sink);
    inner.env.spawn.spawn(Box::pin(async move {
        let erased = match actor.as_str() {
            "" => Ok(0),
            actor => sink.erase(actor).await,
        };
        // Whoever asked may have left; it is done all the same.
        let _ = done.send(erased);
    }));
}

#[derive(Default)]
struct Lot {
    entries: Vec<Entry>,
    waiting: Vec<oneshot::Sender<bool>>,
}

impl Lot {
    async fn write(self, inner: &Inner) {
        for entry in &self.entries {
            let entry = Arc::new(entry.clone());
            inner.recent.push(Arc::clone(&entry), || {
                // Nobody listening is fine.
                let _ = inner.live.send(entry);
            });
        }
        let written = self.entries.is_empty() || inner.write(&self.entries).await;
        for done in self.waiting {
            // Whoever asked may have left; the entry is written all the same.
            let _ = done.send(written);
        }
    }
}
