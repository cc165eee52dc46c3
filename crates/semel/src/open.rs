//! [`Semel`]: opens a store by its URL, ready to run operations.

use std::sync::Arc;

use semel_core::canary;
use semel_core::engine::{Engine, EngineConfig};
use semel_core::event::{NoopObserver, Observer, ObserverList, Step};
use semel_core::policy::Policy;
use semel_core::{Env, KeyRules, Namespace, Secret, StoreAdmin};
use semel_stores::compressed::CompressedStore;
use semel_stores::encrypted;

use crate::encryption::{Encryption, OpenKeys};
use crate::error::OpenError;
use crate::runtime::tokio_env;
use crate::stores::{OpenedStore, mirror, open_stores, start_sweeping};

/// The idempotency layer: a store, and an engine on it. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use semel::Semel;
///
/// let semel = Semel::open("memory://").await?;
/// let answer = semel.operation("greet").key("k-1").payload(&"world").run(|_| async {
///     Ok::<_, std::io::Error>("hello".to_owned())
/// });
/// assert_eq!(answer.await?.value, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Semel {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<dyn StoreAdmin>,
    pub(crate) environment: String,
    pub(crate) policy: Arc<Policy>,
    pub(crate) key_rules: KeyRules,
    keys: Option<OpenKeys>,
    #[cfg(feature = "mysql")]
    pub(crate) mysql: Option<semel_stores::mysql::MySqlStore>,
    #[cfg(feature = "object")]
    object: Option<semel_stores::object::ObjectStore>,
    #[cfg(feature = "postgres")]
    pub(crate) postgres: Option<semel_stores::postgres::PostgresStore>,
}

