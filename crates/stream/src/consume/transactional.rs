//! [`Consumer`]: a broker's messages, applied in PostgreSQL exactly once.
//!
//! The steps of a turn: fetch → operation → admit → apply → commit → settle. Messages are settled
//! after the commit, so that a process may crash anywhere: uncommitted messages are delivered again
//! and applied, and committed ones are recognised.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use semel_core::Clock;
use sqlx::{Executor as _, PgConnection, PgPool};

use super::{Broker, BrokerError, Disposition};
use crate::operation::{StreamOperation, Tenant};
use crate::postgres::{Inbox, InboxAdmission, InboxError};

/// The effect of each operation.
pub trait Effect: Send {
    /// Applies an operation in this transaction, and does nothing elsewhere: it may be rolled back
    /// and called again.
    ///
    /// An error rolls the transaction back, and has the message delivered again; who wants to know
    /// why says so here. So does the error of a statement that is swallowed: PostgreSQL has given
    /// the transaction up then. Where one may fail, let it say so itself (`ON CONFLICT DO
    /// NOTHING`), or give it a savepoint.
    fn apply(
        &mut self,
        transaction: &mut PgConnection,
        operation: &StreamOperation,
        payload: &[u8],
    ) -> impl Future<Output = Result<(), BrokerError>> + Send;
}

/// Settings of a consumer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConsumerOptions {
    /// The most messages in one transaction.
    pub batch: usize,
    /// How long a turn waits for messages.
    pub wait: Duration,
    /// How long a message waits that came too early, or whose effect failed.
    pub again: Duration,
    /// Whose messages these are.
    pub tenant: Tenant,
}

/// 500 messages in a transaction; 1 second for messages to come, 200 milliseconds before one comes
/// again.
impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            batch: 500,
            wait: Duration::from_secs(1),
            again: Duration::from_millis(200),
            tenant: Tenant::default(),
        }
    }
}

impl ConsumerOptions {
    /// Sets [`batch`](Self::batch).
    #[must_use]
    pub const fn with_batch(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    /// Sets [`wait`](Self::wait).
    #[must_use]
    pub const fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets [`again`](Self::again).
    #[must_use]
    pub const fn with_again(mut self, again: Duration) -> Self {
        self.again = again;
        self
    }

    /// Sets [`tenant`](Self::tenant).
    #[must_use]
    pub fn with_tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }
}

/// The outcome of the messages of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TurnReport {
    /// Applied, and committed.
    pub applied: usize,
    /// Known, and skipped.
    pub duplicates: usize,
    /// Came too early; will come again.
    pub gaps: usize,
    /// Operations that were passed over, for good.
    pub passed_over: u64,
    /// Of a life of their producer that is over; refused.
    pub stale: usize,
    /// Could not be told from their duplicates; refused.
    pub malformed: usize,
    /// Their effect failed; will come again.
    pub failed: usize,
}

