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

    /// Forgets the lease. Returns whether its key was counted here, and the lease was open.
    fn close_lease(&self, identity: Identity, fence: Fence) -> bool;
}
