//! Routes commands to the server that has their key: one server, a sentinel's master, or a cluster.

use std::sync::Arc;

use redis::aio::PubSub;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{Cmd, RedisError, ServerErrorKind, TlsMode, Value};
use semel_core::{Certainty, Clock, StoreError, StoreErrorKind, StoreResult};

use super::cluster::Cluster;
use super::durability::Durability;
use super::error::{Failure, unexpected};
use super::finder::Finder;
use super::node::Node;
use super::script::Script;
use super::url::{Access, Host, Target, Topology};

/// All servers of a store.
pub(super) struct Link {
    routes: Routes,
    level: Durability,
}

enum Routes {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Link {
    pub(super) async fn open(target: Target, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let Target {
            topology,
            access,
            durability,
            ..
        } = target;
        let one = |finder| Routes::One(Arc::new(Node::new(finder)));
        let routes =
            match topology {
                Topology::One(host) => one(Finder::Fixed(
                    access.client(&host).map_err(Failure::NotSent)?,
                )),
                Topology::Sentinel {
                    sentinels,
                    master,
                    access: to_sentinels,
                } => one(sentinel(&sentinels, &master, &to_sentinels, &access)
                    .map_err(Failure::NotSent)?),
                Topology::Cluster(seeds) => {
                    Routes::Cluster(Arc::new(Cluster::open(access, seeds, clock).await?))
                }
            };
        Ok(Self {
            routes,
            level: durability,
        })
    }

    /// Sends one command about `key`; its answer has the store's level of durability.
    pub(super) async fn query(&self, key: &[u8], cmd: &Cmd) -> StoreResult<Value> {
        Ok(self.send(key, cmd, self.level).await?)
    }

    /// Rejects a durability level that a server doesn't support, or can't reach as it is
    /// configured.
    pub(super) async fn has_level(&self) -> StoreResult<()> {
        let Some(probe) = self.level.probe() else {
            return Ok(());
        };
        let (_, masters) = self.masters();
        for node in masters {
            node.ask(&probe).await.map_err(|error| match error.kind {
                StoreErrorKind::Rejected => {
                    let said = "the server can't give the durability that the URL asks for: WAITAOF \
                                needs Redis 7.2 or Valkey, appendonly, and permission";
                    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, said)
                }
                _ => error,
            })?;
        }
        Ok(())
    }

    /// Whether an answer that was only read has to be confirmed before it is given.
    pub(super) fn is_confirming(&self) -> bool {
        self.level != Durability::Server
    }

    /// The durability level of answers.
    pub(super) const fn level(&self) -> Durability {
        self.level
    }

    /// Sends one command about `key` at the server's own durability level.
    pub(super) async fn peek(&self, key: &[u8], cmd: &Cmd) -> StoreResult<Value> {
        Ok(self.send(key, cmd, Durability::Server).await?)
    }

    /// Calls a script by its SHA-1, or by its text if the server doesn't know it.
    pub(super) async fn run(
        &self,
        script: &Script,
        key: &[u8],
        arguments: &[&[u8]],
    ) -> StoreResult<Value> {
        self.run_at(script, key, arguments, self.level).await
    }

    /// Like [`Self::run`], for a hint.
    pub(super) async fn run_hint(
        &self,
        script: &Script,
        key: &[u8],
        arguments: &[&[u8]],
    ) -> StoreResult<Value> {
        self.run_at(script, key, arguments, Durability::Server)
            .await
    }

    async fn run_at(
        &self,
        script: &Script,
        key: &[u8],
        arguments: &[&[u8]],
        level: Durability,
    ) -> StoreResult<Value> {
        match self.send(key, &script.by_sha1(key, arguments), level).await {
            Err(failure) if failure.server_kind() == Some(ServerErrorKind::NoScript) => Ok(self
                .send(key, &script.by_text(key, arguments), level)
                .await?),
            answer => Ok(answer?),
        }
    }

    async fn send(&self, key: &[u8], cmd: &Cmd, level: Durability) -> Result<Value, Failure> {
        match &self.routes {
            Routes::One(node) => node.send(cmd, level, false).await,
            Routes::Cluster(cluster) => Box::pin(cluster.send(key, cmd, level)).await,
        }
    }

    /// All masters in a stable order, and a number that changes when the order does.
    pub(super) fn masters(&self) -> (u64, Vec<Arc<Node>>) {
        match &self.routes {
            Routes::One(node) => (0, vec![Arc::clone(node)]),
            Routes::Cluster(cluster) => cluster.masters(),
        }
    }

    /// Learns anew who the masters are, if there are several.
    pub(super) async fn learn(&self) -> StoreResult<()> {
        match &self.routes {
            Routes::One(_) => Ok(()),
            Routes::Cluster(cluster) => Box::pin(cluster.learn()).await,
        }
    }

    /// A pub/sub connection. In a cluster, messages reach all servers.
    pub(super) async fn listen(&self) -> StoreResult<PubSub> {
        let (_, masters) = self.masters();
        let Some(node) = masters.first() else {
            return Err(unexpected("no server to listen to"));
        };
        Ok(node.listen().await.map_err(Failure::NotSent)?)
    }
}

impl Node {
    /// Sends this server a command without a key.
    pub(super) async fn ask(&self, cmd: &Cmd) -> StoreResult<Value> {
        Ok(self.send(cmd, Durability::Server, false).await?)
    }
}

fn sentinel(
    sentinels: &[Host],
    master: &str,
    to_sentinels: &Access,
    to_servers: &Access,
) -> Result<Finder, RedisError> {
    let addresses = sentinels.iter().map(|host| to_sentinels.address(host));
    let mut builder = SentinelClientBuilder::new(addresses, master, SentinelServerType::Master)?;
    builder = builder.set_client_to_redis_db(to_servers.login.db());
    if let Some(name) = to_servers.login.username() {
        builder = builder.set_client_to_redis_username(name);
    }
    if let Some(password) = to_servers.login.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some(name) = to_sentinels.login.username() {
        builder = builder.set_client_to_sentinel_username(name);
    }
    if let Some(password) = to_sentinels.login.password() {
        builder = builder.set_client_to_sentinel_password(password);
    }
    if let Some(certificates) = &to_servers.tls {
        builder = builder
            .set_client_to_redis_tls_mode(TlsMode::Secure)
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_tls_mode(TlsMode::Secure)
            .set_client_to_sentinel_certificates(certificates.clone());
    }
    Ok(Finder::Sentinel(tokio::sync::Mutex::new(builder.build()?)))
}
