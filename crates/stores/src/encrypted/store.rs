//! [`EncryptedStore`]: encrypts what is secret in the records of another store.
//!
//! Encrypted are answers and checkpoints. State, times, fences, the namespace and the first characters of the key stay
//! readable: the store decides by them. Identities and fingerprints are keyed digests already.
//!
//! Put it around a [`Spill`](crate::compose::Spill), so that the blob store gets encrypted bodies, and around each store of a
//! [`Mirror`](crate::compose::Mirror), because an encrypted answer belongs to one store's record.

use std::sync::Arc;

use bytes::Bytes;

use semel_core::canary;
use semel_core::claim::{
    Claim, Claimed, Grant, Renewed, Resolution, Resolved, Restored, Settled, Settlement,
};
use semel_core::env::BoxFuture;
use semel_core::error::{Certainty, StoreError, StoreErrorKind};
use semel_core::identity::Identity;
use semel_core::record::{Answer, Fence, Record, RecordError};
use semel_core::store::{Capabilities, Page, Query, Store, StoreAdmin, StoreResult};

use super::keyring::{Keyring, SharedKeyring};
use super::record::{
    Bodies, MAX_OVERHEAD_BYTES, Run, open_answer, open_checkpoint, open_record, seal_answer,
    seal_checkpoint, seal_record,
};

/// A store whose records are encrypted.
#[derive(Clone)]
pub struct EncryptedStore {
    store: Arc<dyn StoreAdmin>,
    keys: SharedKeyring,
    refuses_plain: bool,
    bodies: Bodies,
}

impl EncryptedStore {
    /// Encrypts the records of `store`. With `refuses_plain`, a record in plain text is an error; without, it is read, so
    /// that encryption can be switched on while records are there.
    #[must_use]
    pub fn new(store: Arc<dyn StoreAdmin>, keys: SharedKeyring, refuses_plain: bool) -> Self {
        Self {
            store,
            keys,
            refuses_plain,
            bodies: Bodies::InRecord,
        }
    }

    /// The store lies around a [`Spill`](crate::compose::Spill): a body that its record doesn't have may have been moved or
    /// lost by the blob store. Without, such a record was changed by somebody else, and is refused.
    #[must_use]
    pub const fn with_body_store(mut self) -> Self {
        self.bodies = Bodies::Elsewhere;
        self
    }

    async fn claim_opened(&self, ask: &Claim) -> StoreResult<Claimed> {
        let (keys, identity) = (self.keys.current(), &ask.identity);
        let ask = Claim {
            terms: ask.terms.with_keys(keys.readable(self.refuses_plain)),
            ..ask.clone()
        };
        let mut claimed = self.store.claim(&ask).await?;
        match &mut claimed {
            Claimed::Won(grant) => {
                // The claim has won: nobody runs under its lease, which lapses.
                let opened = open_checkpoint(&keys, identity, grant.fence, &grant.checkpoint);
                grant.checkpoint = opened.map_err(|error| {
                    StoreError::new(StoreErrorKind::Record, Certainty::Unknown, error)
                })?;
            }
            Claimed::InDoubt(doubt) => {
                doubt.checkpoint =
                    open_checkpoint(&keys, identity, doubt.fence, &doubt.checkpoint)?;
            }
            Claimed::Replay(replay) => {
                let run = Run {
                    identity,
                    state: replay.state,
                    fence: replay.fence,
                    token: replay.token,
                };
                replay.answer = open_answer(&keys, self.bodies, &run, &replay.answer)?;
            }
            Claimed::Busy(_) | Claimed::Mismatch(_) => {}
        }
        Ok(claimed)
    }

    async fn renew_sealed(&self, lease: &Grant, checkpoint: &Bytes) -> StoreResult<Renewed> {
        let keys = self.keys.current();
        let sealed = match keys.write_key() {
            Some(key) => seal_checkpoint(key, &lease.identity, lease.fence, checkpoint)?,
            None => checkpoint.clone(),
        };
        self.store.renew(lease, Some(&sealed)).await
    }

    /// Settles. If another process, or this one before it got a new key, has sent the same settlement under another key, the
    /// store has it with other bytes. It is sent once more as the store has it, and recognised (P18).
    async fn settle_sealed(&self, lease: &Grant, how: &Settlement) -> StoreResult<Settled> {
        let (answer, make): (_, fn(_) -> _) = match how {
            Settlement::Complete(answer) => (answer, Settlement::Complete),
            Settlement::Fail(answer) => (answer, Settlement::Fail),
            other => return self.store.settle(lease, other).await,
        };
        let keys = self.keys.current();
        let run = Run {
            identity: &lease.identity,
            state: how.state(),
            fence: lease.fence,
            token: lease.token,
        };
        let sealed = seal(&keys, &run, answer)?;
        let settled = self.store.settle(lease, &make(sealed)).await?;
        if settled == Settled::Done {
            return Ok(settled);
        }
        match self.stored_alike(&keys, &run, answer).await? {
            Some(stored) => self.store.settle(lease, &make(stored)).await,
            None => Ok(Settled::Lost),
        }
    }

