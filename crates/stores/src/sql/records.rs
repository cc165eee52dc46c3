//! Claim, renew, settle, resolve and restore, over the statements of a dialect.
//!
//! A claim of a new key, a renewal and a settlement are one statement each, fenced by its own
//! condition. Where that statement writes nothing, [`cas::drive`] reads the record and decides.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use semel_core::identity::Address;
use semel_core::store::StoreResult;
use semel_core::{
    Busy, Claim, Claimed, Clock, Fence, Grant, Identity, Record, Renewed, Resolution, Resolved,
    Restored, Settled, Settlement, Timestamp, protocol,
};

use super::row::RowRecord;
use crate::cas::{self, Cell, Change, Snapshot, Start, Swap};

/// The statements of a dialect, each sent again if a connection breaks.
pub(crate) trait Statements: Sync {
    /// How many decisions a claim makes before it counts as overtaken.
    const CLAIM_ATTEMPTS: u32;
    /// How long a claim waits after it lost for the second time; four times as long after each
    /// further one.
    const CLAIM_BACK_OFF: Duration;

    /// Reads a record, expired or not, and the server's time.
    fn look(
        &self,
        identity: &Identity,
    ) -> impl Future<Output = StoreResult<Option<RowRecord>>> + Send;

    /// Inserts the record of a first run, if there is none.
    fn insert(&self, ask: &Claim) -> impl Future<Output = StoreResult<InsertOutcome>> + Send;

    /// Replaces exactly `old` with a run that begins. → whether `old` was still there.
    fn take(
        &self,
        address: Address,
        old: &Record,
        new: &Record,
    ) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Replaces exactly `old`. → whether it was still there.
    fn swap(
        &self,
        address: Address,
        old: &Record,
        new: &Record,
    ) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Inserts a whole record, if there is none. → whether it was inserted.
    fn insert_record(
        &self,
        identity: &Identity,
        record: &Record,
    ) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Writes a settlement, if the lease is the owner's and the record is open.
    fn write_settlement(
        &self,
        lease: &Grant,
        settlement: &Settlement,
    ) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Writes a renewal, if the lease is the owner's and the record is running.
    fn write_renewal(
        &self,
        lease: &Grant,
        checkpoint: Option<&Bytes>,
    ) -> impl Future<Output = StoreResult<bool>> + Send;

    /// The server's time.
    fn now(&self) -> impl Future<Output = StoreResult<Timestamp>> + Send;

    /// The clock of this process, for pauses.
    fn clock(&self) -> &dyn Clock;
}

/// The outcome of an insertion.
pub(crate) enum InsertOutcome {
    /// The record is inserted, with this fence.
    Done(Fence),
    /// The key has another record, or another transaction has claimed it.
    Lost,
    /// Another transaction has inserted a record, and is still open.
    Busy,
}

/// Attempts of everything but a claim.
const ATTEMPTS: u32 = 16;

pub(crate) async fn claim<S: Statements>(statements: &S, ask: &Claim) -> StoreResult<Claimed> {
    let claimed = try_claim(statements, ask).await?;
    Ok(claimed.unwrap_or(protocol::overtaken()))
}

/// As [`claim`]. `None` if another claim is in progress: an open transaction has written the
/// record, or other claims came first every time.
pub(crate) async fn try_claim<S: Statements>(
    statements: &S,
    ask: &Claim,
) -> StoreResult<Option<Claimed>> {
    let write_sent = !ask.retry;
    if write_sent {
        match statements.insert(ask).await? {
            InsertOutcome::Done(fence) => {
                return Ok(Some(Claimed::Won(Grant::first_run(ask, fence))));
            }
            InsertOutcome::Busy => return Ok(Some(busy(ask))),
            InsertOutcome::Lost => {}
        }
    }
    let cell = ClaimCell { statements, ask };
    let decide = |found: Option<&Record>, now| protocol::claim(found, ask, now);
    let change = cas::drive(&cell, Start::Read { write_sent }, decide).await?;
    Ok(change.map(|change| match change.written {
        Some(InsertOutcome::Done(fence)) => Claimed::Won(Grant::first_run(ask, fence)),
        Some(InsertOutcome::Busy) => busy(ask),
        Some(InsertOutcome::Lost) | None => change.answer,
    }))
}

