//! [`Encryption`]: encrypted records of a [`Semel`](crate::Semel), and new keys while it serves.

use std::sync::Arc;
use std::time::Duration;

use semel_core::{Env, StoreAdmin};
use semel_stores::encrypted::canary::{self, KeyCanaryError};
use semel_stores::encrypted::{
    DEFAULT_CACHE_TIME, DataKeyUse, DataKeys, EncryptedStore, Keyring, SharedKeyring,
};

/// How records are encrypted.
#[derive(Clone, Debug)]
pub struct Encryption {
    keys: SharedKeyring,
    refuses_plain: bool,
    data_keys: DataKeyUse,
    data_key_cache: Duration,
}

impl Encryption {
    /// With these keys. Records in plain text are read too.
    #[must_use]
    pub fn new(keys: Keyring) -> Self {
        Self {
            keys: SharedKeyring::new(keys),
            refuses_plain: false,
            data_keys: DataKeyUse::Off,
            data_key_cache: DEFAULT_CACHE_TIME,
        }
    }

    /// Gives each tenant, or each subject that a caller names, a key of its own, so that their data
    /// can be erased:
    /// [`Semel::erase`](crate::Semel::erase). Off unless set; what was encrypted with such keys is
    /// read in any case. Not while records move between two stores.
    #[must_use]
    pub const fn data_keys(mut self, using: DataKeyUse) -> Self {
        self.data_keys = using;
        self
    }

    /// How long such a key is used without a look at its record, and so how long an erasure by
    /// another process may go unnoticed. 30 s.
    #[must_use]
    pub const fn data_key_cache(mut self, time: Duration) -> Self {
        self.data_key_cache = time;
        self
    }

    pub(crate) const fn uses_data_keys(&self) -> bool {
        !matches!(self.data_keys, DataKeyUse::Off)
    }

    /// The data keys that `store` keeps.
    pub(crate) fn data_keys_of(
        &self,
        store: Arc<dyn StoreAdmin>,
        env: &Env,
        secret_id: u16,
    ) -> DataKeys {
        let keys = DataKeys::new(store, self.keys.clone(), env.clone());
        keys.with_settings(self.data_keys, self.data_key_cache, secret_id)
    }

    /// Refuses records in plain text, once all are encrypted: nobody with access to the store can
    /// then pass off a forged record.
    #[must_use]
    pub const fn refuse_plain(mut self, refuses: bool) -> Self {
        self.refuses_plain = refuses;
        self
    }

    /// The store with encryption. `has_bodies` says whether it lies around a blob store.
    pub(crate) fn around(
        &self,
        store: Arc<dyn StoreAdmin>,
        has_bodies: bool,
        data_keys: Option<DataKeys>,
    ) -> Arc<dyn StoreAdmin> {
        let keys = self.keys.clone();
        let mut encrypted = EncryptedStore::new(store, keys, self.refuses_plain);
        if let Some(data_keys) = data_keys {
            encrypted = encrypted.with_data_keys(data_keys);
        }
        Arc::new(match has_bodies {
            true => encrypted.with_body_store(),
            false => encrypted,
        })
    }

    /// Whether records can be written that are accepted when they are read.
    fn check_writes(&self, keys: &Keyring) -> Result<(), KeyCanaryError> {
        match self.refuses_plain && keys.write_key().is_none() {
            true => Err(KeyCanaryError::PlainRefused),
            false => Ok(()),
        }
    }
}

/// The keys of an open [`Semel`](crate::Semel), and what is needed to change them.
pub(crate) struct OpenKeys {
    pub(crate) encryption: Encryption,
    /// The store without encryption, for the canaries.
    pub(crate) bare: Arc<dyn StoreAdmin>,
    /// The keys of tenants and subjects; `None` with two stores.
    pub(crate) data: Option<DataKeys>,
    pub(crate) env: Env,
    pub(crate) environment: String,
    pub(crate) secret_id: u16,
}

impl OpenKeys {
    /// At start: checks the keys, and adds canaries for new ones unless this is a tool.
    pub(crate) async fn check(&self, is_tool: bool) -> Result<(), KeyCanaryError> {
        let keys = self.encryption.keys.current();
        self.encryption.check_writes(&keys)?;
        if is_tool {
            return canary::check_read_only(&*self.bare, &self.env, &keys, &self.environment).await;
        }
        self.add(&keys).await
    }

    /// Uses other keys from now on. Their canaries come first: a node that starts later with these
    /// keys alone is let in.
    pub(crate) async fn replace(&self, keys: Keyring) -> Result<(), KeyCanaryError> {
        self.encryption.check_writes(&keys)?;
        self.add(&keys).await?;
        self.encryption.keys.replace(keys);
        Ok(())
    }

    async fn add(&self, keys: &Keyring) -> Result<(), KeyCanaryError> {
        let (env, environment) = (&self.env, &self.environment);
        canary::check(&*self.bare, env, keys, environment, self.secret_id).await
    }
}