    /// The stored form of this answer, if the store has the same one from the same run.
    async fn stored_alike(
        &self,
        keys: &Keyring,
        run: &Run<'_>,
        answer: &Answer,
    ) -> StoreResult<Option<Arc<Answer>>> {
        let found = self.store.read(run.identity).await?;
        let is_same =
            |record: &Record| record.is_owned_by(run.fence, run.token) && record.state == run.state;
        let stored = found.filter(is_same).and_then(|record| record.answer);
        Ok(stored.filter(|stored| {
            let opened = open_answer(keys, self.bodies, run, stored);
            opened.is_ok_and(|opened| *opened == *answer)
        }))
    }

    /// Resolves. The answer is bound to the run in doubt, whose token only its record has.
    async fn resolve_sealed(
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
        let keys = self.keys.current();
        let found = self.store.read(identity).await?;
        let Some(record) = found.filter(|record| record.fence == fence) else {
            return Ok(Resolved::NotInDoubt);
        };
        let run = Run {
            identity,
            state: Settlement::from(how.clone()).state(),
            fence,
            token: record.token,
        };
        let sealed = seal(&keys, &run, answer)?;
        let resolved = self.store.resolve(identity, fence, &make(sealed)).await?;
        if resolved == Resolved::Done {
            return Ok(resolved);
        }
        match self.stored_alike(&keys, &run, answer).await? {
            Some(stored) => self.store.resolve(identity, fence, &make(stored)).await,
            None => Ok(Resolved::NotInDoubt),
        }
    }

    /// The record with its content, or without it if that can't be decrypted or isn't accepted: an operator can then still
    /// resolve, unlock or reset it.
    fn open(&self, keys: &Keyring, identity: &Identity, record: Record) -> Record {
        if canary::is_canary(&record) {
            return record;
        }
        let checked = keys.readable(self.refuses_plain).check(&record);
        match checked.and_then(|()| open_record(keys, self.bodies, identity, &record)) {
            Ok(opened) => opened,
            Err(reason) => record.lock(&reason),
        }
    }

    async fn read_opened(&self, identity: &Identity) -> StoreResult<Option<Record>> {
        let keys = self.keys.current();
        let found = self.store.read(identity).await?;
        Ok(found.map(|record| self.open(&keys, identity, record)))
    }

    async fn list_opened(&self, query: &Query) -> StoreResult<Page> {
        let keys = self.keys.current();
        let mut page = self.store.list(query).await?;
        let found = std::mem::take(&mut page.records).into_iter();
        let opened =
            found.map(|(identity, record)| (identity, self.open(&keys, &identity, record)));
        page.records = opened.collect();
        Ok(page)
    }

    async fn restore_sealed(&self, identity: &Identity, record: &Record) -> StoreResult<Restored> {
        // What can't be decrypted has no content to encrypt again.
        if let Some(id) = record.key_id()? {
            return Err(RecordError::NoKey(id).into());
        }
        let keys = self.keys.current();
        match keys.write_key() {
            Some(key) => {
                let sealed = seal_record(key, identity, record)?;
                self.store.restore(identity, &sealed).await
            }
            None => self.store.restore(identity, record).await,
        }
    }
}

fn seal(keys: &Keyring, run: &Run<'_>, answer: &Arc<Answer>) -> StoreResult<Arc<Answer>> {
    match keys.write_key() {
        Some(key) => Ok(seal_answer(key, run, answer)?),
        None => Ok(Arc::clone(answer)),
    }
}

impl Store for EncryptedStore {
    fn renew<'a>(
        &'a self,
        lease: &'a Grant,
        checkpoint: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>> {
        match checkpoint {
            Some(checkpoint) => Box::pin(self.renew_sealed(lease, checkpoint)),
            None => self.store.renew(lease, None),
        }
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.store.capabilities();
        inner.with_max_answer_bytes(inner.max_answer_bytes.saturating_sub(MAX_OVERHEAD_BYTES))
    }

    semel_core::forward_store!(|self| async => claim: claim_opened, settle: settle_sealed, resolve: resolve_sealed, read: read_opened);
    semel_core::forward_store!(|self| self.store => watch);
}

impl StoreAdmin for EncryptedStore {
    semel_core::forward_store!(|self| async => list: list_opened, restore: restore_sealed);
    semel_core::forward_store!(|self| self.store => delete, sweep, expired, now, stats, connections, diagnose);
}

impl std::fmt::Debug for EncryptedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.store.capabilities().name;
        write!(f, "EncryptedStore({name}, {:?})", self.keys)
    }
}
