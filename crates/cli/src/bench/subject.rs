//! The store under test, and the resources that it reports.

use std::sync::Arc;
use std::time::Duration;

use semel::core::{Env, StoreError};
use semel::{CacheConfig, EngineConfig, Policy, Semel, StoreScheme};
use semel_server::config::without_password;
use semel_stores::mysql::MySqlStore;
use semel_stores::postgres::PostgresStore;
use semel_stores::redis::RedisStore;
use semel_stores::sqlite::SqliteStore;

use crate::exit::{self, Exit};

/// The environment that only the bench uses.
const ENVIRONMENT: &str = "semel-bench";
/// Records that the bench leaves behind expire after this time.
const RETENTION: Duration = Duration::from_secs(15 * 60);

pub(super) struct Subject {
    pub(super) semel: Semel,
    pub(super) env: Env,
    kind: Kind,
}

enum Kind {
    Redis(RedisStore),
    Postgres(PostgresStore),
    MySql(MySqlStore),
    Sqlite(SqliteStore),
    Other,
}

/// The resources that a server has used so far, as far as it reports them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResourceUsage {
    pub(super) bytes: u64,
    pub(super) commands: u64,
    pub(super) wal_bytes: u64,
    pub(super) masters: u64,
}

impl ResourceUsage {
    pub(super) const fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(before.bytes),
            commands: self.commands.saturating_sub(before.commands),
            wal_bytes: self.wal_bytes.saturating_sub(before.wal_bytes),
            masters: self.masters,
        }
    }
}

impl Subject {
    pub(super) async fn open(url: &str) -> Result<Self, Exit> {
        let unusable = |why: String| {
            let message = format!(
                "the store {} can't be used: {why}\n    fix: start it, or check it with `semel \
                 doctor --store URL`",
                without_password(url)
            );
            Exit::failed(exit::STORE, message)
        };
        let env = semel::tokio_env();
        let builder = Semel::builder()
            .environment(ENVIRONMENT)
            .env(env.clone())
            .policy(Policy::default().with_retention(RETENTION))
            .engine_config(
                EngineConfig::default()
                    // Replays must come from the store.
                    .with_cache(CacheConfig::default().with_max_bytes(0)),
            );
        let failed = |error: StoreError| unusable(error.to_string());
        let clock = Arc::clone(&env.clock);
        let (kind, opened) = match StoreScheme::of_url(url) {
            Some(StoreScheme::Redis) => {
                let store = RedisStore::open(url, clock).await.map_err(failed)?;
                let opened = builder.open_on(Arc::new(store.clone())).await;
                (Kind::Redis(store), opened)
            }
            Some(StoreScheme::Postgres) => {
                let store = PostgresStore::open(url, clock).await.map_err(failed)?;
                let opened = builder.open_on(Arc::new(store.clone())).await;
                (Kind::Postgres(store), opened)
            }
            Some(StoreScheme::MySql) => {
                let store = MySqlStore::open(url, clock).await.map_err(failed)?;
                let opened = builder.open_on(Arc::new(store.clone())).await;
                (Kind::MySql(store), opened)
            }
            Some(StoreScheme::Sqlite) => {
                let store = SqliteStore::open(url, clock).await.map_err(failed)?;
                let opened = builder.open_on(Arc::new(store.clone())).await;
                (Kind::Sqlite(store), opened)
            }
            _ => (Kind::Other, builder.open(url).await),
        };
        let semel = opened.map_err(|error| unusable(error.to_string()))?;
        Ok(Self { semel, env, kind })
    }

    pub(super) fn name(&self) -> &'static str {
        self.semel.store().capabilities().name
    }

    /// The store's name and version.
    pub(super) async fn server(&self) -> String {
        let findings = self.semel.store().diagnose().await.unwrap_or_default();
        let version = findings
            .into_iter()
            .find(|finding| finding.check == "version");
        version.map_or_else(|| self.name().to_owned(), |finding| finding.found)
    }

    pub(super) async fn used(&self) -> Result<ResourceUsage, Exit> {
        let failed = |error: StoreError| Exit::failed(exit::STORE, error.to_string());
        Ok(match &self.kind {
            Kind::Redis(store) => {
                let usage = store.usage().await.map_err(failed)?;
                ResourceUsage {
                    bytes: usage.bytes,
                    commands: usage.commands,
                    masters: usage.masters,
                    ..ResourceUsage::default()
                }
            }
            Kind::Postgres(store) => {
                let usage = store.usage().await.map_err(failed)?;
                ResourceUsage {
                    bytes: usage.bytes,
                    wal_bytes: usage.wal_bytes,
                    masters: 1,
                    ..ResourceUsage::default()
                }
            }
            Kind::MySql(store) => {
                let usage = store.usage().await.map_err(failed)?;
                ResourceUsage {
                    bytes: usage.bytes,
                    wal_bytes: usage.log_bytes,
                    masters: 1,
                    ..ResourceUsage::default()
                }
            }
            Kind::Sqlite(store) => {
                let usage = store.usage().await.map_err(failed)?;
                ResourceUsage {
                    bytes: usage.bytes,
                    masters: 1,
                    ..ResourceUsage::default()
                }
            }
            Kind::Other => ResourceUsage::default(),
        })
    }
}
