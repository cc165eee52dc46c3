//! [`Spill`]: spills large bodies of a store's records to a blob store, where space costs less.
//!
//! The record keeps a body's length and digest. The body itself goes to a [`BodyStore`] before the
//! settlement that names it (P44). So a record never names a body that was not written, and an
//! orphaned body only wastes space.
//!
//! The guarantee depends on records alone. If the blob store doesn't take a body, the record keeps
//! it as without [`Spill`]. If it doesn't return one, the caller has to retry, and no effect runs.
//! If it has lost one, the operation is still done.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use semel_core::claim::{
    Claim, Claimed, Grant, Resolution, Resolved, Restored, Settled, Settlement,
};
use semel_core::clock::{Clock, Tick};
use semel_core::env::BoxFuture;
use semel_core::error::{Certainty, StoreError, StoreErrorKind};
use semel_core::identity::Identity;
use semel_core::record::{Answer, AnswerBody, Digest, Fence, Record};
use semel_core::store::{Capabilities, Page, Query, Store, StoreAdmin, StoreResult, within};

/// A blob store for large bodies. A body is stored under its key's identity and its digest, so
/// writing it twice changes nothing, and no key gets another key's body.
pub trait BodyStore: Send + Sync + 'static {
    /// Stores a body. After this returns, [`get`](Self::get) finds it from any process.
    fn put<'a>(
        &'a self,
        identity: &'a Identity,
        digest: &'a Digest,
        body: Bytes,
    ) -> BoxFuture<'a, StoreResult<()>>;

    /// Loads a body, without checking its digest. `None` if it is gone.
    fn get<'a>(
        &'a self,
        identity: &'a Identity,
        digest: &'a Digest,
    ) -> BoxFuture<'a, StoreResult<Option<Bytes>>>;

    /// Removes all bodies of a key.
    fn forget<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<()>>;
}

/// The time limit of one call: shorter than the engine's limit for a store call, to leave time for
/// the record.
const LIMIT: Duration = Duration::from_secs(2);

/// How long bodies stay in their records after the blob store failed to take one.
const PAUSE: Duration = Duration::from_secs(5);

/// A store with a blob store for bodies above a size.
#[derive(Clone)]
pub struct Spill {
    store: Arc<dyn StoreAdmin>,
    bodies: Arc<dyn BodyStore>,
    above: usize,
    clock: Arc<dyn Clock>,
    left_alone_until: Arc<Mutex<Option<Tick>>>,
}

/// An answer in two places.
struct AnswerForms {
    chosen: Arc<Answer>,
    other: Option<Arc<Answer>>,
}

fn kept(answer: &Answer) -> Option<&Bytes> {
    match &answer.body {
        AnswerBody::Kept(body) => Some(body),
        AnswerBody::Omitted { .. } | AnswerBody::External { .. } => None,
    }
}

