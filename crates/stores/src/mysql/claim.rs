//! Claiming: one `INSERT`, and a second step only for what lost.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::store::StoreResult;
use semel_core::{Busy, Claim, Claimed, Fence, Grant, Identity, Record, Restored, protocol};

use super::Inner;
use super::error::{DUPLICATE, LOCK_WAIT, store_error, unexpected, unseen};
use super::link::failed;
use super::row::{self, Bound, Seen, bytes, whole_millis};
use super::sql::prepared;

/// How often a step that was overtaken is tried again before giving up.
pub(super) const TRIES: usize = 16;

impl Inner {
    pub(super) async fn claim(&self, ask: &Claim) -> StoreResult<Claimed> {
        let (mut look_first, mut sent) = (ask.retry, false);
        for tried in 1..=TRIES {
            if !look_first {
                sent = true;
                match self.link.execute(|| insert(&self.sql.insert, ask)).await {
                    Ok(done) => return Ok(Claimed::Won(first_run(ask, done.last_insert_id()))),
                    Err(error) if error.is(DUPLICATE) => {}
                    // Somebody's transaction has such a row, and isn't through: that one runs it, unless it may be our own.
                    Err(error) if error.is(LOCK_WAIT) && !error.is_open() => return Ok(busy(ask)),
                    Err(error) => return Err(failed(error)),
                }
            }
            look_first = false;
            let seen = self.look(&ask.identity).await;
            let Some(seen) = seen.map_err(|error| unseen(sent, error))? else {
                continue; // Swept, or the other one rolled back: free again.
            };
            let decision = protocol::claim(Some(&seen.record), ask, seen.now);
            let Some(write) = decision.write else {
                return Ok(decision.answer);
            };
            // Whether it was this one that swapped, the token says that is read next; so the last step is a look.
            if tried < TRIES {
                sent = true;
                self.swap(&seen, &write).await?;
            }
            look_first = true;
        }
        Ok(protocol::overtaken())
    }

    /// The record, expired or not, and the server's time.
    pub(super) async fn look(&self, identity: &Identity) -> StoreResult<Option<Seen>> {
        let address = identity.address();
        let statement = || prepared(&self.sql.look).bind(address.to_vec());
        let Some(row) = self.link.row(statement).await? else {
            return Ok(None);
        };
        let found = row::parse(&row).map_err(store_error)?;
        row::check(found, identity).map(Some)
    }

    /// Puts `new` in the place of exactly what was seen, if it is still there. Answers whether that was told: a row
    /// that is matched is changed, too, since no two records in one place have the same state, token, fence and time.
    pub(super) async fn swap(&self, seen: &Seen, new: &Record) -> StoreResult<bool> {
        self.takes(new.answer.as_deref())?;
        let done = self.link.execute(|| swap(&self.sql.swap, seen, new)).await;
        Ok(done.map_err(failed)?.rows_affected() > 0)
    }
}

impl Inner {
    /// A record from another store (P43).
    pub(super) async fn restore(
        &self,
        identity: &Identity,
        record: &Record,
    ) -> StoreResult<Restored> {
        self.takes(record.answer.as_deref())?;
        if record.is_expired(self.now().await?) {
            return Ok(Restored::Kept);
        }
        let statement = || {
            row::bind(prepared(&self.sql.restore), record)
                .bind(identity.address().to_vec())
                .bind(identity.seal().to_vec())
        };
        for _ in 0..TRIES {
            match self.link.execute(statement).await {
                Ok(_) => return Ok(Restored::Written),
                Err(error) if error.is(DUPLICATE) || error.is(LOCK_WAIT) => {}
                Err(error) => return Err(failed(error)),
            }
            let Some(seen) = self.look(identity).await? else {
                continue;
            };
            let decision = protocol::restore(Some(&seen.record), record, seen.now);
            let Some(write) = decision.write else {
                return Ok(decision.answer);
            };
            // Whether it is there, the next look says.
            self.swap(&seen, &write).await?;
        }
        Err(unexpected("overtaken too often"))
    }
}

/// A first run, if there is no row.
pub(super) fn insert(statement: &Arc<str>, ask: &Claim) -> Bound {
    prepared(statement)
        .bind(whole_millis(ask.terms.retention()))
        .bind(whole_millis(ask.terms.lease()))
        .bind(ask.terms.max_attempts())
        .bind(ask.secret_id)
        .bind(ask.terms.crash() as i8)
        .bind(ask.identity.address().to_vec())
        .bind(ask.identity.seal().to_vec())
        .bind(bytes(ask.token))
        .bind(ask.fingerprint.as_bytes().to_vec())
        .bind(ask.namespace.environment().as_bytes().to_vec())
        .bind(ask.namespace.tenant().as_bytes().to_vec())
        .bind(ask.namespace.scope().as_bytes().to_vec())
        .bind(ask.hint.as_str().as_bytes().to_vec())
}

/// The lease of a first run.
pub(super) fn first_run(ask: &Claim, fence: u64) -> Grant {
    Grant {
        identity: ask.identity,
        fence: Fence(fence),
        token: ask.token,
        attempt: 1,
        checkpoint: Bytes::new(),
        lease: ask.terms.lease(),
        crash: ask.terms.crash(),
        memo: Bytes::new(),
    }
}

/// `new` in the place of exactly what was seen.
pub(super) fn swap(statement: &Arc<str>, seen: &Seen, new: &Record) -> Bound {
    let old = &seen.record;
    row::bind(prepared(statement), new)
        .bind(seen.address.to_vec())
        .bind(row::signed(old.fence.0))
        .bind(bytes(old.token))
        .bind(old.state as i8)
        .bind(row::signed(old.written_at.as_micros()))
}

/// What is known of a run that nobody but its own transaction can see.
pub(super) fn busy(ask: &Claim) -> Claimed {
    Claimed::Busy(Busy {
        since: Duration::ZERO,
        attempt: 1,
        retry_after: ask.terms.lease(),
    })
}
