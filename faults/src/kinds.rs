//! The kinds of faults, and how often each has struck.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::points::Point;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// `kill -9` of a worker, at any moment.
    KillWorker,
    /// `kill -9` of a worker before its claim is sent.
    KillBeforeClaim,
    /// `kill -9` of a worker when its claim is answered.
    KillAfterClaim,
    /// `kill -9` of a worker in the middle of its effect.
    KillInEffect,
    /// `kill -9` of a worker between its effect and the settlement.
    KillBeforeSettle,
    /// `kill -9` of a worker after the settlement, before its caller gets the response.
    KillAfterSettle,
    /// SIGSTOP of a worker for longer than its lease.
    PauseWorker,
    /// A worker whose wall clock is an hour off.
    ClientClockSkew,
    /// A connection is cut before a request reaches the store.
    CutBeforeWrite,
    /// A connection is cut after the store has acted, before its reply.
    CutAfterWrite,
    /// Every message is delayed.
    Latency,
    /// A worker is cut off from the store for longer than its lease; delayed messages arrive
    /// afterwards.
    Partition,
    /// Servers are separated, with clients on both sides, until the other side has its own master.
    NetworkSplit,
    /// A replica is cut off from its master and from everybody else.
    ReplicaCut,
    /// `kill -9` of the store, which restarts on its data.
    KillStore,
    /// SIGSTOP of the store.
    PauseStore,
    /// The store's machine fails, and its replica takes over.
    Failover,
    /// A failover to a replica that misses the latest acknowledged writes.
    FailoverBehind,
    /// A replica takes over from a living master.
    PlannedFailover,
    /// A slot moves to another server, key by key, under load.
    SlotMigration,
    /// The store has no memory left for new keys.
    OutOfMemory,
    /// The store is set to evict keys, and back.
    EvictionFlip,
    /// The store forgets all scripts.
    ScriptFlush,
    /// The store's clock is set an hour forward.
    ClockForward,
    /// The store's clock is set an hour back.
    ClockBack,
    /// The store's sessions are ended by an administrator.
    SessionsEnded,
    /// The disk is full.
    DiskFull,
    /// Other clients hold all connections of the server, and callers have to reconnect.
    MaxClients,
    /// The server may open no more files, and callers have to reconnect.
    FileHandles,
    /// A table lock exhausts the connection pool of a worker.
    PoolExhausted,
    /// The server ends a transaction to resolve a deadlock.
    Deadlock,
    /// The server ends a session that was idle in its transaction.
    IdleInTransaction,
    /// Another process holds the write lock.
    WriteLock,
    /// A call to the store in memory is refused, lost or delayed, or its reply is.
    CallFault,
    /// A record expires at the moment of a request.
    ExpiryRace,
}

impl Kind {
    pub(crate) const fn of_point(point: Point) -> Self {
        match point {
            Point::BeforeClaim => Self::KillBeforeClaim,
            Point::AfterClaim => Self::KillAfterClaim,
            Point::InEffect => Self::KillInEffect,
            Point::BeforeSettle => Self::KillBeforeSettle,
            Point::AfterSettle => Self::KillAfterSettle,
        }
    }

    pub(crate) fn name(self) -> String {
        let text = serde_json::to_value(self).unwrap_or_default();
        text.as_str().unwrap_or_default().to_owned()
    }
}

/// How often each kind has struck.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct StrikeCounts(pub(crate) BTreeMap<Kind, u64>);

impl StrikeCounts {
    pub(crate) fn add(&mut self, kind: Kind, times: u64) {
        if times > 0 {
            *self.0.entry(kind).or_default() += times;
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (kind, times) in &other.0 {
            self.add(*kind, *times);
        }
    }
}
