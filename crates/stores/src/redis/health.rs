//! Health probe: checks at start, and every half minute, that the servers are fit to keep records.
//!
//! A Redis that evicts keys when its memory is full loses records, and the next retry repeats the
//! effect. Such a server is rejected at start, and detected if the setting changes later. A server
//! that was replaced or restarted is detected too: writes that were not replicated or on disk are
//! lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use futures_util::future::join_all;
use parking_lot::Mutex;
use semel_core::{Certainty, Clock, StoreError, StoreErrorKind, StoreResult, Timestamp};

use super::Inner;
use super::error::unexpected;
use super::link::Link;
use super::node::Node;
use super::time::ASK_EVERY;

/// How many refreshes of the time pass between two probes.
const LOOK_EVERY: u32 = 3;

/// What is known of the servers, as of the last look: at most half a minute old, or older if no
/// server has answered since.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisHealth {
    /// Name and version, such as `Redis 7.0.15`; of the oldest, if there are several.
    pub version: String,
    /// Masters in use.
    pub masters: usize,
    /// The replicas of the master that has the fewest.
    pub replicas: usize,
    /// Whether a master is set to evict keys when its memory is full. New claims are refused then.
    pub evicts: bool,
    /// How many masters were seen to have been restarted, to have taken another's place, or to have
    /// joined since the store was opened. Before a failover without a level of durability, what had
    /// not reached the replica was lost.
    pub changes: u64,
    /// When that was last seen, on the server's clock.
    pub changed_at: Option<Timestamp>,
}

/// The state of the servers, as of the last probe.
pub(super) struct HealthWatch {
    /// Whether all have `SET … IFEQ`.
    has_ifeq: AtomicBool,
    /// Read by every claim.
    evicts: AtomicBool,
    seen: Mutex<KnownServers>,
}

struct KnownServers {
    health: RedisHealth,
    /// Run id and replication id of each master.
    ids: Vec<(String, String)>,
}

impl HealthWatch {
    /// Probes the servers for the first time.
    pub(super) async fn new(link: &Link) -> StoreResult<Self> {
        let looks = look(link).await?;
        for look in &looks {
            look.is_usable()?;
        }
        let watch = Self {
            has_ifeq: AtomicBool::new(have_ifeq(&looks)),
            evicts: AtomicBool::new(looks.iter().any(|look| look.evicts)),
            seen: Mutex::new(KnownServers {
                health: health(&looks),
                ids: ids(looks),
            }),
        };
        watch.is_fit()?;
        Ok(watch)
    }

    /// Refuses while a server is set to evict keys.
    pub(super) fn is_fit(&self) -> StoreResult<()> {
        if self.evicts.load(Ordering::Relaxed) {
            let said = "the server evicts keys when its memory is full, and would forget what was \
                        done; set maxmemory-policy to noeviction";
            return Err(rejected(said));
        }
        Ok(())
    }

    /// Whether a settlement may be one plain command.
    pub(super) fn has_ifeq(&self) -> bool {
        self.has_ifeq.load(Ordering::Relaxed)
    }

    /// Notes that a server rejected `SET … IFEQ`. None is sent until the next probe.
    pub(super) fn lacks_ifeq(&self) {
        self.has_ifeq.store(false, Ordering::Relaxed);
    }

    pub(super) fn health(&self) -> RedisHealth {
        self.seen.lock().health.clone()
    }

    /// Takes in the reports. Returns whether a master has changed.
    fn take(&self, looks: Vec<ServerReport>, now: Timestamp) -> bool {
        let mut seen = self.seen.lock();
        let fresh = health(&looks);
        self.evicts.store(fresh.evicts, Ordering::Relaxed);
        self.has_ifeq.store(have_ifeq(&looks), Ordering::Relaxed);
        let ids = ids(looks);
        let new = ids.iter().filter(|id| !seen.ids.contains(id)).count();
        let (mut changes, mut changed_at) = (seen.health.changes, seen.health.changed_at);
        if new > 0 {
            changes += u64::try_from(new).unwrap_or(u64::MAX);
            changed_at = Some(now);
        }
        seen.health = RedisHealth {
            changes,
            changed_at,
            ..fresh
        };
        seen.ids = ids;
        new > 0
    }
}