pub(crate) async fn settle<S: Statements>(
    statements: &S,
    lease: &Grant,
    settlement: &Settlement,
) -> StoreResult<Settled> {
    if statements.write_settlement(lease, settlement).await? {
        return Ok(Settled::Done);
    }
    let write = Write::Settlement(lease, settlement);
    let (fence, token) = (lease.fence, lease.token);
    let decide =
        |found: Option<&Record>, now| protocol::settle(found, fence, token, settlement, now);
    drive(statements, &lease.identity, write, true, decide).await
}

pub(crate) async fn renew<S: Statements>(
    statements: &S,
    lease: &Grant,
    checkpoint: Option<&Bytes>,
) -> StoreResult<Renewed> {
    if statements.write_renewal(lease, checkpoint).await? {
        return Ok(Renewed::Held);
    }
    let write = Write::Renewal(lease, checkpoint);
    let (fence, token) = (lease.fence, lease.token);
    let decide =
        |found: Option<&Record>, now| protocol::renew(found, fence, token, checkpoint, now);
    drive(statements, &lease.identity, write, true, decide).await
}

pub(crate) async fn resolve<S: Statements>(
    statements: &S,
    identity: &Identity,
    fence: Fence,
    resolution: &Resolution,
) -> StoreResult<Resolved> {
    let decide = |found: Option<&Record>, now| protocol::resolve(found, fence, resolution, now);
    drive(statements, identity, Write::Record, false, decide).await
}

/// Writes a record from another store (P43).
pub(crate) async fn restore<S: Statements>(
    statements: &S,
    identity: &Identity,
    record: &Record,
) -> StoreResult<Restored> {
    if record.is_expired(statements.now().await?) {
        return Ok(Restored::Kept);
    }
    let decide = |found: Option<&Record>, now| protocol::restore(found, record, now);
    drive(statements, identity, Write::Record, false, decide).await
}

/// Reads the record, if it has not expired.
pub(crate) async fn read<S: Statements>(
    statements: &S,
    identity: &Identity,
) -> StoreResult<Option<Record>> {
    let seen = statements.look(identity).await?;
    let live = seen.filter(|seen| !seen.record.is_expired(seen.now));
    Ok(live.map(|seen| seen.record))
}

async fn drive<S: Statements, A>(
    statements: &S,
    identity: &Identity,
    write: Write<'_>,
    write_sent: bool,
    decide: impl Fn(Option<&Record>, Timestamp) -> protocol::Decision<A>,
) -> StoreResult<A> {
    let cell = WriteCell {
        statements,
        identity,
        write,
    };
    let change = cas::drive(&cell, Start::Read { write_sent }, decide).await?;
    let Change { answer, .. } = change.ok_or_else(cas::overtaken)?;
    Ok(answer)
}

/// The compare-and-swap cell of a claim.
struct ClaimCell<'a, S> {
    statements: &'a S,
    ask: &'a Claim,
}

impl<S: Statements> Cell for ClaimCell<'_, S> {
    type Version = ();
    type Written = InsertOutcome;

    const ATTEMPTS: u32 = S::CLAIM_ATTEMPTS;

    async fn read(&self) -> StoreResult<Snapshot<()>> {
        let seen = self.statements.look(&self.ask.identity).await?;
        if let Some(seen) = &seen {
            protocol::check_keys(Some(&seen.record), self.ask, seen.now)?;
        }
        Ok(seen.map_or(Snapshot::absent(Timestamp::default()), RowRecord::into))
    }

    async fn swap(&self, seen: &Snapshot<()>, new: Record) -> StoreResult<Swap<Self>> {
        let Some(old) = seen.record() else {
            return Ok(match self.statements.insert(self.ask).await? {
                InsertOutcome::Lost => Swap::Lost(None),
                done => Swap::Done(done),
            });
        };
        let address = self.ask.identity.address();
        Ok(match self.statements.take(address, old, &new).await? {
            true => Swap::Done(InsertOutcome::Lost),
            false => Swap::Lost(None),
        })
    }

    /// Waits long enough for a claim of one statement to end, so that its record can be read.
    async fn back_off(&self, attempt: u32) {
        let pause = S::CLAIM_BACK_OFF * 4_u32.pow(attempt.min(4));
        if !pause.is_zero() {
            self.statements.clock().sleep(pause).await;
        }
    }
}

/// The compare-and-swap cell of all other changes.
struct WriteCell<'a, S> {
    statements: &'a S,
    identity: &'a Identity,
    write: Write<'a>,
}

