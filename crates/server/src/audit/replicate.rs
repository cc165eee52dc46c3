//! [`ReplicatedSink`]: the trail in files, with copies in other sinks.
//!
//! The files are the source. For each copy, a task reads the files, sends batches until the copy
//! accepts them, and saves its position. So every entry arrives at least once, and a repeated one
//! has the same `event_id`. A slow or unavailable copy delays neither the engine, the trail nor
//! other copies. It can catch up as long as the files are kept.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use semel_core::{BoxFuture, Env};
use tokio::sync::{mpsc, oneshot};

use super::entry::Entry;
use super::file::FileSink;
use super::sink::{AuditHistory, CopyStatus, Sink};
use super::spool::{Batch, Position};

/// The maximum number of entries in a batch.
const BATCH_SIZE: usize = 500;

/// How long a batch or an erasure may take.
const LIMIT: Duration = Duration::from_secs(30);

/// The interval between checks for new entries, if no write wakes the task.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The first and the longest pause between retries. Each retry doubles the pause.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];

/// How long a process waits for its copies before it ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The trail in files, with copies.
pub struct ReplicatedSink {
    files: FileSink,
    env: Env,
    replicas: Vec<Replica>,
}

struct Replica {
    name: &'static str,
    erasures: mpsc::Sender<Erasure>,
    state: Arc<ReplicaState>,
}

#[derive(Default)]
struct ReplicaState {
    behind: AtomicU64,
    sent: AtomicU64,
    failing: AtomicBool,
}

struct Erasure(String, oneshot::Sender<io::Result<u64>>);

impl ReplicatedSink {
    /// Starts the replication from `files` to `copies`, on the current runtime.
    #[must_use]
    pub fn start(files: FileSink, copies: Vec<Arc<dyn Sink>>, env: &Env) -> Self {
        let start = |sink: Arc<dyn Sink>| {
            let (erasures, waiting) = mpsc::channel(16);
            let (name, state) = (sink.name(), Arc::new(ReplicaState::default()));
            let mut position_file = files.path().into_os_string();
            position_file.push(format!(".{name}.position"));
            let task = ReplicationTask {
                sink,
                files: files.clone(),
                position_file: PathBuf::from(position_file),
                env: env.clone(),
                erasures: waiting,
                state: Arc::clone(&state),
            };
            env.spawn.spawn(Box::pin(task.run()));
            Replica {
                name,
                erasures,
                state,
            }
        };
        let replicas = copies.into_iter().map(start).collect();
        Self {
            files,
            env: env.clone(),
            replicas,
        }
    }
}

impl Sink for ReplicatedSink {
    fn name(&self) -> &'static str {
        self.files.name()
    }

    fn write<'a>(&'a self, batch: &'a [Entry]) -> BoxFuture<'a, io::Result<()>> {
        self.files.write(batch)
    }

    /// Erases in the files first, so that no replica sends the name afterwards, and then in each
    /// copy. If a copy cannot be reached, this fails, and a retry is safe.
    fn erase<'a>(&'a self, actor: &'a str) -> BoxFuture<'a, io::Result<u64>> {
        Box::pin(async move {
            let mut entries = self.files.erase(actor).await?;
            let mut failed = Vec::new();
            for replica in &self.replicas {
                let (done, erased) = oneshot::channel();
                let erasure = Erasure(actor.to_owned(), done);
                let sent = replica.erasures.send(erasure).await.is_ok();
                match (sent, erased.await) {
                    (true, Ok(Ok(more))) => entries += more,
                    _ => failed.push(replica.name),
                }
            }
            if failed.is_empty() {
                return Ok(entries);
            }
            let message = format!("the erasure failed in {}", failed.join(" and "));
            Err(io::Error::other(message))
        })
    }

    fn history<'a>(&'a self, id: &'a str, most: usize) -> BoxFuture<'a, io::Result<AuditHistory>> {
        self.files.history(id, most)
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let clock = &self.env.clock;
            let end = clock.now().plus(FLUSH_TIMEOUT);
            let is_behind = |replica: &Replica| replica.state.behind.load(Ordering::Relaxed) > 0;
            self.files.wake_readers();
            while self.replicas.iter().any(is_behind) && clock.now() < end {
                clock.sleep(Duration::from_millis(50)).await;
            }
        })
    }

    fn copies(&self) -> Vec<CopyStatus> {
        let status = |replica: &Replica| CopyStatus {
            sink: replica.name,
            behind_bytes: replica.state.behind.load(Ordering::Relaxed),
            sent: replica.state.sent.load(Ordering::Relaxed),
            failing: replica.state.failing.load(Ordering::Relaxed),
        };
        self.replicas.iter().map(status).collect()
    }
}

