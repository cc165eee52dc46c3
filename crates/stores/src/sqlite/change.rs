//! One change inside the writer's transaction: reads the record, lets the protocol decide, writes
//! the result. The write lock is held from before the read, so this is one atomic step.

use bytes::Bytes;
use semel_core::protocol::{self, Decision};
use semel_core::store::StoreResult;
use semel_core::{Claim, Claimed, Fence, Grant, Identity, Record, StoreError, Timestamp};
use semel_core::{Renewed, Resolution, Resolved, Restored, Settled, Settlement};
use sqlx::{Error, Row as _, SqliteConnection};
use tokio::sync::oneshot;

use super::error::unexpected;

/// The channel to the caller.
pub(super) type Reply<T> = oneshot::Sender<StoreResult<T>>;

/// A change that a caller requests.
pub(super) enum Change {
    Claim(Box<Claim>, Reply<Claimed>),
    Renew(Grant, Option<Bytes>, Reply<Renewed>),
    Settle(Grant, Settlement, Reply<Settled>),
    Resolve(Identity, Fence, Resolution, Reply<Resolved>),
    Delete(Identity, Reply<bool>),
    Restore(Identity, Box<Record>, Reply<Restored>),
    /// Removes at most this many expired records.
    Sweep(usize, Reply<usize>),
}

/// A reply that is sent when its change is committed, or replaced by an error.
pub(super) struct PendingReply(Box<dyn FnOnce(Option<StoreError>) + Send>);

impl PendingReply {
    fn new<T: Send + 'static>(reply: Reply<T>, answer: StoreResult<T>) -> Self {
        Self(Box::new(move |failed| {
            // The caller may be gone.
            let _ = reply.send(failed.map_or(answer, Err));
        }))
    }

    /// Sends the answer: the change is committed.
    pub(super) fn send(self) {
        (self.0)(None);
    }

    /// Sends an error: the change is not committed, or its outcome is unknown.
    pub(super) fn fail(self, error: StoreError) {
        (self.0)(Some(error));
    }
}

impl Change {
    /// Whether the caller is gone before anything was done.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Claim(_, reply) => reply.is_closed(),
            Self::Renew(_, _, reply) => reply.is_closed(),
            Self::Settle(_, _, reply) => reply.is_closed(),
            Self::Resolve(_, _, _, reply) => reply.is_closed(),
            Self::Delete(_, reply) => reply.is_closed(),
            Self::Restore(_, _, reply) => reply.is_closed(),
            Self::Sweep(_, reply) => reply.is_closed(),
        }
    }

    /// Replies with an error, without making the change.
    pub(super) fn refuse(self, error: StoreError) {
        self.undone().fail(error);
    }

    fn undone(self) -> PendingReply {
        let none = || unexpected("not done");
        match self {
            Self::Claim(_, reply) => PendingReply::new(reply, Err(none())),
            Self::Renew(_, _, reply) => PendingReply::new(reply, Err(none())),
            Self::Settle(_, _, reply) => PendingReply::new(reply, Err(none())),
            Self::Resolve(_, _, _, reply) => PendingReply::new(reply, Err(none())),
            Self::Delete(_, reply) => PendingReply::new(reply, Err(none())),
            Self::Restore(_, _, reply) => PendingReply::new(reply, Err(none())),
            Self::Sweep(_, reply) => PendingReply::new(reply, Err(none())),
        }
    }

    /// Makes the change in an open transaction. Returns the reply for after the commit, and
    /// SQLite's error if it failed.
    pub(super) async fn make(
        self,
        tx: &mut SqliteConnection,
        now: Timestamp,
    ) -> (PendingReply, Result<(), Error>) {
        match self {
            Self::Claim(ask, reply) => reply_with(reply, claim(tx, &ask, now).await),
            Self::Renew(lease, checkpoint, reply) => {
                let decide = |found: Option<&Record>| {
                    protocol::renew(found, lease.fence, lease.token, checkpoint.as_ref(), now)
                };
                reply_with(reply, apply(tx, &lease.identity, decide).await)
            }
            Self::Settle(lease, settlement, reply) => {
                let decide = |found: Option<&Record>| {
                    protocol::settle(found, lease.fence, lease.token, &settlement, now)
                };
                reply_with(reply, apply(tx, &lease.identity, decide).await)
            }
            Self::Resolve(identity, fence, resolution, reply) => {
                let decide =
                    |found: Option<&Record>| protocol::resolve(found, fence, &resolution, now);
                reply_with(reply, apply(tx, &identity, decide).await)
            }
            Self::Restore(identity, record, reply) => {
                let decide = |found: Option<&Record>| protocol::restore(found, &record, now);
                reply_with(reply, apply(tx, &identity, decide).await)
            }
            Self::Delete(identity, reply) => reply_with(reply, delete(tx, &identity, now).await),
            Self::Sweep(most, reply) => reply_with(reply, sweep(tx, most, now).await.map(Ok)),
        }
    }
}

/// SQLite's error, or the answer, which may itself be an error of the record.
type ChangeResult<T> = Result<StoreResult<T>, Error>;