impl Semel {
    /// Opens the store at `url` with default settings.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `memory://` | this process's memory, at most 200,000 records |
    /// | `memory://?capacity=1000` | the same, with another bound |
    /// | `mysql://user@127.0.0.1/database` | MariaDB ≥ 10.6 or MySQL ≥ 8.0 (feature `mysql`); also `mariadb://` |
    /// | `postgres://user@127.0.0.1/database` | PostgreSQL ≥ 14 (feature `postgres`) |
    /// | `s3://bucket/prefix` | S3 and what speaks it (feature `object`); also `gs://`, `az://` |
    /// | `redis://127.0.0.1:6379/0` | Redis ≥ 7.0 or Valkey (feature `redis`); also `rediss://`, `redis+sentinel://`, `redis+cluster://` |
    /// | `sqlite:///var/lib/semel/keys.db` | a file on this host, for several processes (feature `sqlite`) |
    ///
    /// Two URLs with a space between them keep the same records in both stores, for a live
    /// migration.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong and what to do.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::builder().open(url).await
    }

    /// Starts with default settings, to change some.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The engine, for authors of a front end.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// The environment of all keys; empty if there is only one.
    #[must_use]
    pub fn environment(&self) -> &str {
        &self.shared.environment
    }

    /// How operations are treated that don't say otherwise.
    #[must_use]
    pub fn policy(&self) -> &Arc<Policy> {
        &self.shared.policy
    }

    /// What a key may look like.
    #[must_use]
    pub fn key_rules(&self) -> &KeyRules {
        &self.shared.key_rules
    }

    /// Completes when no work is left. Call it after the server has stopped taking requests, so
    /// that effects whose callers are gone are not cut off.
    pub async fn idle(&self) {
        self.engine().idle().await;
    }

    /// The store, for operators' work: listing, deleting, sweeping.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn StoreAdmin> {
        &self.shared.store
    }

    /// Uses other encryption keys from now on, after a check that the store is not used with
    /// others. A key that records need must stay among them.
    ///
    /// # Errors
    /// [`OpenError::Encryption`] if these keys must not be used, and the keys stay as they were.
    /// Always, if it was opened without encryption.
    pub async fn replace_keys(&self, keys: encrypted::Keyring) -> Result<(), OpenError> {
        match &self.shared.keys {
            Some(open) => Ok(open.replace(keys).await?),
            None => Err(encrypted::canary::KeyCanaryError::NotEncrypted.into()),
        }
    }

    /// Whether records are encrypted, or may be.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.shared.keys.is_some()
    }

    /// The keys of tenants and subjects; `None` without encryption, or with two stores.
    #[must_use]
    pub fn data_keys(&self) -> Option<&encrypted::DataKeys> {
        self.shared.keys.as_ref()?.data.as_ref()
    }

    /// Erases what operations of `tenant`, or of one `subject` of it, have left: their answers and
    /// checkpoints. Their keys are destroyed, so nobody can read them any more, and the records
    /// stay, so that no effect runs again. A replay says that the answer was erased
    /// ([`Code::AnswerErased`](semel_core::Code::AnswerErased)).
    ///
    /// Reaches what was encrypted with data keys
    /// ([`Encryption::data_keys`](crate::Encryption::data_keys)). Other processes notice it within
    /// their cache time of data keys and of local replays, 30 s each unless set.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use semel::encrypted::{DataKeyUse, EncryptionKey, Keyring, WriteKey};
    /// use semel::{DataSubject, Encryption, Semel};
    ///
    /// let key = EncryptionKey::new(1, &[7; 32]).ok_or("an id from 1")?; // from a file, in earnest
    /// let keys = Keyring::new(vec![key], WriteKey::Newest)?;
    /// let encryption = Encryption::new(keys).data_keys(DataKeyUse::Subject);
    /// let semel = Semel::builder().encryption(encryption).open("memory://").await?;
    ///
    /// let charge = || semel.operation("charge").subject("customer-17").key("ord-1").payload(&100);
    /// charge().run(|_| async { Ok::<_, std::io::Error>("receipt".to_owned()) }).await?;
    ///
    /// let erased = semel.erase("", Some(DataSubject::new("customer-17")?)).await?;
    /// assert_eq!(erased.destroyed, 1);
    /// let again = charge().run(|_| async { Ok::<_, std::io::Error>("twice".to_owned()) }).await;
    /// assert!(again.unwrap_err().to_string().contains("erased"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the store gives no answer, or there are no data keys. The same call may be made again.
    pub async fn erase(
        &self,
        tenant: &str,
        subject: Option<semel_core::DataSubject>,
    ) -> semel_core::StoreResult<encrypted::Erased> {
        let Some(keys) = self.data_keys() else {
            let (kind, certainty) = (
                semel_core::StoreErrorKind::Rejected,
                semel_core::Certainty::Definite,
            );
            let reason = "records are not encrypted, so there is no key to destroy";
            return Err(semel_core::StoreError::new(kind, certainty, reason));
        };
        let owner = encrypted::DataOwner::new(&self.shared.environment, tenant);
        let erased = keys.erase(&owner.with_subject(subject)).await;
        self.engine().forget_replays();
        erased
    }

    /// The store, if the records are in a bucket: for other objects in the same bucket.
    #[cfg(feature = "object")]
    #[must_use]
    pub fn object(&self) -> Option<&semel_stores::object::ObjectStore> {
        self.shared.object.as_ref()
    }

    /// The store, if the records are in PostgreSQL: for extra SQL in the same statements.
    #[cfg(feature = "postgres")]
    #[must_use]
    pub fn postgres(&self) -> Option<&semel_stores::postgres::PostgresStore> {
        self.shared.postgres.as_ref()
    }
}

impl std::fmt::Debug for Semel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Semel({})", self.shared.store.capabilities().name)
    }
}

/// Settings of a [`Semel`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use semel::{CrashPolicy, Policy, Semel};
///
/// let semel = Semel::builder()
///     .environment("staging")
///     .policy(Policy::default().with_crash(CrashPolicy::Hold))
///     .open("memory://")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until `open`"]
pub struct Builder {
    environment: String,
    policy: Policy,
    config: EngineConfig,
    key_rules: KeyRules,
    secret: Secret,
    observers: Vec<Arc<dyn Observer>>,
    env: Option<Env>,
    tool: bool,
    encryption: Option<Encryption>,
    compresses: bool,
    #[cfg(feature = "object")]
    bodies: Option<(String, usize)>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            environment: String::new(),
            policy: Policy::default(),
            config: EngineConfig::default(),
            key_rules: KeyRules::default(),
            secret: Secret::none(),
            observers: Vec::new(),
            env: None,
            tool: false,
            encryption: None,
            compresses: false,
            #[cfg(feature = "object")]
            bodies: None,
        }
    }
}

