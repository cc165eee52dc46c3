//! The kinds of faults, and how often each has struck.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::points::Point;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// `kill -9` of a worker, at any moment.
    KillWorker,
    /// `kill -9` of a worker before its claim is sent.
    KillBeforeClaim,
    /// … when its claim is answered.
    KillAfterClaim,
    /// … in the middle of its effect.
    KillInEffect,
    /// … when the effect is done, and the settlement not sent.
    KillBeforeSettle,
    /// … when the settlement is acknowledged, and its caller not told.
    KillAfterSettle,
    /// SIGSTOP of a worker for longer than its lease.
    PauseWorker,
    /// A worker whose wall clock is an hour off.
    ClientClockSkew,
    /// A connection that is cut before a request reaches the store.
    CutBeforeWrite,
    /// A connection that is cut after the store has done what was asked, before its reply.
    CutAfterWrite,
    /// Everything comes late.
    Latency,
    /// A worker that reaches the store no more for longer than its lease; what was on its way arrives afterwards.
    Partition,
    /// Servers are cut from each other, with clients on both sides, until the other side has a master of its own.
    NetworkSplit,
    /// A replica is cut off from its master and from everybody else.
    ReplicaCut,
    /// `kill -9` of the store, which starts again on its data.
    KillStore,
    /// SIGSTOP of the store.
    PauseStore,
    /// The store's machine fails; its replica takes its place.
    Failover,
    /// The same, where the replica has not received what was acknowledged last.
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
    /// Others hold all connections that the server allows, and callers have to connect anew.
    MaxClients,
    /// The server may open no more files, and callers have to connect anew.
    FileHandles,
    /// A table is locked, so that all connections of a worker's pool are in use and its callers wait for one.
    PoolExhausted,
    /// The server ends a transaction to resolve a deadlock.
    Deadlock,
    /// The server ends a session that was idle in its transaction.
    IdleInTransaction,
    /// Another process has the write lock, and stays.
    WriteLock,
    /// A call to the store in memory is refused, lost, late, or its reply is.
    CallFault,
    /// A record expires at the moment it is asked for.
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
pub(crate) struct Struck(pub(crate) BTreeMap<Kind, u64>);

impl Struck {
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
