//! [`DataKeys`]: a key of its own for each tenant, or each subject that a caller names, so that
//! their data can be erased (P48, P49).
//!
//! | file | is |
//! |---|---|
//! | `wrapped` | the record of a wrapped key |
//! | `owner` | whose data a key encrypts, and the names of keys |
//! | `erase` | destroys the keys of a tenant or a subject |
//! | `rewrap` | wraps keys again, with a newer key of the process |
//!
//! A tenant's key is wrapped with a key of the process, a subject's key with its tenant's. So to
//! erase a tenant is one write, and a new key of the process has only tenants' keys to wrap again.

mod erase;
mod owner;
mod rewrap;
mod wrapped;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use semel_core::claim::{Grant, Restored};
use semel_core::record::{DataKeyId, RecordError};
use semel_core::store::StoreResult;
use semel_core::{Env, StoreAdmin, StoreError, Tick};
use zeroize::Zeroizing;

use self::owner::{MAX_GENERATIONS, Root};
use self::wrapped::{Place, WrappedKey, unwrap};
use super::cipher::RecordKeys;
use super::key::EncryptionKey;
use super::keyring::{Keyring, SharedKeyring};

pub use erase::Erased;
pub use owner::DataOwner;
pub(super) use owner::{recall, remember};
pub use rewrap::RewrapProgress;
pub use wrapped::{SCOPE, wrap};

/// Whose data gets a key of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataKeyUse {
    /// Nobody's: answers and checkpoints are encrypted with the keys of the process. Fields with
    /// data keys are read.
    #[default]
    Off,
    /// Each tenant's.
    Tenant,
    /// Each subject's, where the caller names one, and each tenant's.
    Subject,
}

/// How long a data key is used without a look at its record: 30 s.
pub const DEFAULT_CACHE_TIME: Duration = Duration::from_secs(30);

/// The most data keys in memory.
const CAPACITY: usize = 10_000;

/// The most environments whose names are remembered. A process has one.
const MAX_ROOTS: usize = 16;

/// A key in use is written again after this, so that a bucket whose lifecycle rule removes old
/// objects keeps it.
const WRITE_EVERY: Duration = Duration::from_secs(12 * 60 * 60);

/// The data keys of a store. Cheap to clone; clones share them.
#[derive(Clone)]
pub struct DataKeys(Arc<Inner>);

struct Inner {
    store: Arc<dyn StoreAdmin>,
    keys: SharedKeyring,
    env: Env,
    using: DataKeyUse,
    cache_time: Duration,
    secret_id: u16,
    held: Cache<DataKeyId, HeldKey>,
    /// The generation in use, by the name of generation 0.
    generations: Cache<DataKeyId, u32>,
    roots: Mutex<Vec<(String, Root, Tick)>>,
}

#[derive(Clone)]
struct HeldKey {
    key: DataKey,
    looked_at: Tick,
}

/// A data key as its record says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DataKey {
    /// It can be used.
    Live(Arc<EncryptionKey>),
    /// It was destroyed, or the key that it was wrapped with.
    Destroyed,
    /// The store has no record of it.
    Absent,
}

impl DataKeys {
    /// The data keys that `store` keeps, wrapped with these keys. `store` is the store without
    /// encryption.
    #[must_use]
    pub fn new(store: Arc<dyn StoreAdmin>, keys: SharedKeyring, env: Env) -> Self {
        Self(Arc::new(Inner {
            store,
            keys,
            env,
            using: DataKeyUse::Off,
            cache_time: DEFAULT_CACHE_TIME,
            secret_id: 0,
            held: Cache::new(CAPACITY),
            generations: Cache::new(CAPACITY),
            roots: Mutex::new(Vec::new()),
        }))
    }

    /// Whose data gets a key of its own, how long a key is used without a look at its record, and
    /// the id of the process's secret.
    #[must_use]
    pub fn with_settings(self, using: DataKeyUse, cache_time: Duration, secret_id: u16) -> Self {
        let inner = &*self.0;
        Self(Arc::new(Inner {
            store: Arc::clone(&inner.store),
            keys: inner.keys.clone(),
            env: inner.env.clone(),
            using,
            cache_time,
            secret_id,
            held: Cache::new(CAPACITY),
            generations: Cache::new(CAPACITY),
            roots: Mutex::new(Vec::new()),
        }))
    }

    /// Whose data gets a key of its own.
    #[must_use]
    pub fn usage(&self) -> DataKeyUse {
        self.0.using
    }

