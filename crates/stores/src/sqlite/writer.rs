//! The one writer of this process (group commit): it makes all waiting changes in one transaction,
//! so that callers share the cost of the disk write.

use std::sync::Arc;

use bytes::Bytes;
use semel_core::store::StoreResult;
use semel_core::{Clock, Resolution, StoreError};
use sqlx::{Connection as _, SqliteConnection};
use tokio::sync::{mpsc, oneshot};

use super::change::{Change, PendingReply, Reply};
use super::error::{commit_error, store_error, unexpected};
use super::file::FileId;
use super::lock_queue::{BusyTimeout, LockQueue};
use super::options::Options;
use super::schema;

/// The most changes in the queue. When it is full, callers wait (back-pressure).
const MOST_WAITING: usize = 4096;
/// The most changes in one transaction: other processes wait for its end.
const MOST_AT_ONCE: usize = 128;
/// The most bytes of answers and checkpoints in one, unless a single change has more.
const BYTES_AT_ONCE: usize = 8 * 1024 * 1024;

/// Hands changes to the writer.
#[derive(Clone)]
pub(super) struct Writer {
    changes: mpsc::Sender<Change>,
}

impl Writer {
    /// Starts the writer. It ends, and closes its connection, when the last handle is gone.
    pub(super) fn start(
        connection: SqliteConnection,
        place: FileId,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (changes, waiting) = mpsc::channel(MOST_WAITING);
        let task = WriterTask {
            connection: Some(connection),
            turn: LockQueue::open(place.path()),
            place,
            options,
            clock,
        };
        tokio::spawn(task.run(waiting));
        Self { changes }
    }

    /// Has a change made, and waits for it to be committed.
    pub(super) async fn make<T>(&self, change: impl FnOnce(Reply<T>) -> Change) -> StoreResult<T> {
        let (reply, answer) = oneshot::channel();
        let sent = self.changes.send(change(reply)).await;
        sent.map_err(|_| unexpected("the writer has ended"))?;
        answer
            .await
            .unwrap_or_else(|_| Err(unexpected("the writer has ended")))
    }
}

struct WriterTask {
    /// `None` after an error that may have left the connection in a bad state.
    connection: Option<SqliteConnection>,
    turn: LockQueue,
    place: FileId,
    options: Options,
    clock: Arc<dyn Clock>,
}

impl WriterTask {
    async fn run(mut self, mut waiting: mpsc::Receiver<Change>) {
        let mut batch = Vec::with_capacity(MOST_AT_ONCE);
        while waiting.recv_many(&mut batch, MOST_AT_ONCE).await > 0 {
            while !batch.is_empty() {
                batch.retain(|change| !change.is_abandoned());
                let rest = batch.split_off(fitting(&batch));
                self.write(&mut batch).await;
                batch = rest;
            }
        }
        if let Some(connection) = self.connection {
            // The last one that closes the file brings the log into it. An error leaves that to the
            // next who opens it.
            let _ = connection.close().await;
        }
    }

    /// Makes the changes in one transaction, and tells everybody what became of theirs.
    async fn write(&mut self, batch: &mut Vec<Change>) {
        if batch.is_empty() {
            return;
        }
        let mut connection = match self.ready().await {
            Ok(connection) => connection,
            Err(error) => return refuse(batch, &error),
        };
        let mut made = Vec::with_capacity(batch.len());
        let outcome = self.transact(&mut connection, batch, &mut made).await;
        // An error ends the transaction, and closing the connection rolls back the rest.
        self.connection = outcome.is_ok().then_some(connection);
        for told in made {
            match &outcome {
                Ok(()) => told.send(),
                Err(error) => told.fail(error.clone()),
            }
        }
        if let Err(error) = outcome {
            refuse(batch, &error);
        }
    }

    /// `BEGIN IMMEDIATE` takes the write lock before anything is read, waiting for other processes
    /// as long as the options say; time is looked at after that.
    async fn transact(
        &mut self,
        connection: &mut SqliteConnection,
        batch: &mut Vec<Change>,
        made: &mut Vec<PendingReply>,
    ) -> StoreResult<()> {
        let patience = BusyTimeout::new(&*self.clock, self.options.busy);
        let turn = self.turn.take(&*self.clock).await;
        let mut tx = loop {
            match connection.begin_with("BEGIN IMMEDIATE").await {
                Ok(tx) => break tx,
                Err(error) if patience.is_over(&error) => return Err(store_error(error)),
                Err(_) => patience.pause().await,
            }
        };
        drop(turn);
        // In the order in which they came; what is left after an error stays in the batch.
        batch.reverse();
        while let Some(change) = batch.pop() {
            let (told, outcome) = change.make(&mut tx, self.clock.wall()).await;
            made.push(told);
            if let Err(error) = outcome {
                // Closing the connection rolls back, even if the rollback failed.
                let _ = tx.rollback().await;
                return Err(store_error(error));
            }
        }
        tx.commit().await.map_err(commit_error)
    }

    async fn ready(&mut self) -> StoreResult<SqliteConnection> {
        self.place.check_unchanged()?;
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => schema::open(&self.options, &self.clock).await,
        }
    }
}

/// How many of the first ones fit into one transaction.
fn fitting(batch: &[Change]) -> usize {
    let mut bytes = 0;
    let fits = |change: &&Change| {
        let is_first = bytes == 0;
        bytes += size(change);
        is_first || bytes <= BYTES_AT_ONCE
    };
    batch.iter().take_while(fits).count()
}

/// How many bytes of answers and checkpoints it brings.
fn size(change: &Change) -> usize {
    let answer = match change {
        Change::Settle(_, settlement, _) => settlement.answer(),
        Change::Resolve(_, _, Resolution::Complete(answer) | Resolution::Fail(answer), _) => {
            Some(answer)
        }
        Change::Restore(_, record, _) => record.answer.as_ref(),
        _ => None,
    };
    let checkpoint = match change {
        Change::Renew(_, checkpoint, _) => checkpoint.as_ref(),
        Change::Restore(_, record, _) => Some(&record.checkpoint),
        _ => None,
    };
    let answer = answer.map_or(0, |answer| answer.head.len() + answer.body.held_bytes());
    answer + checkpoint.map_or(0, Bytes::len)
}

fn refuse(batch: &mut Vec<Change>, error: &StoreError) {
    for change in batch.drain(..) {
        change.refuse(error.clone());
    }
}
