//! Opens stores by their URLs.

use std::sync::{Arc, Weak};
use std::time::Duration;

use semel_core::{Env, MemoryStore, StoreAdmin};
use semel_stores::compose::Mirror;

use crate::error::OpenError;
use crate::runtime::tokio_env;
use crate::url::{StoreKind, memory_config, one_or_two, read};

/// An opened store, with handles for what only one kind can do.
pub(crate) struct OpenedStore {
    pub(crate) store: Arc<dyn StoreAdmin>,
    /// The two stores in which the same records are kept, if there are two.
    pub(crate) pair: Option<[Arc<dyn StoreAdmin>; 2]>,
    #[cfg(feature = "mysql")]
    pub(crate) mysql: Option<semel_stores::mysql::MySqlStore>,
    #[cfg(feature = "object")]
    pub(crate) object: Option<semel_stores::object::ObjectStore>,
    #[cfg(feature = "postgres")]
    pub(crate) postgres: Option<semel_stores::postgres::PostgresStore>,
}

impl From<Arc<dyn StoreAdmin>> for OpenedStore {
    fn from(store: Arc<dyn StoreAdmin>) -> Self {
        Self {
            store,
            pair: None,
            #[cfg(feature = "mysql")]
            mysql: None,
            #[cfg(feature = "object")]
            object: None,
            #[cfg(feature = "postgres")]
            postgres: None,
        }
    }
}

/// Opens the store at `url` (see [`Semel::open`](crate::Semel::open)) for operators' work, without
/// an engine.
///
/// # Errors
/// [`OpenError`] says what is wrong and what to do.
pub async fn open_store(url: &str) -> Result<Arc<dyn StoreAdmin>, OpenError> {
    Ok(open_stores(url, &tokio_env()).await?.store)
}

/// One store, or two in which the same records are kept (see [`Mirror`]).
pub(crate) async fn open_stores(urls: &str, env: &Env) -> Result<OpenedStore, OpenError> {
    let (first, second) = one_or_two(urls)?;
    let first = open_one(first, env).await?;
    let Some(second) = second else {
        return Ok(first);
    };
    let second = open_one(second, env).await?;
    let pair = [first.store, second.store];
    let both = mirror(pair.clone());
    Ok(OpenedStore {
        pair: Some(pair),
        ..OpenedStore::from(both)
    })
}

pub(crate) fn mirror([first, second]: [Arc<dyn StoreAdmin>; 2]) -> Arc<dyn StoreAdmin> {
    Arc::new(Mirror::new(first, second))
}

async fn open_one(url: &str, env: &Env) -> Result<OpenedStore, OpenError> {
    let (kind, rest) = read(url)?;
    match kind {
        StoreKind::Memory => {
            let config = memory_config(rest)?;
            let store = MemoryStore::new(config, Arc::clone(&env.clock));
            Ok(OpenedStore::from(Arc::new(store) as Arc<dyn StoreAdmin>))
        }
        #[cfg(feature = "mysql")]
        StoreKind::MySql => {
            let open = semel_stores::mysql::MySqlStore::open(url, Arc::clone(&env.clock));
            let store = open.await.map_err(OpenError::Store)?;
            let mut opened = OpenedStore::from(Arc::new(store.clone()) as Arc<dyn StoreAdmin>);
            opened.mysql = Some(store);
            Ok(opened)
        }
        #[cfg(feature = "postgres")]
        StoreKind::Postgres => {
            let open = semel_stores::postgres::PostgresStore::open(url, Arc::clone(&env.clock));
            let store = open.await.map_err(OpenError::Store)?;
            let mut opened = OpenedStore::from(Arc::new(store.clone()) as Arc<dyn StoreAdmin>);
            opened.postgres = Some(store);
            Ok(opened)
        }
        #[cfg(feature = "object")]
        StoreKind::Object => {
            let open = semel_stores::object::ObjectStore::open(url, Arc::clone(&env.clock));
            let store = Box::pin(open).await.map_err(OpenError::Store)?;
            let mut opened = OpenedStore::from(Arc::new(store.clone()) as Arc<dyn StoreAdmin>);
            opened.object = Some(store);
            Ok(opened)
        }
        #[cfg(feature = "redis")]
        StoreKind::Redis => {
            let open = semel_stores::redis::RedisStore::open(url, Arc::clone(&env.clock));
            let store = open.await.map_err(OpenError::Store)?;
            Ok(OpenedStore::from(Arc::new(store) as Arc<dyn StoreAdmin>))
        }
        #[cfg(feature = "sqlite")]
        StoreKind::Sqlite => {
            let open = semel_stores::sqlite::SqliteStore::open(url, Arc::clone(&env.clock));
            let store = open.await.map_err(OpenError::Store)?;
            Ok(OpenedStore::from(Arc::new(store) as Arc<dyn StoreAdmin>))
        }
    }
}

const SWEEP_EVERY: Duration = Duration::from_secs(5 * 60);
const SWEEP_AT_ONCE: usize = 10_000;

/// Removes expired records every five minutes, for as long as the store is in use, and calls
/// `report` with their number.
pub(crate) fn start_sweeping(
    store: Weak<dyn StoreAdmin>,
    env: &Env,
    report: impl Fn(u64) + Send + 'static,
) {
    let clock = Arc::clone(&env.clock);
    env.spawn.spawn(Box::pin(async move {
        loop {
            clock.sleep(SWEEP_EVERY).await;
            let Some(store) = store.upgrade() else { return };
            let records = sweep(&*store).await;
            if records > 0 {
                report(records);
            }
        }
    }));
}

/// Removes all expired records, and returns how many. A failed sweep costs room, not correctness;
/// the next one tries again.
async fn sweep(store: &dyn StoreAdmin) -> u64 {
    let mut records = 0;
    while let Ok(removed) = store.sweep(SWEEP_AT_ONCE).await {
        records += removed as u64;
        if removed < SWEEP_AT_ONCE {
            break;
        }
    }
    records
}
