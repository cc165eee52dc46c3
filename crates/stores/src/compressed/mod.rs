//! [`CompressedStore`]: compresses larger answers of another store (P51).
//!
//! Each answer is compressed by itself, so nothing of one is in the bytes of another. What was
//! compressed is always read; whether new answers are compressed is a setting.
//!
//! Put it around an [`EncryptedStore`](crate::encrypted::EncryptedStore): ciphertext doesn't get
//! smaller.

mod packed;

use std::sync::Arc;

use semel_core::claim::{Claim, Claimed, Grant, Resolution, Resolved, Settled, Settlement};
use semel_core::identity::Identity;
use semel_core::record::{Answer, Fence, Record, RecordError};
use semel_core::store::{Page, Query, Store, StoreAdmin, StoreResult};

pub use packed::{MIN_BYTES, pack, unpack};

/// A store whose larger answers may be compressed.
#[derive(Clone)]
pub struct CompressedStore {
    store: Arc<dyn StoreAdmin>,
    compresses: bool,
}

impl CompressedStore {
    /// Reads the compressed answers of `store`; with `compresses`, it also compresses new ones.
    #[must_use]
    pub fn new(store: Arc<dyn StoreAdmin>, compresses: bool) -> Self {
        Self { store, compresses }
    }

    async fn claim_unpacked(&self, ask: &Claim) -> StoreResult<Claimed> {
        let mut claimed = self.store.claim(ask).await?;
        if let Claimed::Replay(replay) = &mut claimed
            && let Some(answer) = unpack(&replay.answer)?
        {
            replay.answer = answer;
        }
        Ok(claimed)
    }

    /// Settles. If the store has the same settlement in another form, because it was sent with
    /// another setting or by another version, it is sent once more as the store has it, and
    /// recognised (P18).
    async fn settle_packed(&self, lease: &Grant, how: &Settlement) -> StoreResult<Settled> {
        let (answer, make): (_, fn(_) -> _) = match how {
            Settlement::Complete(answer) => (answer, Settlement::Complete),
            Settlement::Fail(answer) => (answer, Settlement::Fail),
            other => return self.store.settle(lease, other).await,
        };
        let settled = match self.pack(answer) {
            Some(packed) => self.store.settle(lease, &make(packed)).await?,
            None => self.store.settle(lease, how).await?,
        };
        if settled == Settled::Done || answer.body.held_bytes() < MIN_BYTES {
            return Ok(settled);
        }
        let is_same = |record: &Record| {
            record.is_owned_by(lease.fence, lease.token) && record.state == how.state()
        };
        match self.stored_alike(&lease.identity, answer, is_same).await? {
            Some(stored) => self.store.settle(lease, &make(stored)).await,
            None => Ok(Settled::Lost),
        }
    }

    async fn resolve_packed(
        &self,
        identity: &Identity,
        fence: Fence,
        how: &Resolution,
    ) -> StoreResult<Resolved> {
        let (answer, make): (_, fn(_) -> _) = match how {
            Resolution::Complete(answer) => (answer, Resolution::Complete),
            Resolution::Fail(answer) => (answer, Resolution::Fail),
            Resolution::Release => return self.store.resolve(identity, fence, how).await,
        };
        let resolved = match self.pack(answer) {
            Some(packed) => self.store.resolve(identity, fence, &make(packed)).await?,
            None => self.store.resolve(identity, fence, how).await?,
        };
        if resolved == Resolved::Done || answer.body.held_bytes() < MIN_BYTES {
            return Ok(resolved);
        }
        let state = Settlement::from(how.clone()).state();
        let is_same = |record: &Record| record.fence == fence && record.state == state;
        match self.stored_alike(identity, answer, is_same).await? {
            Some(stored) => self.store.resolve(identity, fence, &make(stored)).await,
            None => Ok(Resolved::NotInDoubt),
        }
    }

    fn pack(&self, answer: &Answer) -> Option<Arc<Answer>> {
        self.compresses.then(|| pack(answer)).flatten()
    }

    /// The stored form of this answer, if the store has the same one from the same run.
    async fn stored_alike(
        &self,
        identity: &Identity,
        answer: &Answer,
        is_same: impl Fn(&Record) -> bool,
    ) -> StoreResult<Option<Arc<Answer>>> {
        let found = self.store.read(identity).await?;
        let stored = found.filter(is_same).and_then(|record| record.answer);
        Ok(stored.filter(|stored| {
            let opened = unpack(stored).ok().flatten();
            *opened.unwrap_or_else(|| Arc::clone(stored)) == *answer
        }))
    }

    async fn read_unpacked(&self, identity: &Identity) -> StoreResult<Option<Record>> {
        Ok(self.store.read(identity).await?.map(unpacked))
    }

    async fn list_unpacked(&self, query: &Query) -> StoreResult<Page> {
        let mut page = self.store.list(query).await?;
        for (_, record) in &mut page.records {
            if record.answer.is_some() {
                *record = unpacked(record.clone());
            }
        }
        Ok(page)
    }
}

/// The record with its answer as it was, or without its content if that is damaged: an operator can
/// then still reset it.
fn unpacked(record: Record) -> Record {
    let opened = record.answer.as_ref().map(|answer| unpack(answer));
    match opened {
        Some(Ok(Some(answer))) => Record {
            answer: Some(answer),
            ..record
        },
        Some(Err(reason)) => record.lock(&reason),
        Some(Ok(None)) | None => record,
    }
}

fn damaged() -> RecordError {
    RecordError::Malformed("a compressed body")
}

impl Store for CompressedStore {
    semel_core::forward_store!(|self| async => claim: claim_unpacked, settle: settle_packed, resolve: resolve_packed, read: read_unpacked);
    semel_core::forward_store!(|self| self.store => renew, watch, capabilities);
}

impl StoreAdmin for CompressedStore {
    semel_core::forward_store!(|self| async => list: list_unpacked);
    semel_core::forward_store!(|self| self.store => delete, restore, sweep, expired, now, stats, connections, diagnose);
}

impl std::fmt::Debug for CompressedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.store.capabilities().name;
        write!(f, "CompressedStore({name}, {})", self.compresses)
    }
}