impl Spill {
    /// A store that spills bodies of more than `above` bytes to `bodies`.
    #[must_use]
    pub fn new(
        store: Arc<dyn StoreAdmin>,
        bodies: Arc<dyn BodyStore>,
        above: usize,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            store,
            bodies,
            above,
            clock,
            left_alone_until: Arc::default(),
        }
    }

    /// The answer as the record keeps it now, and in the other form: inline if the blob store is
    /// up, external if it is down.
    async fn forms(&self, identity: &Identity, answer: &Arc<Answer>) -> AnswerForms {
        let large = |body: &&Bytes| body.len() > self.above;
        let Some(body) = kept(answer).filter(large) else {
            return AnswerForms {
                chosen: Arc::clone(answer),
                other: None,
            };
        };
        let bytes = body.len() as u64;
        let digest = *blake3::hash(body).as_bytes();
        let with = |body| {
            let head = answer.head.clone();
            Arc::new(Answer { head, body })
        };
        let light = with(AnswerBody::External { bytes, digest });
        let takes = self.store.capabilities().max_answer_bytes;
        let heavy = if answer.head.len() + body.len() <= takes {
            Arc::clone(answer)
        } else {
            with(AnswerBody::Omitted { bytes })
        };
        let (chosen, other) = if self.put(identity, &digest, body).await {
            (light, heavy)
        } else {
            (heavy, light)
        };
        AnswerForms {
            chosen,
            other: Some(other),
        }
    }

    /// Stores a body. Returns whether the blob store took it.
    async fn put(&self, identity: &Identity, digest: &Digest, body: &Bytes) -> bool {
        let now = self.clock.now();
        if self
            .left_alone_until
            .lock()
            .is_some_and(|until| now < until)
        {
            return false;
        }
        let put = self.bodies.put(identity, digest, body.clone());
        let taken = within(&*self.clock, LIMIT, put).await.is_ok();
        *self.left_alone_until.lock() = (!taken).then(|| self.clock.now().plus(PAUSE));
        taken
    }

    /// Loads the body into an answer.
    ///
    /// If that fails, the error isn't that of a store that is down: the key has a record, so no
    /// effect may run, even if the policy is to fail open.
    async fn whole(&self, identity: &Identity, answer: Arc<Answer>) -> StoreResult<Arc<Answer>> {
        let AnswerBody::External { bytes, digest } = answer.body else {
            return Ok(answer);
        };
        let get = self.bodies.get(identity, &digest);
        let found = within(&*self.clock, LIMIT, get).await.map_err(|error| {
            let kind = StoreErrorKind::Body;
            StoreError::new(kind, Certainty::Definite, format!("its body: {error}"))
        })?;
        let is_it = |body: &Bytes| *blake3::hash(body).as_bytes() == digest;
        let body = found
            .filter(is_it)
            .map_or(AnswerBody::Omitted { bytes }, AnswerBody::Kept);
        let head = answer.head.clone();
        Ok(Arc::new(Answer { head, body }))
    }

    async fn claim_whole(&self, claim: &Claim) -> StoreResult<Claimed> {
        match self.store.claim(claim).await? {
            Claimed::Replay(mut replay) => {
                replay.answer = self.whole(&claim.identity, replay.answer).await?;
                Ok(Claimed::Replay(replay))
            }
            other => Ok(other),
        }
    }

    /// Settles. A retry may find the record of the first attempt with the body in the other form,
    /// which is the same settlement (P18).
    async fn settle_either(&self, lease: &Grant, how: &Settlement) -> StoreResult<Settled> {
        let (answer, make): (_, fn(_) -> _) = match how {
            Settlement::Complete(answer) => (answer, Settlement::Complete),
            Settlement::Fail(answer) => (answer, Settlement::Fail),
            other => return self.store.settle(lease, other).await,
        };
        let AnswerForms { chosen, other } = self.forms(&lease.identity, answer).await;
        let settled = self.store.settle(lease, &make(chosen)).await?;
        match other {
            Some(other) if settled == Settled::Lost => self.store.settle(lease, &make(other)).await,
            _ => Ok(settled),
        }
    }

    /// As [`settle_either`](Self::settle_either) (P19).
    async fn resolve_either(
        &self,
        identity: &Identity,
        fence: Fence,
        how: &Resolution,
    ) -> StoreResult<Resolved> {
        let (answer, make): (_, fn(_) -> _) = match how {
            Resolution::Complete(answer) => (answer, Resolution::Complete),
            Resolution::Fail(answer) => (answer, Resolution::Fail),
            other => return self.store.resolve(identity, fence, other).await,
        };
        let AnswerForms { chosen, other } = self.forms(identity, answer).await;
        let resolved = self.store.resolve(identity, fence, &make(chosen)).await?;
        match other {
            Some(other) if resolved == Resolved::NotInDoubt => {
                self.store.resolve(identity, fence, &make(other)).await
            }
            _ => Ok(resolved),
        }
    }

    /// Deletes bodies that a concurrent settlement stored between the deletion of the bodies and of
    /// the record. If the key has a new record, the bodies may belong to it, and stay.
    async fn delete_late_bodies(&self, identity: &Identity) -> StoreResult<()> {
        match self.store.read(identity).await? {
            None => self.bodies.forget(identity).await,
            Some(_) => Ok(()),
        }
    }

    async fn read_whole(&self, identity: &Identity) -> StoreResult<Option<Record>> {
        let Some(mut record) = self.store.read(identity).await? else {
            return Ok(None);
        };
        if let Some(answer) = record.answer {
            record.answer = Some(self.whole(identity, answer).await?);
        }
        Ok(Some(record))
    }
}

impl Store for Spill {
    fn capabilities(&self) -> Capabilities {
        self.store
            .capabilities()
            .with_max_answer_bytes(Answer::MAX_HEAD_BYTES + Answer::MAX_BODY_BYTES)
    }

    semel_core::forward_store!(|self| async => claim: claim_whole, settle: settle_either, resolve: resolve_either, read: read_whole);
    semel_core::forward_store!(|self| self.store => renew, watch);
}

impl StoreAdmin for Spill {
    /// Lists records without loading their bodies.
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, StoreResult<Page>> {
        self.store.list(query)
    }

    /// Deletes the bodies first: if the call is cancelled between the two, the record still shows
    /// that something is left.
    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(async move {
            self.bodies.forget(identity).await?;
            // The bodies are deleted in any case.
            let deleted = self.store.delete(identity).await.map_err(unknown)?;
            self.delete_late_bodies(identity).await.map_err(unknown)?;
            Ok(deleted)
        })
    }

    fn restore<'a>(
        &'a self,
        identity: &'a Identity,
        record: &'a Record,
    ) -> BoxFuture<'a, StoreResult<Restored>> {
        Box::pin(async move {
            let Some(answer) = &record.answer else {
                return self.store.restore(identity, record).await;
            };
            let answer = Some(self.forms(identity, answer).await.chosen);
            let record = Record {
                answer,
                ..record.clone()
            };
            self.store.restore(identity, &record).await
        })
    }

    semel_core::forward_store!(|self| self.store => sweep, expired, now, stats, connections, diagnose);
}

/// Marks the error as uncertain: bodies were already deleted.
const fn unknown(mut error: StoreError) -> StoreError {
    error.certainty = Certainty::Unknown;
    error
}

impl std::fmt::Debug for Spill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.store.capabilities().name;
        write!(f, "Spill({name}, above {} bytes)", self.above)
    }
}