impl Builder {
    /// The environment, such as `production`: equal keys of different environments are different
    /// keys. Empty by default.
    pub fn environment(mut self, environment: &str) -> Self {
        environment.clone_into(&mut self.environment);
        self
    }

    /// How operations are treated that don't say otherwise.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The settings of the whole process: waiters, circuit breaker, local replays.
    pub const fn engine_config(mut self, config: EngineConfig) -> Self {
        self.config = config;
        self
    }

    /// What a key may look like.
    pub fn key_rules(mut self, rules: KeyRules) -> Self {
        self.key_rules = rules;
        self
    }

    /// The secret that keys identities and fingerprints: the same on every node.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = secret;
        self
    }

    /// An observer that gets all events. Each call adds one.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Another environment than Tokio's, such as a test's clock or a simulation.
    pub fn env(mut self, env: Env) -> Self {
        self.env = Some(env);
        self
    }

    /// For a tool that only manages records: it doesn't bind a new store to its own secret.
    pub const fn tool(mut self) -> Self {
        self.tool = true;
        self
    }

    /// Bodies of more than `above` bytes are kept in the bucket at `url` (`s3://`, `gs://`,
    /// `az://`) instead of the store, with which every node must be opened. See
    /// [`Spill`](semel_stores::compose::Spill) for what that changes, and what it doesn't.
    #[cfg(feature = "object")]
    pub fn body_store(mut self, url: &str, above: usize) -> Self {
        self.bodies = Some((url.to_owned(), above));
        self
    }

    /// Encrypts answers and checkpoints in the store, and in the blob store. Not together with
    /// `run_in` and jobs, which write records in statements of their own: those then find no store
    /// to use.
    pub fn encryption(mut self, encryption: Encryption) -> Self {
        self.encryption = Some(encryption);
        self
    }

    /// Compresses answers of 1 KiB and more, each by itself, where that makes them smaller. Off by
    /// default: who can see sizes in the store then learns something of what is in an answer. Every
    /// process reads compressed answers, with this setting or without. Answers of `run_in` and of
    /// jobs are not compressed; a key that is used with both gets an error from `run_in`.
    pub const fn compress_answers(mut self, compresses: bool) -> Self {
        self.compresses = compresses;
        self
    }

    /// Opens the store at `url`.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong and what to do.
    pub async fn open(self, url: &str) -> Result<Semel, OpenError> {
        let env = self.env.clone().unwrap_or_else(tokio_env);
        let store = open_stores(url, &env).await?;
        self.on(store, env).await
    }

    /// Uses a given store.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong and what to do.
    pub async fn open_on(self, store: Arc<dyn StoreAdmin>) -> Result<Semel, OpenError> {
        let env = self.env.clone().unwrap_or_else(tokio_env);
        self.on(store.into(), env).await
    }

    async fn on(mut self, mut opened: OpenedStore, env: Env) -> Result<Semel, OpenError> {
        let bare = Arc::clone(&opened.store);
        let (wrapped, data) = self.wrapped(opened, &env).await?;
        opened = wrapped;
        let store: Arc<dyn StoreAdmin> =
            Arc::new(CompressedStore::new(opened.store, self.compresses));
        self.policy.terms()?;
        semel_core::Namespace::new(&self.environment, "", "any")?;
        let capabilities = store.capabilities();
        if capabilities.shared || capabilities.durable {
            match self.tool {
                true => {
                    canary::check_read_only(&*bare, &env, &self.secret, &self.environment).await?;
                }
                false => canary::check(&*bare, &env, &self.secret, &self.environment).await?,
            }
        }
        if self.encryption.is_none() {
            let none = encrypted::Keyring::empty();
            encrypted::canary::check_read_only(&*bare, &env, &none, &self.environment).await?;
        }
        let keys = self.encryption.map(|encryption| OpenKeys {
            encryption,
            bare,
            data,
            env: env.clone(),
            environment: self.environment.clone(),
            secret_id: self.secret.id(),
        });
        if let Some(keys) = &keys {
            keys.check(self.tool).await?;
        }
        let sweeping = env.clone();
        let observer: Arc<dyn Observer> = match self.observers.len() {
            0 | 1 => self
                .observers
                .pop()
                .unwrap_or_else(|| Arc::new(NoopObserver)),
            _ => Arc::new(ObserverList::new(self.observers)),
        };
        let engine = Engine::with(store.clone(), env, self.secret, self.config, observer);
        let shared = Shared {
            engine,
            store,
            environment: self.environment,
            policy: Arc::new(self.policy),
            key_rules: self.key_rules,
            keys,
            #[cfg(feature = "mysql")]
            mysql: opened.mysql,
            #[cfg(feature = "object")]
            object: opened.object,
            #[cfg(feature = "postgres")]
            postgres: opened.postgres,
        };
        let shared = Arc::new(shared);
        let reporting = Arc::downgrade(&shared);
        start_sweeping(Arc::downgrade(&shared.store), &sweeping, move |records| {
            if let Some(shared) = reporting.upgrade() {
                shared.report_sweep(records);
            }
        });
        Ok(Semel { shared })
    }
}

