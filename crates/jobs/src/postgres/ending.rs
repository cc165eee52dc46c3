//! The records, as the end of one job is settled in them: with the end of its row, by one statement.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::store::{Store, StoreResult};
use semel_core::{
    BoxFuture, CrashPolicy, Grant, Identity, Namespace, Record, Settled, Settlement, State, Terms,
    Timestamp,
};
use semel_stores::postgres::SettledWith;

use super::Inner;
use super::end::{End, bind_end};
use super::row::Noted;
use crate::job::JobId;
use crate::work::LeaseToken;

/// The records, as the end of one job is settled in them.
pub(super) struct Ending {
    pub(super) queue: Arc<Inner>,
    pub(super) namespace: Namespace,
    pub(super) place: (JobId, LeaseToken),
    pub(super) end: Arc<End>,
    pub(super) record: Noted,
    /// The job is the worker's, and the record isn't the job's any more.
    pub(super) not_held: Mutex<bool>,
}

impl Ending {
    async fn settle(&self, lease: &Grant, settlement: &Settlement) -> StoreResult<Settled> {
        let Inner {
            store, with_end, ..
        } = &*self.queue;
        let bind = |query| bind_end(query, self.place, &self.end);
        let settled = store.settle_with(with_end, lease, settlement, bind).await?;
        match settled {
            SettledWith::Both => Ok(Settled::Done),
            SettledWith::NotHeld => {
                *self.not_held.lock() = true;
                Ok(Settled::Lost)
            }
            // Another worker's, or ended before and the reply was lost: the job says which.
            SettledWith::NotLocked => Ok(Settled::Lost),
        }
    }

    /// The record as the job knows it: enough to say whose it is. Whether it still is so, the settlement decides.
    fn record(&self) -> Record {
        let Noted {
            identity,
            fence,
            token,
            fingerprint,
            secret_id,
            retention,
            hint,
            ..
        } = self.record;
        Record {
            seal: identity.seal(),
            state: State::Running,
            crash: CrashPolicy::Takeover,
            fence,
            token,
            attempt: 1,
            max_attempts: u16::MAX,
            fingerprint,
            secret_id,
            lease: retention.min(Terms::MAX_LEASE),
            retention,
            created_at: Timestamp::default(),
            written_at: Timestamp::default(),
            namespace: self.namespace.clone(),
            hint,
            checkpoint: Bytes::new(),
            answer: None,
        }
    }
}

impl Store for Ending {
    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        Box::pin(self.settle(lease, settlement))
    }

    fn read<'a>(&'a self, _: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        Box::pin(std::future::ready(Ok(Some(self.record()))))
    }

    semel_core::forward_store!(|self| self.queue.store => claim, renew, resolve, watch, capabilities);
}