/// The task that keeps one copy up to date.
struct ReplicationTask {
    sink: Arc<dyn Sink>,
    files: FileSink,
    position_file: PathBuf,
    env: Env,
    erasures: mpsc::Receiver<Erasure>,
    state: Arc<ReplicaState>,
}

impl ReplicationTask {
    /// Runs until the trail ends.
    async fn run(mut self) {
        let mut position = Position::load(&self.position_file);
        while let Some(next) = self.send_next(position).await {
            position = next;
        }
    }

    /// Sends the next batch, or waits for more entries. Returns the next position; `None` if the
    /// trail has ended.
    async fn send_next(&mut self, position: Option<Position>) -> Option<Option<Position>> {
        let written = self.files.next_write();
        let batch = match self.files.read_after(position.clone(), BATCH_SIZE).await {
            Ok(batch) => batch,
            Err(error) => {
                self.warn(&error, "the audit file can't be read");
                return self.wait(RETRY_PAUSES[1]).await.then_some(position);
            }
        };
        let not_sent = batch.bytes_not_sent();
        self.state.behind.store(not_sent, Ordering::Relaxed);
        if batch.entries.is_empty() {
            return tokio::select! {
                () = written => Some(position),
                continues = self.wait(POLL_INTERVAL) => continues.then_some(position),
            };
        }
        if batch.has_gap {
            self.warn(
                &io::Error::other("their retention has ended"),
                "audit entries were removed before they could be sent",
            );
        }
        if !self.send(&batch).await? {
            return Some(position);
        }
        let many = batch.entries.len() as u64;
        self.state.sent.fetch_add(many, Ordering::Relaxed);
        self.state.behind.store(batch.behind, Ordering::Relaxed);
        self.save_position(batch.position.as_ref());
        Some(batch.position)
    }

    fn warn(&self, error: &io::Error, what: &str) {
        tracing::warn!(sink = self.sink.name(), %error, "{what}");
    }

    fn save_position(&self, position: Option<&Position>) {
        let saved = position.map_or(Ok(()), |position| position.save(&self.position_file));
        if let Err(error) = saved {
            // The copy has the entries. After a restart some are sent again.
            self.warn(
                &error,
                "the position of a copy of the audit trail can't be saved",
            );
        }
    }

    /// Sends a batch until the copy accepts it. Returns `false` if an erasure came in between, so
    /// that the batch must be read again, and `None` if the trail has ended.
    async fn send(&mut self, batch: &Batch) -> Option<bool> {
        let mut pause = RETRY_PAUSES[0];
        loop {
            let written = self.with_timeout(self.sink.write(&batch.entries)).await;
            let was_failing = self.state.failing.swap(written.is_err(), Ordering::Relaxed);
            match written {
                Ok(()) => {
                    self.log_recovery(was_failing);
                    return Some(true);
                }
                Err(error) if !was_failing => {
                    self.warn(
                        &error,
                        "a copy of the audit trail is unavailable; entries wait in the file",
                    );
                }
                Err(_) => {}
            }
            tokio::select! {
                erasure = self.erasures.recv() => {
                    self.erase(erasure?).await;
                    return Some(false);
                }
                () = self.env.clock.sleep(pause) => {}
            }
            pause = (pause * 2).min(RETRY_PAUSES[1]);
        }
    }

    fn log_recovery(&self, was_failing: bool) {
        if was_failing {
            tracing::info!(
                sink = self.sink.name(),
                "a copy of the audit trail is available again"
            );
        }
    }

    /// Waits, or handles an erasure meanwhile. Returns `false` if the trail has ended.
    async fn wait(&mut self, span: Duration) -> bool {
        tokio::select! {
            erasure = self.erasures.recv() => match erasure {
                Some(erasure) => self.erase(erasure).await,
                None => return false,
            },
            () = self.env.clock.sleep(span) => {}
        }
        true
    }

    async fn erase(&self, Erasure(actor, done): Erasure) {
        let erased = self.with_timeout(self.sink.erase(&actor)).await;
        if let Err(error) = &erased {
            self.warn(
                error,
                "a name could not be erased from a copy of the audit trail",
            );
        }
        // The caller may have disconnected.
        let _ = done.send(erased);
    }

    async fn with_timeout<T>(&self, work: BoxFuture<'_, io::Result<T>>) -> io::Result<T> {
        let late = || Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
        self.env
            .clock
            .timeout(LIMIT, work)
            .await
            .unwrap_or_else(|_| late())
    }
}
