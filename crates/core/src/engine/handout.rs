//! The lease of an owner elsewhere: what the owner gets, and what this process remembers of it.

use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;

use super::apart::AnswerLife;
use super::request::Subject;
use crate::claim::Grant;
use crate::clock::Tick;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::record::{Fence, Token};

/// How many handed-out leases a process remembers.
const CAPACITY: usize = 16 * 1024;

/// A lease for an owner elsewhere.
#[derive(Debug)]
#[non_exhaustive]
pub struct LeaseHandout {
    /// The lease itself.
    pub grant: Grant,
    /// How long the owner may still start steps, counted from the moment it received this (P30).
    pub remaining: Duration,
}

/// The name by which an owner elsewhere refers to its lease.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RemoteLease {
    /// The record that the lease is for.
    pub identity: Identity,
    /// The fence of the lease.
    pub fence: Fence,
    /// The token of the owner.
    pub token: Token,
}

impl RemoteLease {
    /// The lease of `identity` with this fence and this token.
    #[must_use]
    pub const fn new(identity: Identity, fence: Fence, token: Token) -> Self {
        Self {
            identity,
            fence,
            token,
        }
    }
}

/// The leases that this process handed out. Saves a read of the record when their owner renews or
/// settles.
pub(super) struct HandoutCache(Cache<(Identity, Fence), Arc<Handout>>);

/// One remembered lease.
pub(super) struct Handout {
    pub(super) subject: Subject,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) grant: Grant,
    pub(super) most_bytes: usize,
    pub(super) life: Option<AnswerLife>,
    pub(super) since: Tick,
}

impl Default for HandoutCache {
    fn default() -> Self {
        Self(Cache::new(CAPACITY))
    }
}

impl HandoutCache {
    pub(super) fn get(&self, lease: &RemoteLease) -> Option<Arc<Handout>> {
        let found = self.0.get(&(lease.identity, lease.fence))?;
        (found.grant.token == lease.token).then_some(found)
    }

    pub(super) fn remember(&self, handout: Handout) {
        let key = (handout.grant.identity, handout.grant.fence);
        self.0.insert(key, Arc::new(handout));
    }

    pub(super) fn forget(&self, lease: &RemoteLease) {
        self.0.remove(&(lease.identity, lease.fence));
    }
}
