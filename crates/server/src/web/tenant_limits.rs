//! The limits of tenants, as the APIs see them. The limiter implements them.

use std::sync::Arc;

use semel_core::{Fence, Identity};

use super::failure::Failure;

/// The limits of the tenants of a request, in its extensions.
#[derive(Clone)]
pub(crate) struct TenantLimits(pub(crate) Arc<dyn LimitTenants>);

impl std::fmt::Debug for TenantLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TenantLimits")
    }
}

/// Limits what tenants may do.
pub(crate) trait LimitTenants: Send + Sync {
    /// Counts the request as one of this tenant until it ends. A tenant counts once.
    fn admit(&self, tenant: &str) -> Result<(), Failure>;

    /// The quota of what the tenant keeps in the store, if it has one.
    fn quota(&self, tenant: &str) -> Option<Arc<dyn TenantQuota>>;
}

/// What a settlement has left in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettlementEffect {
    /// The answer is kept, and the checkpoint is gone.
    Kept,
    /// The record is in doubt, and keeps its checkpoint. It may be settled again.
    InDoubt,
    /// The key is free.
    Released,
    /// Nothing was recorded.
    Nothing,
}

/// Counts what a tenant keeps in the store.
pub(crate) trait TenantQuota: Send + Sync {
    /// How many new keys the tenant may keep.
    fn room(&self) -> u64;

    /// Counts a request that was refused because there was no room.
    fn count_refusal(&self);

    /// Counts keys and bytes that are kept.
    fn add(&self, keys: u64, bytes: u64);

    /// Takes back what was added and is not kept.
    fn remove(&self, keys: u64, bytes: u64);

    /// Remembers that the key of this lease is counted.
    fn open_lease(&self, identity: Identity, fence: Fence);

    /// Counts the checkpoint of this lease, instead of the one before.
    fn count_checkpoint(&self, identity: Identity, fence: Fence, bytes: u64);

    /// Begins a settlement of this lease. `false` if it is counted already, as it was sent before.
    fn begin_settlement(&self, identity: Identity, fence: Fence) -> bool;

    /// Ends a settlement that has begun, and takes back what the lease no longer keeps.
    fn end_settlement(&self, identity: Identity, fence: Fence, effect: SettlementEffect);
}