/// Why a turn failed. All its messages will be delivered again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// The broker.
    #[error("the broker could not be reached, or refused")]
    Broker(#[source] BrokerError),
    /// The database.
    #[error("the database could not be reached, or refused")]
    Inbox(#[from] InboxError),
}

impl From<sqlx::Error> for TurnError {
    fn from(error: sqlx::Error) -> Self {
        Self::Inbox(error.into())
    }
}

/// A broker, a database, and what to do.
#[derive(Debug)]
pub struct Consumer<B, E> {
    broker: B,
    pool: PgPool,
    inbox: Inbox,
    effect: E,
    options: ConsumerOptions,
}

/// Messages of a turn with what they are.
type Work<M> = Vec<(M, StreamOperation)>;

/// What becomes of each, beside it.
type Settled<M> = Vec<(M, Disposition)>;

impl<B: Broker, E: Effect> Consumer<B, E> {
    /// A consumer of `broker`. The tables must be there: see [`migrate`](crate::postgres::migrate).
    #[must_use]
    pub fn new(broker: B, pool: PgPool, inbox: Inbox, effect: E, options: ConsumerOptions) -> Self {
        Self {
            broker,
            pool,
            inbox,
            effect,
            options,
        }
    }

    /// Turns, until `stop` is done. What goes wrong is told, and after a pause tried again.
    pub async fn run(
        &mut self,
        clock: Arc<dyn Clock>,
        stop: impl Future<Output = ()> + Send,
        mut told: impl FnMut(Result<TurnReport, TurnError>) + Send,
    ) {
        let mut stop = std::pin::pin!(stop);
        loop {
            // A turn is never cut: between its end and the next one is time to stop.
            let stopped = tokio::select! {
                biased;
                () = &mut stop => true,
                () = std::future::ready(()) => false,
            };
            if stopped {
                return;
            }
            let turn = self.turn().await;
            let failed = turn.is_err();
            told(turn);
            if failed {
                clock.sleep(self.options.again).await;
            }
        }
    }

    /// One batch of messages: fetched, applied in one transaction, settled.
    ///
    /// # Errors
    /// [`TurnError`]; nothing was applied, or the outcome is unknown, and the messages are
    /// delivered again.
    pub async fn turn(&mut self) -> Result<TurnReport, TurnError> {
        let fetched = self
            .broker
            .fetch(self.options.batch, self.options.wait)
            .await;
        let fetched = fetched.map_err(TurnError::Broker)?;
        let mut report = TurnReport::default();
        let mut settled = Settled::new();
        let mut work = Work::new();
        for message in fetched {
            match self.broker.headers(&message).operation() {
                Ok(operation) => work.push((message, operation.with_tenant(self.options.tenant))),
                Err(_) => {
                    report.malformed += 1;
                    settled.push((message, Disposition::Refused));
                }
            }
        }
        let outcome = self.apply(&mut work, &mut settled, &mut report).await;
        // What is left of the work was not committed.
        let again = Disposition::Again(self.options.again);
        settled.extend(work.into_iter().map(|(message, _)| (message, again)));
        for (message, how) in settled {
            let told = self.broker.settle(message, how).await;
            told.map_err(TurnError::Broker)?;
        }
        outcome.map(|()| report)
    }

    /// All in one transaction; if an effect fails, each in one of its own, so that it holds up no
    /// other.
    async fn apply(
        &mut self,
        work: &mut Work<B::Message>,
        settled: &mut Settled<B::Message>,
        report: &mut TurnReport,
    ) -> Result<(), TurnError> {
        if work.is_empty() {
            return Ok(());
        }
        if work.len() > 1
            && let Some(admissions) = self.transaction(work).await?
        {
            self.note(std::mem::take(work), &admissions, settled, report);
            return Ok(());
        }
        while !work.is_empty() {
            let mut one = vec![work.remove(0)];
            match self.transaction(&one).await {
                Ok(Some(admissions)) => self.note(one, &admissions, settled, report),
                Ok(None) => {
                    report.failed += 1;
                    let again = Disposition::Again(self.options.again);
                    settled.extend(one.into_iter().map(|(message, _)| (message, again)));
                }
                Err(error) => {
                    work.append(&mut one);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// → what was admitted, after the commit; none if an effect failed and all was rolled back.
    async fn transaction(
        &mut self,
        work: &Work<B::Message>,
    ) -> Result<Option<Vec<InboxAdmission>>, TurnError> {
        let operations: Vec<StreamOperation> =
            work.iter().map(|(_, operation)| *operation).collect();
        let mut transaction = self.pool.begin().await?;
        let admissions = self.inbox.admit(&mut transaction, &operations).await?;
        for ((message, operation), admission) in work.iter().zip(&admissions) {
            if !admission.applies() {
                continue;
            }
            let payload = self.broker.payload(message);
            let applied = self
                .effect
                .apply(&mut transaction, operation, payload)
                .await;
            if applied.is_err() {
                transaction.rollback().await?;
                return Ok(None);
            }
        }
        let applies = admissions.iter().any(|admission| admission.applies());
        if applies && !stands(&mut transaction).await {
            transaction.rollback().await?;
            return Ok(None);
        }
        transaction.commit().await?;
        Ok(Some(admissions))
    }

    fn note(
        &self,
        work: Work<B::Message>,
        admissions: &[InboxAdmission],
        settled: &mut Settled<B::Message>,
        report: &mut TurnReport,
    ) {
        for ((message, _), admission) in work.into_iter().zip(admissions) {
            let how = match admission {
                InboxAdmission::Apply => {
                    report.applied += 1;
                    Disposition::Done
                }
                InboxAdmission::Skips { missing, .. } => {
                    report.applied += 1;
                    report.passed_over = report.passed_over.saturating_add(*missing);
                    Disposition::Done
                }
                InboxAdmission::Duplicate => {
                    report.duplicates += 1;
                    Disposition::Done
                }
                InboxAdmission::Gap { .. } => {
                    report.gaps += 1;
                    Disposition::Again(self.options.again)
                }
                InboxAdmission::Stale { .. } => {
                    report.stale += 1;
                    Disposition::Refused
                }
            };
            settled.push((message, how));
        }
    }
}

/// Whether the transaction can still be committed. Where an effect swallowed the error of a
/// statement, PostgreSQL answers `COMMIT` without an error, and rolls back: the messages would be
/// acknowledged, and nothing applied.
///
/// A savepoint fails there, and where an effect ended the transaction itself.
async fn stands(transaction: &mut PgConnection) -> bool {
    transaction.execute("SAVEPOINT semel").await.is_ok()
}