/// The statement that writes the change.
enum Write<'a> {
    /// As a whole.
    Record,
    Settlement(&'a Grant, &'a Settlement),
    Renewal(&'a Grant, Option<&'a Bytes>),
}

impl<S: Statements> Cell for WriteCell<'_, S> {
    type Version = ();
    type Written = ();

    const ATTEMPTS: u32 = ATTEMPTS;

    async fn read(&self) -> StoreResult<Snapshot<()>> {
        if let Some(seen) = self.statements.look(self.identity).await? {
            return Ok(seen.into());
        }
        // Only a restored record is written if there is none, and only if it has not expired.
        let now = match self.write {
            Write::Record => self.statements.now().await?,
            Write::Settlement(..) | Write::Renewal(..) => Timestamp::default(),
        };
        Ok(Snapshot::absent(now))
    }

    async fn swap(&self, seen: &Snapshot<()>, new: Record) -> StoreResult<Swap<Self>> {
        let (statements, identity) = (self.statements, self.identity);
        let written = match (&self.write, seen.record()) {
            (Write::Record, Some(old)) => statements.swap(identity.address(), old, &new).await?,
            (Write::Record, None) => statements.insert_record(identity, &new).await?,
            (Write::Settlement(lease, settlement), _) => {
                statements.write_settlement(lease, settlement).await?
            }
            (Write::Renewal(lease, checkpoint), _) => {
                statements.write_renewal(lease, *checkpoint).await?
            }
        };
        Ok(match written {
            true => Swap::Done(()),
            false => Swap::Lost(None),
        })
    }
}

impl From<RowRecord> for Snapshot<()> {
    fn from(seen: RowRecord) -> Self {
        Self {
            found: Some((seen.record, ())),
            now: seen.now,
        }
    }
}

/// The answer to a claim of a key that an open transaction has claimed. That run is invisible to
/// others.
pub(crate) fn busy(ask: &Claim) -> Claimed {
    Claimed::Busy(Busy {
        since: Duration::ZERO,
        attempt: 1,
        retry_after: ask.terms.lease(),
    })
}

/// `impl Store` of a SQL store over its `inner`, which has [`Statements`] and a `hub` of waiters.
macro_rules! impl_store {
    ($store:ty, |$self:ident| { watch($identity:ident): $watch:expr, capabilities: $capabilities:expr $(,)? }) => {
        impl semel_core::store::Store for $store {
            fn claim<'a>(
                &'a self,
                claim: &'a semel_core::Claim,
            ) -> semel_core::BoxFuture<'a, StoreResult<semel_core::Claimed>> {
                Box::pin(crate::sql::records::claim(&*self.inner, claim))
            }

            fn renew<'a>(
                &'a self,
                lease: &'a semel_core::Grant,
                checkpoint: Option<&'a bytes::Bytes>,
            ) -> semel_core::BoxFuture<'a, StoreResult<semel_core::Renewed>> {
                Box::pin(crate::sql::records::renew(&*self.inner, lease, checkpoint))
            }

            fn settle<'a>(
                &'a self,
                lease: &'a semel_core::Grant,
                settlement: &'a semel_core::Settlement,
            ) -> semel_core::BoxFuture<'a, StoreResult<semel_core::Settled>> {
                Box::pin(async move {
                    let settled =
                        crate::sql::records::settle(&*self.inner, lease, settlement).await?;
                    self.inner.hub.wake(&lease.identity.address());
                    Ok(settled)
                })
            }

            fn resolve<'a>(
                &'a self,
                identity: &'a semel_core::Identity,
                fence: semel_core::Fence,
                resolution: &'a semel_core::Resolution,
            ) -> semel_core::BoxFuture<'a, StoreResult<semel_core::Resolved>> {
                Box::pin(async move {
                    let resolved =
                        crate::sql::records::resolve(&*self.inner, identity, fence, resolution)
                            .await?;
                    self.inner.hub.wake(&identity.address());
                    Ok(resolved)
                })
            }

            fn read<'a>(
                &'a self,
                identity: &'a semel_core::Identity,
            ) -> semel_core::BoxFuture<'a, StoreResult<Option<semel_core::Record>>> {
                Box::pin(crate::sql::records::read(&*self.inner, identity))
            }

            fn watch(&$self, $identity: &semel_core::Identity) -> semel_core::wake::Wakeup {
                $watch
            }

            fn capabilities(&$self) -> semel_core::store::Capabilities {
                $capabilities
            }
        }
    };
}
pub(crate) use impl_store;
