//! [`Spill`]: a store whose large bodies lie elsewhere, where room costs less.
//!
//! The record keeps a body's length and digest; the body itself goes to [`Bodies`], before the settlement that names
//! it (P44). So a record never names a body that was not written, and a body that nobody names is only waste.
//!
//! Bodies are a convenience, records are the promise: where the bodies' store doesn't take one, the record keeps it as
//! without [`Spill`]; where it doesn't give one back, the caller is told to ask again, and nothing runs; where it has
//! lost one, the operation is still done.

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
use semel_core::record::{Answer, Body, Digest, Fence, Record};
use semel_core::store::{Capabilities, Page, Query, Store, StoreAdmin, StoreResult, within};

/// Where large bodies are kept: by whose they are and what they are, so that writing one twice changes nothing, and
/// nobody is given another's.
pub trait Bodies: Send + Sync + 'static {
    /// Keeps a body. Once this is answered, [`get`](Self::get) finds it, from any process.
    fn put<'a>(
        &'a self,
        identity: &'a Identity,
        digest: &'a Digest,
        body: Bytes,
    ) -> BoxFuture<'a, StoreResult<()>>;

    /// The body, as it is found; `None` where it is gone.
    fn get<'a>(
        &'a self,
        identity: &'a Identity,
        digest: &'a Digest,
    ) -> BoxFuture<'a, StoreResult<Option<Bytes>>>;

    /// Removes all bodies of a key.
    fn forget<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<()>>;
}

/// How long one call may take: less than the engine waits for a store, so that there is time left for the record.
const LIMIT: Duration = Duration::from_secs(2);

/// How long bodies are kept with their records after the bodies' store failed to take one.
const PAUSE: Duration = Duration::from_secs(5);

/// A store, with the bodies beside it that are larger than a bound.
#[derive(Clone)]
pub struct Spill {
    store: Arc<dyn StoreAdmin>,
    bodies: Arc<dyn Bodies>,
    above: usize,
    clock: Arc<dyn Clock>,
    left_alone_until: Arc<Mutex<Option<Tick>>>,
}

/// An answer in two places.
struct Forms {
    chosen: Arc<Answer>,
    other: Option<Arc<Answer>>,
}

fn kept(answer: &Answer) -> Option<&Bytes> {
    match &answer.body {
        Body::Kept(body) => Some(body),
        Body::Omitted { .. } | Body::Elsewhere { .. } => None,
    }
}

impl Spill {
    /// Bodies of more than `above` bytes go to `bodies`.
    #[must_use]
    pub fn new(
        store: Arc<dyn StoreAdmin>,
        bodies: Arc<dyn Bodies>,
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

    /// The answer as the record is to keep it; and as it would keep it had the bodies' store been down, or up.
    async fn forms(&self, identity: &Identity, answer: &Arc<Answer>) -> Forms {
        let large = |body: &&Bytes| body.len() > self.above;
        let Some(body) = kept(answer).filter(large) else {
            return Forms {
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
        let light = with(Body::Elsewhere { bytes, digest });
        let takes = self.store.capabilities().max_answer_bytes;
        let heavy = if answer.head.len() + body.len() <= takes {
            Arc::clone(answer)
        } else {
            with(Body::Omitted { bytes })
        };
        let (chosen, other) = if self.put(identity, &digest, body).await {
            (light, heavy)
        } else {
            (heavy, light)
        };
        Forms {
            chosen,
            other: Some(other),
        }
    }

    /// Whether the bodies' store has it now.
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

    /// The answer with its body.
    ///
    /// A body that doesn't come is no store that doesn't answer: the record is there, so nothing may run, whatever the
    /// policy says of a store that is down.
    async fn whole(&self, identity: &Identity, answer: Arc<Answer>) -> StoreResult<Arc<Answer>> {
        let Body::Elsewhere { bytes, digest } = answer.body else {
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
            .map_or(Body::Omitted { bytes }, Body::Kept);
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

    /// A settlement that is sent again may find the record as the first sending left it, with the body in the other
    /// place: the same settlement all the same (P18).
    async fn settle_either(&self, lease: &Grant, how: &Settlement) -> StoreResult<Settled> {
        let (answer, make): (_, fn(_) -> _) = match how {
            Settlement::Complete(answer) => (answer, Settlement::Complete),
            Settlement::Fail(answer) => (answer, Settlement::Fail),
            other => return self.store.settle(lease, other).await,
        };
        let Forms { chosen, other } = self.forms(&lease.identity, answer).await;
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
        let Forms { chosen, other } = self.forms(identity, answer).await;
        let resolved = self.store.resolve(identity, fence, &make(chosen)).await?;
        match other {
            Some(other) if resolved == Resolved::NotInDoubt => {
                self.store.resolve(identity, fence, &make(other)).await
            }
            _ => Ok(resolved),
        }
    }

    /// A settlement may have put a body between the bodies' removal and the record's. Where the key has a record again, bodies
    /// may be that one's, and stay.
    async fn forget_latecomers(&self, identity: &Identity) -> StoreResult<()> {
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
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        Box::pin(self.claim_whole(claim))
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        Box::pin(self.settle_either(lease, settlement))
    }

    fn resolve<'a>(
        &'a self,
        identity: &'a Identity,
        fence: Fence,
        resolution: &'a Resolution,
    ) -> BoxFuture<'a, StoreResult<Resolved>> {
        Box::pin(self.resolve_either(identity, fence, resolution))
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        Box::pin(self.read_whole(identity))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_answer_bytes: Answer::MAX_HEAD_BYTES + Answer::MAX_BODY_BYTES,
            ..self.store.capabilities()
        }
    }

    semel_core::forward_store!(|self| self.store => renew, watch);
}

impl StoreAdmin for Spill {
    /// Bodies stay where they are: a listing is for looking.
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, StoreResult<Page>> {
        self.store.list(query)
    }

    /// The bodies first: were the call cut between the two, the record still says that there is something to erase.
    fn delete<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(async move {
            self.bodies.forget(identity).await?;
            // The bodies are gone, whatever becomes of the record.
            let deleted = self.store.delete(identity).await.map_err(unknown)?;
            self.forget_latecomers(identity).await.map_err(unknown)?;
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

/// Something was removed already.
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