    /// The key to encrypt data of `owner` with. It is created if there is none; of two nodes that
    /// create it at once, both get the same. `None` if the process encrypts nothing.
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn current(&self, owner: &DataOwner<'_>) -> StoreResult<Option<Arc<EncryptionKey>>> {
        let ring = self.0.keys.current();
        let Some(write_key) = ring.write_key() else {
            return Ok(None);
        };
        let tenant = owner.of_tenant();
        let wrapping = self.current_in(&tenant, write_key).await?;
        if owner.subject.is_none() || self.0.using != DataKeyUse::Subject {
            return Ok(Some(wrapping));
        }
        self.current_in(owner, &wrapping).await.map(Some)
    }

    async fn current_in(
        &self,
        owner: &DataOwner<'_>,
        wrapping: &EncryptionKey,
    ) -> StoreResult<Arc<EncryptionKey>> {
        let root = self.root(owner.environment).await?;
        let first = self.generation(&root, owner);
        for generation in first..=MAX_GENERATIONS {
            let name = root.name(owner, generation);
            let found = match self.load(owner.environment, owner.tenant, name).await {
                Ok(DataKey::Absent) => self.create(owner, name, wrapping).await,
                other => other,
            };
            match found {
                Ok(DataKey::Live(key)) => {
                    let unnumbered = root.name(owner, 0);
                    self.0.generations.insert(unnumbered, generation);
                    return Ok(key);
                }
                // A key that was changed, or is wrapped with a key that is lost, encrypts nothing
                // more. What it has encrypted is refused by name.
                Ok(DataKey::Destroyed | DataKey::Absent) | Err(DataKeyError::Record(_)) => {}
                Err(DataKeyError::Store(error)) => return Err(error),
            }
        }
        Err(owner::exhausted())
    }

    /// The key to encrypt data of `owner` with, if it was looked at lately. Asks no store.
    #[must_use]
    pub fn known(&self, owner: &DataOwner<'_>) -> Option<Arc<EncryptionKey>> {
        let of_subject = self.0.using == DataKeyUse::Subject;
        let owner = match owner.subject {
            Some(_) if of_subject => owner.clone(),
            _ => owner.of_tenant(),
        };
        let root = self.known_root(owner.environment)?;
        let generation = self.0.generations.get(&root.name(&owner, 0))?;
        match self.held(root.name(&owner, generation))? {
            DataKey::Live(key) => Some(key),
            DataKey::Destroyed | DataKey::Absent => None,
        }
    }

    fn generation(&self, root: &Root, owner: &DataOwner<'_>) -> u32 {
        let found = self.0.generations.get(&root.name(owner, 0));
        found.unwrap_or(1)
    }

    /// The data key `name` of a tenant, from memory if it was looked at lately.
    ///
    /// # Errors
    /// [`DataKeyError`] if its record can't be used, or the store gives no answer.
    pub async fn load(
        &self,
        environment: &str,
        tenant: &str,
        name: DataKeyId,
    ) -> Result<DataKey, DataKeyError> {
        let looked_at = self.0.env.clock.now();
        match self.held(name) {
            Some(held) => return Ok(held),
            None => self.0.held.remove(&name),
        };
        let place = Place::of_key(environment, tenant, name)?;
        let Some(record) = self.0.store.read(&place.identity).await? else {
            return Ok(DataKey::Absent);
        };
        let found = self
            .unwrap(environment, tenant, name, &place, record)
            .await?;
        let key = found.clone();
        self.0.held.insert(name, HeldKey { key, looked_at });
        Ok(found)
    }

    async fn unwrap(
        &self,
        environment: &str,
        tenant: &str,
        name: DataKeyId,
        place: &Place,
        record: semel_core::Record,
    ) -> Result<DataKey, DataKeyError> {
        let (record, by) = match WrappedKey::of(record)? {
            WrappedKey::Destroyed => return Ok(DataKey::Destroyed),
            WrappedKey::Kept(record, _, by) => (record, by),
        };
        let ring = self.0.keys.current();
        let wrapping = match by {
            None => None,
            // Only the key of a tenant wraps others: a key that seems to be wrapped with itself was
            // forged.
            Some(by) if by == name => return Err(RecordError::NotAuthentic.into()),
            Some(by) => match Box::pin(self.load(environment, tenant, by)).await? {
                DataKey::Live(key) => Some(key),
                DataKey::Destroyed => return Ok(DataKey::Destroyed),
                DataKey::Absent => return Err(RecordError::NoKey(by.key_id()).into()),
            },
        };
        let keys = RecordKeys {
            ring: &ring,
            data: wrapping.as_deref(),
        };
        let material = unwrap(&keys, &place.identity, &record.checkpoint)?;
        let key = EncryptionKey::for_data(name, &material).ok_or(RecordError::NotAuthentic)?;
        self.keep(&place.identity, &record).await;
        Ok(DataKey::Live(Arc::new(key)))
    }

    /// Writes the record of a key in use again if it is old. If that fails, the next look tries
    /// again.
    async fn keep(&self, identity: &semel_core::Identity, record: &semel_core::Record) {
        if self.0.env.clock.wall().since(record.written_at) >= WRITE_EVERY {
            let grant = Grant::from_record(*identity, record);
            let _ = self.0.store.renew(&grant, None).await;
        }
    }

