//! [`EncryptedStore`]: encrypts what is secret in the records of another store.
//!
//! Encrypted are answers and checkpoints. State, times, fences, the namespace and the first
//! characters of the key stay readable: the store decides by them. Identities and fingerprints are
//! keyed digests already.
//!
//! Put it around a [`Spill`](crate::compose::Spill), so that the blob store gets encrypted bodies,
//! and around each store of a
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

use super::cipher::RecordKeys;
use super::data_keys::{
    DataKey, DataKeyError, DataKeyUse, DataKeys, DataOwner, SCOPE as DATA_KEY_SCOPE, recall,
    remember,
};
use super::key::EncryptionKey;
use super::keyring::{Keyring, SharedKeyring};
use super::record::{
    Bodies, MAX_OVERHEAD_BYTES, Run, open_answer, open_checkpoint, open_record, seal_answer,
    seal_checkpoint, seal_even_empty, seal_record,
};

/// A store whose records are encrypted.
#[derive(Clone)]
pub struct EncryptedStore {
    store: Arc<dyn StoreAdmin>,
    keys: SharedKeyring,
    refuses_plain: bool,
    bodies: Bodies,
    data: Option<DataKeys>,
}

impl EncryptedStore {
    /// Encrypts the records of `store`. With `refuses_plain`, a record in plain text is an error;
    /// without, it is read, so that encryption can be switched on while records are there.
    #[must_use]
    pub fn new(store: Arc<dyn StoreAdmin>, keys: SharedKeyring, refuses_plain: bool) -> Self {
        Self {
            store,
            keys,
            refuses_plain,
            bodies: Bodies::InRecord,
            data: None,
        }
    }

    /// The store lies around a [`Spill`](crate::compose::Spill): a body that its record doesn't
    /// have may have been moved or lost by the blob store. Without, such a record was changed by
    /// somebody else, and is refused.
    #[must_use]
    pub const fn with_body_store(mut self) -> Self {
        self.bodies = Bodies::Elsewhere;
        self
    }

    /// Encrypts with data keys, and reads what was encrypted with them. Without, such a record is
    /// refused by name.
    #[must_use]
    pub fn with_data_keys(mut self, data: DataKeys) -> Self {
        self.data = Some(data);
        self
    }

    /// Claims. A record under a data key that isn't at hand is refused first, without a change
    /// (P46); then the key is looked up, and the claim made again.
    async fn claim_opened(&self, ask: &Claim) -> StoreResult<Claimed> {
        let keys = self.keys.current();
        let known = self.data.as_ref().filter(|data| self.writes(data));
        let mut data = known.and_then(|data| data.known(&DataOwner::of_claim(ask)));
        let mut claimed = self.claim_with(&keys, data.as_deref(), ask).await;
        for _ in 0..RELOADS {
            let Err(error) = &claimed else { break };
            if error.kind != StoreErrorKind::Record {
                break;
            }
            let Some(found) = self.data_key_of(&ask.identity).await? else {
                break;
            };
            if data.as_ref().and_then(|key| key.data_key()) == found.data_key() {
                break;
            }
            data = Some(found);
            claimed = self.claim_with(&keys, data.as_deref(), ask).await;
        }
        match claimed? {
            Claimed::Won(grant) if known.is_some() => Ok(Claimed::Won(remember(grant, ask))),
            other => Ok(other),
        }
    }

    fn writes(&self, data: &DataKeys) -> bool {
        data.usage() != DataKeyUse::Off
    }

    async fn claim_with(
        &self,
        keys: &Keyring,
        data: Option<&EncryptionKey>,
        ask: &Claim,
    ) -> StoreResult<Claimed> {
        let identity = &ask.identity;
        let name = data.and_then(EncryptionKey::data_key);
        let readable = keys.readable(self.refuses_plain).with_data_keys(name);
        let ask = Claim {
            terms: ask.terms.with_keys(readable),
            ..ask.clone()
        };
        let keys = &RecordKeys { ring: keys, data };
        let mut claimed = self.store.claim(&ask).await?;
        match &mut claimed {
            Claimed::Won(grant) => {
                // The claim has won: nobody runs under its lease, which lapses.
                let opened = open_checkpoint(keys, identity, grant.fence, &grant.checkpoint);
                grant.checkpoint = opened.map_err(|error| {
                    StoreError::new(StoreErrorKind::Record, Certainty::Unknown, error)
                })?;
            }
            Claimed::InDoubt(doubt) => {
                doubt.checkpoint = open_checkpoint(keys, identity, doubt.fence, &doubt.checkpoint)?;
            }
            Claimed::Replay(replay) => {
                let run = Run {
                    identity,
                    state: replay.state,
                    fence: replay.fence,
                    token: replay.token,
                };
                replay.answer = open_answer(keys, self.bodies, &run, &replay.answer)?;
            }
            Claimed::Busy(_) | Claimed::Mismatch(_) => {}
        }
        Ok(claimed)
    }