/// A sweep concerns all scopes; its event has this one.
const SWEEP_SCOPE: &str = "sweep";

impl Shared {
    fn report_sweep(&self, records: u64) {
        if let Ok(namespace) = Namespace::new(&self.environment, "", SWEEP_SCOPE) {
            self.engine
                .report(&namespace, None, Step::Swept { records });
        }
    }
}

impl Builder {
    /// The store with what is configured around it: the blob store for large bodies, and encryption
    /// around both. Of two stores each is encrypted by itself, because an encrypted answer belongs
    /// to one store's record.
    async fn wrapped(
        &self,
        mut opened: OpenedStore,
        env: &Env,
    ) -> Result<(OpenedStore, Option<encrypted::DataKeys>), OpenError> {
        let Some(encryption) = self.encryption.as_ref() else {
            opened.store = self.with_body_store(opened.store, env).await?;
            // A tool says that a record is encrypted, instead of showing it so.
            if self.tool {
                let none = Encryption::new(encrypted::Keyring::empty());
                opened.store = none.around(opened.store, self.has_bodies(), None);
            }
            return Ok((opened, None));
        };
        let has_bodies = self.has_bodies();
        let data_of = |store: &Arc<dyn StoreAdmin>| {
            encryption.data_keys_of(Arc::clone(store), env, self.secret.id())
        };
        let mut data = None;
        opened.store = match opened.pair.take() {
            None => {
                let store = self.with_body_store(opened.store, env).await?;
                data = Some(data_of(&store));
                encryption.around(store, has_bodies, data.clone())
            }
            Some(_) if encryption.uses_data_keys() => {
                return Err(encrypted::canary::KeyCanaryError::DataKeysOfTwoStores.into());
            }
            Some([first, second]) => {
                let first = self.with_body_store(first, env).await?;
                let second = self.with_body_store(second, env).await?;
                let both = [first, second];
                mirror(both.map(|store| {
                    let data = data_of(&store);
                    encryption.around(store, has_bodies, Some(data))
                }))
            }
        };
        Ok((OpenedStore::from(opened.store), data))
    }

    const fn has_bodies(&self) -> bool {
        #[cfg(feature = "object")]
        return self.bodies.is_some();
        #[cfg(not(feature = "object"))]
        return false;
    }

    #[cfg(not(feature = "object"))]
    async fn with_body_store(
        &self,
        store: Arc<dyn StoreAdmin>,
        _: &Env,
    ) -> Result<Arc<dyn StoreAdmin>, OpenError> {
        Ok(store)
    }

    /// Adds the blob store for large bodies, if one is configured.
    #[cfg(feature = "object")]
    async fn with_body_store(
        &self,
        store: Arc<dyn StoreAdmin>,
        env: &Env,
    ) -> Result<Arc<dyn StoreAdmin>, OpenError> {
        use semel_stores::compose::Spill;
        use semel_stores::object::ObjectBodies;
        let Some((url, above)) = &self.bodies else {
            return Ok(store);
        };
        let bodies = Box::pin(ObjectBodies::open(url, Arc::clone(&env.clock))).await;
        let bodies = Arc::new(bodies.map_err(OpenError::Bodies)?);
        Ok(Arc::new(Spill::new(
            store,
            bodies,
            *above,
            Arc::clone(&env.clock),
        )))
    }
}
