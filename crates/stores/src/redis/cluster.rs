//! Redis Cluster: the assignment of slots to servers, and redirections when it changes.
//!
//! The client library has a cluster connection of its own, but it retries commands and reports only
//! the last attempt, which hides whether an earlier one was applied (P28). It also offers no
//! connection for `WAIT`. All our commands have one key, so this module is small.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use redis::{Cmd, RedisError, ServerErrorKind, Value};
use semel_core::{Certainty, Clock, StoreError, StoreErrorKind, StoreResult};

use super::durability::Durability;
use super::error::Failure;
use super::finder::Finder;
use super::node::Node;
use super::slot::{SLOTS, slot};
use super::url::{Access, Host, parse_host};

/// How often a command is sent on before giving up: a slot may be migrating, or a master election
/// may be in progress.
const MOST_HOPS: usize = 16;
/// The pause between two attempts while the cluster changes.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Cluster {
    access: Access,
    seeds: Vec<Host>,
    clock: Arc<dyn Clock>,
    nodes: Mutex<HashMap<Host, Arc<Node>>>,
    map: RwLock<Arc<Map>>,
    refreshing: AtomicBool,
}

/// The assignment of slots to servers.
#[derive(Default)]
struct Map {
    /// An index into `masters` for every slot; past its end if the slot has no server.
    slots: Vec<u16>,
    masters: Vec<(Host, Arc<Node>)>,
}

impl Cluster {
    pub(super) async fn open(
        access: Access,
        seeds: Vec<Host>,
        clock: Arc<dyn Clock>,
    ) -> StoreResult<Self> {
        let cluster = Self {
            access,
            seeds,
            clock,
            nodes: Mutex::new(HashMap::new()),
            map: RwLock::default(),
            refreshing: AtomicBool::new(false),
        };
        cluster.learn().await?;
        Ok(cluster)
    }

    /// The masters, in an order that is stable while the assignment of slots is, and a number for
    /// that assignment.
    pub(super) fn masters(&self) -> (u64, Vec<Arc<Node>>) {
        let map = Arc::clone(&self.map.read());
        let mut hasher = DefaultHasher::new();
        map.slots.hash(&mut hasher);
        for (host, _) in &map.masters {
            host.hash(&mut hasher);
        }
        let nodes = map.masters.iter().map(|(_, node)| Arc::clone(node));
        (hasher.finish(), nodes.collect())
    }