    /// The data key of the record as it is now; `None` if it needs none, or this store reads none.
    async fn data_key_of(&self, identity: &Identity) -> StoreResult<Option<Arc<EncryptionKey>>> {
        if self.data.is_none() {
            return Ok(None);
        }
        match self.store.read(identity).await? {
            Some(record) => Ok(self.data_key(&record).await?),
            None => Ok(None),
        }
    }

    /// The data key of a record; `None` if it needs none, or this store reads none.
    async fn data_key(&self, record: &Record) -> Result<Option<Arc<EncryptionKey>>, DataKeyError> {
        let (Some(data), Some(name)) = (&self.data, record.data_key()?) else {
            return Ok(None);
        };
        let namespace = &record.namespace;
        let (environment, tenant) = (namespace.environment(), namespace.tenant());
        match data.load(environment, tenant, name).await? {
            DataKey::Live(key) => Ok(Some(key)),
            DataKey::Destroyed => Err(RecordError::Erased.into()),
            DataKey::Absent => Err(RecordError::NoKey(name.key_id()).into()),
        }
    }

    /// The key to encrypt what a run leaves with: the data key of who is named in the memo of its
    /// lease; of a lease without a memo, the key of what the run has left already, or its tenant's.
    async fn sealer(&self, lease: &mut Grant) -> StoreResult<Sealer> {
        let recalled = recall(&mut lease.memo);
        let keys = self.keys.current();
        let Some(data) = self.data.as_ref().filter(|data| self.writes(data)) else {
            return Ok(Sealer::Ring(keys));
        };
        if keys.write_key().is_none() {
            return Ok(Sealer::Ring(keys));
        }
        if let Some(recalled) = recalled {
            let owner = recalled.owner();
            let found = data.current(&owner).await?;
            return Ok(match found {
                Some(key) if owner.subject.is_some() => Sealer::Named(key),
                other => Sealer::of(other, keys),
            });
        }
        match self.store.read(&lease.identity).await? {
            Some(record) => self.sealer_of(data, keys, &record).await,
            // The lease is lost.
            None => Ok(Sealer::Ring(keys)),
        }
    }

    async fn sealer_of(
        &self,
        data: &DataKeys,
        keys: Arc<Keyring>,
        record: &Record,
    ) -> StoreResult<Sealer> {
        if let Some(key) = self.data_key(record).await? {
            return Ok(Sealer::Named(key));
        }
        let owner = DataOwner::of_namespace(&record.namespace);
        Ok(Sealer::of(data.current(&owner).await?, keys))
    }

    async fn renew_sealed(&self, lease: &Grant, checkpoint: &Bytes) -> StoreResult<Renewed> {
        let mut lease = lease.clone();
        let sealer = self.sealer(&mut lease).await?;
        let (identity, fence) = (&lease.identity, lease.fence);
        let sealed = match (sealer.key(), &sealer) {
            (Some(key), Sealer::Named(_)) => seal_even_empty(key, identity, fence, checkpoint)?,
            (Some(key), _) => seal_checkpoint(key, identity, fence, checkpoint)?,
            (None, _) => checkpoint.clone(),
        };
        self.store.renew(&lease, Some(&sealed)).await
    }

    async fn renew_bare(&self, lease: &Grant) -> StoreResult<Renewed> {
        let mut lease = lease.clone();
        recall(&mut lease.memo);
        self.store.renew(&lease, None).await
    }

    /// Settles. If another process, or this one before it got a new key, has sent the same
    /// settlement under another key, the store has it with other bytes. It is sent once more as the
    /// store has it, and recognised (P18).
    async fn settle_sealed(&self, lease: &Grant, how: &Settlement) -> StoreResult<Settled> {
        let mut lease = lease.clone();
        let (answer, make): (_, fn(_) -> _) = match how {
            Settlement::Complete(answer) => (answer, Settlement::Complete),
            Settlement::Fail(answer) => (answer, Settlement::Fail),
            other => {
                recall(&mut lease.memo);
                return self.store.settle(&lease, other).await;
            }
        };
        let sealer = self.sealer(&mut lease).await?;
        let run = Run {
            identity: &lease.identity,
            state: how.state(),
            fence: lease.fence,
            token: lease.token,
        };
        let sealed = seal(&sealer, &run, answer)?;
        let settled = self.store.settle(&lease, &make(sealed)).await?;
        if settled == Settled::Done {
            return Ok(settled);
        }
        match self.stored_alike(&run, answer).await? {
            Some(stored) => self.store.settle(&lease, &make(stored)).await,
            None => Ok(Settled::Lost),
        }
    }

