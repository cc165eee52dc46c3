//! Health checks of the servers for `semel doctor`. Never on the hot path.

use std::fmt::Write as _;

use redis::Value;
use semel_core::diagnosis::{Finding, Severity};
use semel_core::store::StoreResult;

use super::Inner;
use super::durability::Durability;
use super::error::unexpected;
use super::health::{RedisHealth, value};
use super::node::Node;
use super::time;

/// The share of its memory from which on a server will soon refuse new keys.
const NEARLY_FULL: f64 = 0.85;

impl Inner {
    pub(super) async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        let health = self.watch.health();
        let mut findings = vec![version(&health, self.watch.has_ifeq())];
        let (_, masters) = self.link.masters();
        let mut infos = Vec::new();
        for node in &masters {
            let reply = node.ask(redis::cmd("INFO").arg("everything")).await?;
            let info: String = redis::from_redis_value(reply).map_err(|_| unexpected("INFO"))?;
            infos.push(info);
        }
        findings.push(eviction(&infos));
        findings.push(memory(&infos));
        let mut syncs = Vec::new();
        for node in &masters {
            syncs.push(appendfsync(node).await);
        }
        findings.push(persistence(&infos, &syncs));
        findings.push(replication(&health, self.link.level()));
        if health.changes > 0 {
            findings.push(changed(&health, self.link.level()));
        }
        findings.push(self.clock().await?);
        Ok(findings)
    }

    async fn clock(&self) -> StoreResult<Finding> {
        let clock = self.time.clock();
        let began = clock.now();
        let server = time::ask(&self.link).await?;
        let (took, here) = (clock.now().since(began), clock.wall());
        let apart = here.since(server).max(server.since(here));
        Ok(Finding::clock(apart, took))
    }
}

fn version(health: &RedisHealth, has_ifeq: bool) -> Finding {
    let masters = match health.masters {
        1 => String::new(),
        many => format!(", {many} masters"),
    };
    let version = &health.version;
    if has_ifeq {
        return Finding::good(
            "version",
            format!("{version}{masters}; settles by one plain command"),
        );
    }
    let found = format!("{version}{masters}; settles by a script");
    let fix =
        "nothing is wrong; Valkey 8.1 or Redis 8.4 settle by one plain command, and are faster";
    Finding::bad("version", Severity::Note, found, fix)
}

fn eviction(infos: &[String]) -> Finding {
    let policy = |info: &String| value(info, "maxmemory_policy").map(str::to_owned);
    let evicting = infos
        .iter()
        .filter_map(policy)
        .find(|policy| policy != "noeviction");
    evicting.map_or_else(
        || {
            Finding::good(
                "eviction",
                "noeviction: a full server refuses, and forgets nothing",
            )
        },
        |policy| {
            let found = format!("{policy}: a full server forgets what was done");
            let fix = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf";
            Finding::bad("eviction", Severity::Broken, found, fix)
        },
    )
}

fn memory(infos: &[String]) -> Finding {
    let number = |info: &str, name| value(info, name).and_then(|text| text.parse::<f64>().ok());
    let shares = infos.iter().filter_map(|info| {
        let most = number(info, "maxmemory").filter(|most| *most > 0.0)?;
        Some(number(info, "used_memory")? / most)
    });
    let Some(fullest) = shares.reduce(f64::max) else {
        let fix = "set maxmemory below the host's memory, so that a full server refuses new keys instead of being \
                   killed with all of them";
        return Finding::bad("memory", Severity::Note, "no maxmemory is set", fix);
    };
    let found = format!("{:.0} % of maxmemory in use", fullest * 100.0);
    if fullest < NEARLY_FULL {
        return Finding::good("memory", found);
    }
    let fix = "new keys will soon be refused: raise maxmemory, keep records for a shorter time, or add shards \
               (`semel plan` says how many)";
    Finding::bad("memory", Severity::Warning, found, fix)
}

/// The server's `appendfsync` setting; `None` if the user may not read it.
async fn appendfsync(node: &Node) -> Option<String> {
    let mut cmd = redis::cmd("CONFIG");
    cmd.arg("GET").arg("appendfsync");
    match node.ask(&cmd).await.ok()? {
        // RESP2 gives a list of name and value.
        Value::Array(pair) => redis::from_redis_value::<Vec<String>>(Value::Array(pair))
            .ok()?
            .pop(),
        _ => None,
    }
}

fn persistence(infos: &[String], syncs: &[Option<String>]) -> Finding {
    let has_log = |info: &String| value(info, "aof_enabled") == Some("1");
    if !infos.iter().all(has_log) {
        let fix = "a restart forgets what was done since the last snapshot, and retries then act again: appendonly \
                   yes, with appendfsync always (nothing lost) or everysec (at most a second lost)";
        return Finding::bad("persistence", Severity::Warning, "no append-only file", fix);
    }
    let mut found = "append-only file".to_owned();
    if syncs.iter().all(|sync| sync.as_deref() == Some("always")) {
        let _ = write!(found, ", brought to disk before every answer");
        return Finding::good("persistence", found);
    }
    let how = syncs.iter().flatten().find(|sync| *sync != "always");
    let _ = match how {
        Some(how) => write!(found, ", appendfsync {how}"),
        None => write!(found, "; appendfsync could not be asked for"),
    };
    let fix = "a crash of the host loses what was not on disk yet (about a second): appendfsync always, or \
               ?durability=waitaof:1:0 in the store's URL";
    Finding::bad("persistence", Severity::Note, found, fix)
}

fn replication(health: &RedisHealth, level: Durability) -> Finding {
    let replicas = match health.replicas {
        0 => "no replica".to_owned(),
        1 => "1 replica".to_owned(),
        many => format!("{many} replicas"),
    };
    match level {
        Durability::Server if health.replicas == 0 => {
            let fix = "nothing takes over when the server is lost: a replica with Sentinel or a cluster, and \
                       ?durability=wait:1";
            Finding::bad("replication", Severity::Note, replicas, fix)
        }
        Durability::Server => {
            let found = format!("{replicas}, not waited for");
            let fix = "a failover forgets what had not reached the replica, and retries then act again: add \
                       ?durability=wait:1 to the store's URL";
            Finding::bad("replication", Severity::Warning, found, fix)
        }
        level if !level.is_within(health.replicas) => {
            let found = format!("{replicas}, fewer than the store's URL waits for");
            let fix =
                "every claim fails until the replicas are back: look after them, or ask for fewer";
            Finding::bad("replication", Severity::Broken, found, fix)
        }
        _ => Finding::good("replication", format!("{replicas}, waited for")),
    }
}

fn changed(health: &RedisHealth, level: Durability) -> Finding {
    let found = format!(
        "{} restarts or failovers seen by this process",
        health.changes
    );
    if level == Durability::Server {
        let fix = "what had not reached the disk or the replica by then is gone; see persistence and replication";
        return Finding::bad("history", Severity::Warning, found, fix);
    }
    Finding::good("history", found)
}