/// Probes the servers every half minute, and refreshes the time more often, while the store is in
/// use.
pub(super) fn keep_watch(inner: &Arc<Inner>, clock: Arc<dyn Clock>) {
    let inner: Weak<Inner> = Arc::downgrade(inner);
    tokio::spawn(async move {
        let mut rounds = 0_u32;
        loop {
            clock.sleep(ASK_EVERY).await;
            let Some(inner) = inner.upgrade() else { return };
            rounds = rounds.wrapping_add(1);
            inner.time.refresh(&inner.link).await;
            if rounds.is_multiple_of(LOOK_EVERY) {
                inner.probe_again().await;
            }
        }
    });
}

impl Inner {
    /// Probes again. Without an answer the last state stays, and claims fail on their own.
    async fn probe_again(&self) {
        // If the slots of a cluster can't be refreshed, the known masters are probed.
        let _ = self.link.learn().await;
        let Ok(looks) = look(&self.link).await else {
            return;
        };
        if self.watch.take(looks, self.time.now()) {
            // Another server has another clock.
            self.time.refresh(&self.link).await;
        }
    }
}

/// What one master reports about itself.
struct ServerReport {
    name: &'static str,
    version: String,
    number: (u32, u32),
    has_ifeq: bool,
    evicts: bool,
    is_master: bool,
    replicas: usize,
    id: (String, String),
}

impl ServerReport {
    fn is_usable(&self) -> StoreResult<()> {
        if self.number < (7, 0) {
            let (name, version) = (self.name, &self.version);
            let said =
                format!("{name} {version} is too old: 7.0 or newer is needed for SET NX GET");
            return Err(rejected(said));
        }
        if !self.is_master {
            let said = "the server is a replica, and takes no writes; name its master, or use \
                        redis+sentinel:// or redis+cluster://";
            return Err(rejected(said));
        }
        Ok(())
    }
}

/// Probes all masters. Fails if one doesn't answer.
async fn look(link: &Link) -> StoreResult<Vec<ServerReport>> {
    let (_, masters) = link.masters();
    let looks = join_all(masters.iter().map(|node| look_at(node))).await;
    let looks: Vec<ServerReport> = looks.into_iter().collect::<StoreResult<_>>()?;
    if looks.is_empty() {
        return Err(unexpected("no server to look at"));
    }
    Ok(looks)
}

async fn look_at(node: &Node) -> StoreResult<ServerReport> {
    let mut cmd = redis::cmd("INFO");
    cmd.arg("server").arg("memory").arg("replication");
    let reply = node.ask(&cmd).await?;
    let info: String = redis::from_redis_value(reply).map_err(|_| unexpected("INFO"))?;
    let field = |name: &str| value(&info, name);
    let (name, version) = match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => ("Valkey", version),
        (None, Some(version)) => ("Redis", version),
        (None, None) => return Err(unexpected("INFO without a version")),
    };
    let number = numbers(version);
    let is_master = field("role").is_none_or(|role| role == "master");
    if !is_master {
        // The master was demoted: drop its connections, so that the next command finds the new one.
        node.lose_all();
    }
    let text = |name: &str| field(name).unwrap_or_default().to_owned();
    Ok(ServerReport {
        name,
        version: version.to_owned(),
        number,
        has_ifeq: number >= if name == "Valkey" { (8, 1) } else { (8, 4) },
        evicts: field("maxmemory_policy").is_some_and(|policy| policy != "noeviction"),
        is_master,
        replicas: field("connected_slaves")
            .and_then(|count| count.parse().ok())
            .unwrap_or(0),
        id: (text("run_id"), text("master_replid")),
    })
}

fn health(looks: &[ServerReport]) -> RedisHealth {
    let oldest = looks.iter().min_by_key(|look| look.number);
    RedisHealth {
        version: oldest.map_or_else(String::new, |look| {
            format!("{} {}", look.name, look.version)
        }),
        masters: looks.len(),
        replicas: looks.iter().map(|look| look.replicas).min().unwrap_or(0),
        evicts: looks.iter().any(|look| look.evicts),
        changes: 0,
        changed_at: None,
    }
}

fn have_ifeq(looks: &[ServerReport]) -> bool {
    looks.iter().all(|look| look.has_ifeq)
}

fn ids(looks: Vec<ServerReport>) -> Vec<(String, String)> {
    looks.into_iter().map(|look| look.id).collect()
}

fn rejected(said: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, said.into())
}

pub(super) fn value<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

fn numbers(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