    /// The stored form of this answer, if the store has the same one from the same run.
    async fn stored_alike(
        &self,
        run: &Run<'_>,
        answer: &Answer,
    ) -> StoreResult<Option<Arc<Answer>>> {
        let found = self.store.read(run.identity).await?;
        let is_same =
            |record: &Record| record.is_owned_by(run.fence, run.token) && record.state == run.state;
        let Some(record) = found.filter(is_same) else {
            return Ok(None);
        };
        let data = match self.data_key(&record).await {
            Ok(data) => data,
            Err(DataKeyError::Record(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let ring = self.keys.current();
        let keys = RecordKeys {
            ring: &ring,
            data: data.as_deref(),
        };
        Ok(record.answer.filter(|stored| {
            let opened = open_answer(&keys, self.bodies, run, stored);
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
        let sealed = seal(&self.operator_sealer(&record).await?, &run, answer)?;
        let resolved = self.store.resolve(identity, fence, &make(sealed)).await?;
        if resolved == Resolved::Done {
            return Ok(resolved);
        }
        match self.stored_alike(&run, answer).await? {
            Some(stored) => self.store.resolve(identity, fence, &make(stored)).await,
            None => Ok(Resolved::NotInDoubt),
        }
    }

    /// The key for what an operator, or another store's record, says. Content that was erased, or
    /// whose key is gone, doesn't matter: the tenant's key encrypts.
    async fn operator_sealer(&self, record: &Record) -> StoreResult<Sealer> {
        let keys = self.keys.current();
        let Some(data) = self.data.as_ref().filter(|data| self.writes(data)) else {
            return Ok(Sealer::Ring(keys));
        };
        match self.data_key(record).await {
            Ok(Some(key)) => return Ok(Sealer::Data(key)),
            Ok(None) | Err(DataKeyError::Record(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let owner = DataOwner::of_namespace(&record.namespace);
        Ok(Sealer::of(data.current(&owner).await?, keys))
    }

    /// The record with its content, or without it if that can't be decrypted or isn't accepted: an
    /// operator can then still resolve, unlock or reset it.
    async fn open(
        &self,
        keys: &Keyring,
        identity: &Identity,
        record: Record,
    ) -> StoreResult<Record> {
        if canary::is_canary(&record) {
            return Ok(record);
        }
        match self.try_open(keys, identity, &record).await {
            Ok(opened) => Ok(opened),
            Err(DataKeyError::Record(reason)) => Ok(record.lock(&reason)),
            Err(error) => Err(error.into()),
        }
    }

    async fn try_open(
        &self,
        ring: &Keyring,
        identity: &Identity,
        record: &Record,
    ) -> Result<Record, DataKeyError> {
        let data = self.data_key(record).await?;
        let data = data.as_deref();
        let name = data.and_then(EncryptionKey::data_key);
        let readable = ring.readable(self.refuses_plain).with_data_keys(name);
        readable.check(record)?;
        let keys = RecordKeys { ring, data };
        Ok(open_record(&keys, self.bodies, identity, record)?)
    }

    async fn read_opened(&self, identity: &Identity) -> StoreResult<Option<Record>> {
        let keys = self.keys.current();
        match self.store.read(identity).await? {
            Some(record) => self.open(&keys, identity, record).await.map(Some),
            None => Ok(None),
        }
    }

    async fn list_opened(&self, query: &Query) -> StoreResult<Page> {
        let keys = self.keys.current();
        let mut page = self.store.list(query).await?;
        for (identity, record) in std::mem::take(&mut page.records) {
            // The records of data keys are nobody's operations.
            if record.namespace.scope() != DATA_KEY_SCOPE {
                let opened = self.open(&keys, &identity, record).await?;
                page.records.push((identity, opened));
            }
        }
        Ok(page)
    }

    async fn restore_sealed(&self, identity: &Identity, record: &Record) -> StoreResult<Restored> {
        // What can't be decrypted has no content to encrypt again.
        if let Some(id) = record.key_id()? {
            return Err(RecordError::NoKey(id).into());
        }
        match self.operator_sealer(record).await?.key() {
            Some(key) => {
                let sealed = seal_record(key, identity, record)?;
                self.store.restore(identity, &sealed).await
            }
            None => self.store.restore(identity, record).await,
        }
    }
}

/// How often a claim is made again with the data key of the record that it found.
const RELOADS: usize = 2;

/// What encrypts: a key of the process, if it has one to write with, or a data key.
enum Sealer {
    Ring(Arc<Keyring>),
    Data(Arc<EncryptionKey>),
    /// The data key of a subject. Its checkpoints are encrypted even if they are empty: another
    /// process, which doesn't know the subject, then finds the key in the record.
    Named(Arc<EncryptionKey>),
}

impl Sealer {
    fn of(data: Option<Arc<EncryptionKey>>, keys: Arc<Keyring>) -> Self {
        data.map_or(Self::Ring(keys), Self::Data)
    }

    fn key(&self) -> Option<&EncryptionKey> {
        match self {
            Self::Ring(keys) => keys.write_key(),
            Self::Data(key) | Self::Named(key) => Some(key),
        }
    }
}

fn seal(sealer: &Sealer, run: &Run<'_>, answer: &Arc<Answer>) -> StoreResult<Arc<Answer>> {
    match sealer.key() {
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
            None if self.data.is_some() => Box::pin(self.renew_bare(lease)),
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