fn reply_with<T: Send + 'static>(
    reply: Reply<T>,
    answered: ChangeResult<T>,
) -> (PendingReply, Result<(), Error>) {
    match answered {
        Ok(answer) => (PendingReply::new(reply, answer), Ok(())),
        Err(error) => (
            PendingReply::new(reply, Err(unexpected("not done"))),
            Err(error),
        ),
    }
}

async fn apply<A>(
    tx: &mut SqliteConnection,
    identity: &Identity,
    decide: impl FnOnce(Option<&Record>) -> Decision<A>,
) -> ChangeResult<A> {
    let (found, _) = match find(tx, identity).await? {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    let decision = decide(found.as_ref());
    if let Some(record) = &decision.write {
        put(tx, identity, record).await?;
    }
    Ok(Ok(decision.answer))
}

async fn claim(tx: &mut SqliteConnection, ask: &Claim, now: Timestamp) -> ChangeResult<Claimed> {
    let (found, floor) = match find(tx, &ask.identity).await? {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    if let Err(error) = protocol::check_keys(found.as_ref(), ask, now) {
        return Ok(Err(error.into()));
    }
    let mut decision = protocol::claim(found.as_ref(), ask, now);
    if let (Some(record), Claimed::Won(grant)) = (&mut decision.write, &mut decision.answer) {
        // Above the fences of records that were removed, should the clock have been set back since
        // (P22).
        grant.fence = record.fence.max(Fence(floor.saturating_add(1)));
        record.fence = grant.fence;
    }
    if let Some(record) = &decision.write {
        put(tx, &ask.identity, record).await?;
    }
    Ok(Ok(decision.answer))
}

/// The record, expired or not, and the floor of the fences.
async fn find(
    tx: &mut SqliteConnection,
    identity: &Identity,
) -> ChangeResult<(Option<Record>, u64)> {
    let text = "SELECT record, (SELECT floor FROM fences) FROM (SELECT 1) \
                LEFT JOIN records ON address = ?";
    let row = sqlx::query(text).bind(identity.address().to_vec());
    let row = row.fetch_one(tx).await?;
    let packed: Option<Vec<u8>> = row.try_get(0)?;
    let floor: i64 = row.try_get(1)?;
    let record = packed.map(|packed| Record::decode_for(identity, &packed.into()));
    Ok(match record.transpose() {
        Ok(record) => Ok((record, floor.unsigned_abs())),
        Err(error) => Err(error.into()),
    })
}

async fn put(tx: &mut SqliteConnection, identity: &Identity, record: &Record) -> Result<(), Error> {
    let text = "INSERT INTO records (address, fence, expires_us, record) VALUES (?, ?, ?, ?) \
                ON CONFLICT (address) DO UPDATE SET fence = excluded.fence, expires_us = excluded.expires_us, \
                record = excluded.record";
    sqlx::query(text)
        .bind(identity.address().to_vec())
        .bind(signed(record.fence.0))
        .bind(signed(record.expires_at().as_micros()))
        .bind(record.encode())
        .execute(tx)
        .await?;
    Ok(())
}

/// Deletes a record. Returns whether there was a live one.
async fn delete(
    tx: &mut SqliteConnection,
    identity: &Identity,
    now: Timestamp,
) -> ChangeResult<bool> {
    // Only a record of this identity, by its seal, even if it can't be read.
    let seal = semel_core::record::offset::SEAL + 1;
    let text = format!(
        "DELETE FROM records WHERE address = ? AND substr(record, {seal}, 16) = ? RETURNING fence, expires_us"
    );
    let gone = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(identity.address().to_vec())
        .bind(identity.seal().to_vec())
        .fetch_optional(&mut *tx)
        .await?;
    let Some(gone) = gone else {
        return Ok(Ok(false));
    };
    raise(tx, gone.try_get(0)?).await?;
    Ok(Ok(gone.try_get::<i64, _>(1)? > signed(now.as_micros())))
}

async fn sweep(tx: &mut SqliteConnection, most: usize, now: Timestamp) -> Result<usize, Error> {
    let text = "DELETE FROM records WHERE rowid IN (SELECT rowid FROM records WHERE expires_us <= ? \
                ORDER BY expires_us LIMIT ?) RETURNING fence";
    let gone: Vec<i64> = sqlx::query_scalar(text)
        .bind(signed(now.as_micros()))
        .bind(i64::try_from(most).unwrap_or(i64::MAX))
        .fetch_all(&mut *tx)
        .await?;
    if let Some(highest) = gone.iter().max() {
        raise(tx, *highest).await?;
    }
    Ok(gone.len())
}

/// Raises the floor of fences, so that no fence up to this one is given again.
async fn raise(tx: &mut SqliteConnection, floor: i64) -> Result<(), Error> {
    let text = "UPDATE fences SET floor = max(floor, ?)";
    sqlx::query(text).bind(floor).execute(tx).await?;
    Ok(())
}

/// Fences and times stay far below the limit.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
