//! [`EndStore`]: a store for one settlement, which also ends the job's row in the same statement.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::store::{Store, StoreResult};
use semel_core::{
    Answer, AnswerBody, BoxFuture, ClaimTerms, CrashPolicy, Grant, Identity, Namespace, Record,
    Settled, Settlement, State, Timestamp,
};
use semel_stores::postgres::{Bound, JointSettlement};

use super::row::KeyRecord;
use super::{Inner, uuid};
use crate::job::{JobId, JobState};
use crate::work::LeaseToken;

/// How a job ends.
pub(super) struct JobEnd {
    pub(super) state: JobState,
    pub(super) answer: Answer,
    pub(super) error: Option<String>,
}

/// A store for one settlement, which also ends the job's row.
pub(super) struct EndStore {
    pub(super) queue: Arc<Inner>,
    pub(super) namespace: Namespace,
    pub(super) place: (JobId, LeaseToken),
    pub(super) end: Arc<JobEnd>,
    pub(super) record: KeyRecord,
    /// Whether the worker has the job, but the record belongs to another one.
    pub(super) not_held: Mutex<bool>,
}

impl EndStore {
    async fn settle(&self, lease: &Grant, settlement: &Settlement) -> StoreResult<Settled> {
        let Inner {
            store, with_end, ..
        } = &*self.queue;
        let bind = |query| bind_end(query, self.place, &self.end);
        let settled = store.settle_with(with_end, lease, settlement, bind).await?;
        match settled {
            JointSettlement::Both => Ok(Settled::Done),
            JointSettlement::NotHeld => {
                *self.not_held.lock() = true;
                Ok(Settled::Lost)
            }
            // Another worker has the job, or it ended before and the reply was lost: the job's row
            // tells.
            JointSettlement::NotLocked => Ok(Settled::Lost),
        }
    }

    /// The record as the job knows it, with enough to name its owner. The settlement decides
    /// whether that is still true.
    fn record(&self) -> Record {
        let KeyRecord {
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
            lease: retention.min(ClaimTerms::MAX_LEASE),
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

impl Store for EndStore {
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

pub(super) fn bind_end(query: Bound, (id, lease): (JobId, LeaseToken), end: &JobEnd) -> Bound {
    let (result, bytes) = match (&end.state, &end.answer.body) {
        (JobState::Done, AnswerBody::Kept(body)) => (Some(body.to_vec()), None),
        (JobState::Done, AnswerBody::Omitted { bytes }) => (None, Some(bytes.cast_signed())),
        _ => (None, None),
    };
    query
        .bind(uuid(id.as_u128()))
        .bind(uuid(lease.0))
        .bind(end.state as i16)
        .bind(result)
        .bind(bytes)
        .bind(end.error.clone())
}