    async fn create(
        &self,
        owner: &DataOwner<'_>,
        name: DataKeyId,
        wrapping: &EncryptionKey,
    ) -> Result<DataKey, DataKeyError> {
        let place = Place::of_key(owner.environment, owner.tenant, name)?;
        let created = self.create_at(&place, wrapping).await?;
        if let Some(material) = created {
            let key = EncryptionKey::for_data(name, &material).ok_or(RecordError::NotAuthentic)?;
            let looked_at = self.0.env.clock.now();
            let key = DataKey::Live(Arc::new(key));
            let held = HeldKey {
                key: key.clone(),
                looked_at,
            };
            self.0.held.insert(name, held);
            return Ok(key);
        }
        self.load(owner.environment, owner.tenant, name).await
    }

    /// Creates a random key in one atomic step; `None` if another node was first.
    async fn create_at(
        &self,
        place: &Place,
        wrapping: &EncryptionKey,
    ) -> Result<Option<Zeroizing<[u8; 32]>>, DataKeyError> {
        let mut material = Zeroizing::new([0; 32]);
        for half in material.chunks_mut(16) {
            half.copy_from_slice(&self.0.env.entropy.next_u128().to_le_bytes());
        }
        let wrapped = wrap(wrapping, &place.identity, &material)?;
        let (env, store) = (&self.0.env, &self.0.store);
        let now = store.now().await?;
        let record = place.record(env, self.0.secret_id, &material, wrapped, now);
        let record = record.ok_or(RecordError::NotAuthentic)?;
        let restored = store.restore(&place.identity, &record).await?;
        Ok((restored == Restored::Written).then_some(material))
    }

    /// Drops all keys from memory, so that each is looked up again.
    pub fn forget(&self) {
        self.0.held.clear();
        self.0.roots.lock().clear();
    }

    fn held(&self, name: DataKeyId) -> Option<DataKey> {
        let held = self.0.held.get(&name)?;
        let age = self.0.env.clock.now().since(held.looked_at);
        // A key that was destroyed stays so.
        let is_fresh = age < self.0.cache_time || matches!(held.key, DataKey::Destroyed);
        is_fresh.then_some(held.key)
    }

    fn known_root(&self, environment: &str) -> Option<Root> {
        let now = self.0.env.clock.now();
        let roots = self.0.roots.lock();
        let mut found = roots.iter().filter(|(name, ..)| name == environment);
        let (_, root, looked_at) = found.next()?;
        (now.since(*looked_at) < self.0.cache_time).then(|| root.clone())
    }

    /// The key that names are made with; it is created if there is none.
    async fn root(&self, environment: &str) -> StoreResult<Root> {
        if let Some(known) = self.known_root(environment) {
            return Ok(known);
        }
        let looked_at = self.0.env.clock.now();
        let place = Place::of_root(environment)?;
        let ring = self.0.keys.current();
        let root = match self.stored_root(&place, &ring).await? {
            Some(root) => root,
            None => {
                let Some(write_key) = ring.write_key() else {
                    return Err(owner::no_key());
                };
                match self.create_at(&place, write_key).await? {
                    Some(material) => Root::new(&material),
                    None => {
                        let stored = self.stored_root(&place, &ring).await?;
                        stored.ok_or_else(owner::no_key)?
                    }
                }
            }
        };
        let mut roots = self.0.roots.lock();
        roots.retain(|(name, ..)| name != environment);
        if roots.len() >= MAX_ROOTS {
            roots.remove(0);
        }
        roots.push((environment.to_owned(), root.clone(), looked_at));
        Ok(root)
    }

    async fn stored_root(&self, place: &Place, ring: &Keyring) -> Result<Option<Root>, StoreError> {
        let Some(record) = self.0.store.read(&place.identity).await? else {
            return Ok(None);
        };
        match WrappedKey::of(record)? {
            WrappedKey::Kept(record, ..) => {
                let material = unwrap(ring, &place.identity, &record.checkpoint)?;
                self.keep(&place.identity, &record).await;
                Ok(Some(Root::new(&material)))
            }
            WrappedKey::Destroyed => Err(RecordError::NotAuthentic.into()),
        }
    }
}

/// Why a data key can't be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataKeyError {
    /// Its record was changed or moved, or it is wrapped with a key that is not there.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The store gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<DataKeyError> for StoreError {
    fn from(error: DataKeyError) -> Self {
        match error {
            DataKeyError::Record(error) => error.into(),
            DataKeyError::Store(error) => error,
        }
    }
}

impl std::fmt::Debug for DataKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DataKeys({:?})", self.0.using)
    }
}