    /// Sends a command to the server of its key's slot, and follows redirections.
    pub(super) async fn send(
        self: &Arc<Self>,
        key: &[u8],
        cmd: &Cmd,
        level: Durability,
    ) -> Result<Value, Failure> {
        let slot = slot(key);
        let (mut host, mut node) = self.owner(slot).map_err(Failure::NotSent)?;
        let mut asking = false;
        let mut hops = 0;
        loop {
            let failure = match node.send(cmd, level, asking).await {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            hops += 1;
            if hops == MOST_HOPS {
                return Err(failure);
            }
            // Only a rejected command, which changed nothing, is sent on; any other failure ends
            // here.
            match failure.server_kind() {
                Some(ServerErrorKind::Moved) => {
                    self.refresh();
                    (host, node) = self.redirected(failure, &host)?;
                    asking = false;
                }
                Some(ServerErrorKind::Ask) => {
                    (host, node) = self.redirected(failure, &host)?;
                    asking = true;
                }
                Some(
                    ServerErrorKind::TryAgain
                    | ServerErrorKind::ClusterDown
                    | ServerErrorKind::ReadOnly,
                ) => {
                    self.clock.sleep(PAUSE).await;
                    self.learn_quietly().await;
                    (host, node) = self.owner(slot).map_err(Failure::NotSent)?;
                    asking = false;
                }
                Some(_) => return Err(failure),
                None => {
                    self.refresh();
                    return Err(failure);
                }
            }
        }
    }

    fn owner(&self, slot: u16) -> Result<(Host, Arc<Node>), RedisError> {
        let map = self.map.read();
        let index = map.slots.get(usize::from(slot)).map(|i| usize::from(*i));
        let found = index.and_then(|index| map.masters.get(index));
        found.cloned().ok_or_else(|| {
            RedisError::from((
                redis::ErrorKind::ClusterConnectionNotFound,
                "no server has this slot",
            ))
        })
    }

    /// The server that a redirection names. A server may leave out its own name.
    fn redirected(&self, failure: Failure, from: &Host) -> Result<(Host, Arc<Node>), Failure> {
        let Failure::Sent(error) = &failure else {
            return Err(failure);
        };
        let to = error.redirect_node().and_then(|(address, _)| {
            let address = match address.strip_prefix(':') {
                Some(port) => format!("[{}]:{port}", from.name),
                None => address.to_owned(),
            };
            parse_host(&address, 0)
        });
        let Some(to) = to else { return Err(failure) };
        let node = self.node(&to).map_err(Failure::NotSent)?;
        Ok((to, node))
    }

    fn node(&self, host: &Host) -> Result<Arc<Node>, RedisError> {
        let mut nodes = self.nodes.lock();
        if let Some(node) = nodes.get(host) {
            return Ok(Arc::clone(node));
        }
        let finder = Finder::Fixed(self.access.client(host)?);
        let node = Arc::new(Node::new(finder));
        nodes.insert(host.clone(), Arc::clone(&node));
        Ok(node)
    }

    /// Refreshes the assignment of slots in the background, once at a time.
    fn refresh(self: &Arc<Self>) {
        if self.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            this.learn_quietly().await;
            this.refreshing.store(false, Ordering::Release);
        });
    }

    /// Ignores errors: the next redirection triggers another refresh.
    async fn learn_quietly(&self) {
        let _ = self.learn().await;
    }

    /// Asks the servers one by one for the assignment of slots, until one answers.
    pub(super) async fn learn(&self) -> StoreResult<()> {
        let map = Arc::clone(&self.map.read());
        let known = map.masters.iter().map(|(host, _)| host);
        let mut last = None;
        let mut cmd = redis::cmd("CLUSTER");
        cmd.arg("SLOTS");
        for host in known.chain(&self.seeds) {
            let node = match self.node(host) {
                Ok(node) => node,
                Err(error) => return Err(Failure::NotSent(error).into()),
            };
            match node.send(&cmd, Durability::Server, false).await {
                Ok(reply) => match self.read_map(&reply, host) {
                    Some(map) => {
                        self.take(map);
                        return Ok(());
                    }
                    None => last = None,
                },
                Err(failure) => last = Some(failure),
            }
        }
        Err(last.map_or_else(no_slots, StoreError::from))
    }

    fn take(&self, map: Map) {
        // Servers that left are forgotten, with their connections.
        let stay: Vec<&Host> = map.masters.iter().map(|(host, _)| host).collect();
        let seeds = &self.seeds;
        self.nodes
            .lock()
            .retain(|host, _| stay.contains(&host) || seeds.contains(host));
        *self.map.write() = Arc::new(map);
    }

    /// `[[first, last, [host, port, …], replica…], …]`
    fn read_map(&self, reply: &Value, asked: &Host) -> Option<Map> {
        let Value::Array(ranges) = reply else {
            return None;
        };
        let mut owners: Vec<(u16, u16, Host)> = Vec::new();
        for range in ranges {
            let Value::Array(parts) = range else {
                return None;
            };
            let [
                Value::Int(first),
                Value::Int(last),
                Value::Array(master),
                ..,
            ] = &parts[..]
            else {
                return None;
            };
            let [name, Value::Int(port), ..] = &master[..] else {
                return None;
            };
            let name: Option<String> = redis::from_redis_value_ref(name).ok()?;
            let name = name.filter(|name| !name.is_empty() && name != "?");
            let host = Host {
                name: name.unwrap_or_else(|| asked.name.clone()),
                port: u16::try_from(*port).ok()?,
            };
            let last = u16::try_from(*last).ok().filter(|last| *last < SLOTS)?;
            owners.push((u16::try_from(*first).ok()?, last, host));
        }
        if owners.is_empty() {
            return None;
        }
        let mut hosts: Vec<&Host> = owners.iter().map(|(_, _, host)| host).collect();
        hosts.sort();
        hosts.dedup();
        let mut slots = vec![u16::MAX; usize::from(SLOTS)];
        for (first, last, host) in &owners {
            let index = u16::try_from(hosts.binary_search(&host).ok()?).ok()?;
            slots
                .get_mut(usize::from(*first)..=usize::from(*last))?
                .fill(index);
        }
        let named = |host: &&Host| Some(((*host).clone(), self.node(host).ok()?));
        let masters = hosts.iter().map(named).collect::<Option<_>>()?;
        Some(Map { slots, masters })
    }
}

fn no_slots() -> StoreError {
    let said = "no server of the cluster reports its slots";
    StoreError::new(StoreErrorKind::Unavailable, Certainty::Definite, said)
}
