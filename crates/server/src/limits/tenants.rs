//! Limits of tenants in the APIs, where the tenant is known only after the request was admitted.

use std::sync::Arc;

use parking_lot::Mutex;
use semel::core::{Fence, Identity};

use super::quota::RequestQuota;
use super::{Caller, LimitScope, Limiter, Ticket, limit_failure};
use crate::web::{Failure, LimitTenants, SettlementEffect, TenantLimits, TenantQuota};

/// The tenants of one request, and what they use until it ends.
pub(crate) struct RequestTenants {
    limiter: Limiter,
    /// The caller by its address, whose quota counts as well.
    address: Option<Caller>,
    admitted: Mutex<Vec<(Caller, Ticket)>>,
}

impl RequestTenants {
    pub(crate) fn for_request(limiter: &Limiter, address: Option<Caller>) -> TenantLimits {
        TenantLimits(Arc::new(Self {
            limiter: limiter.clone(),
            address,
            admitted: Mutex::default(),
        }))
    }
}

impl LimitTenants for RequestTenants {
    fn admit(&self, tenant: &str) -> Result<(), Failure> {
        // Without tenants there is no share to enforce.
        if tenant.is_empty() || !self.limiter.has_limit_for(LimitScope::Tenant) {
            return Ok(());
        }
        let caller = Caller::new(LimitScope::Tenant, tenant);
        let mut admitted = self.admitted.lock();
        if admitted.iter().any(|(other, _)| *other == caller) {
            return Ok(());
        }
        let ticket = self.limiter.join(std::slice::from_ref(&caller));
        admitted.push((caller, ticket.map_err(limit_failure)?));
        Ok(())
    }

    fn quota(&self, tenant: &str) -> Option<Arc<dyn TenantQuota>> {
        let tenant = (!tenant.is_empty()).then(|| Caller::new(LimitScope::Tenant, tenant));
        let callers: Vec<Caller> = self.address.iter().cloned().chain(tenant).collect();
        let quota = self.limiter.request_quota(&callers)?;
        Some(Arc::new(quota))
    }
}

impl TenantQuota for RequestQuota {
    fn room(&self) -> u64 {
        let quotas = &self.limiter.shared.quotas;
        let rooms = self.callers.iter().map(|caller| quotas.room(caller));
        rooms.min().unwrap_or(u64::MAX)
    }

    fn count_refusal(&self) {
        semel::http::CountKeys::count_refusal(self);
    }

    fn add(&self, keys: u64, bytes: u64) {
        for caller in &self.callers {
            self.limiter.shared.quotas.add(caller, keys, bytes);
        }
    }

    fn remove(&self, keys: u64, bytes: u64) {
        for caller in &self.callers {
            self.limiter.shared.quotas.remove(caller, keys, bytes);
        }
    }

    fn open_lease(&self, identity: Identity, fence: Fence) {
        let quotas = &self.limiter.shared.quotas;
        quotas.with_leases(|leases, now| leases.open((identity, fence), now));
    }

    fn count_checkpoint(&self, identity: Identity, fence: Fence, bytes: u64) {
        let quotas = &self.limiter.shared.quotas;
        let before = quotas
            .with_leases(|leases, now| leases.replace_checkpoint((identity, fence), bytes, now));
        self.add(0, bytes.saturating_sub(before));
        self.remove(0, before.saturating_sub(bytes));
    }

    fn begin_settlement(&self, identity: Identity, fence: Fence) -> bool {
        let quotas = &self.limiter.shared.quotas;
        quotas.with_leases(|leases, now| leases.begin_settlement((identity, fence), now))
    }

    fn end_settlement(&self, identity: Identity, fence: Fence, effect: SettlementEffect) {
        let quotas = &self.limiter.shared.quotas;
        let unkept =
            quotas.with_leases(|leases, _| leases.end_settlement(&(identity, fence), effect));
        self.remove(unkept.keys, unkept.bytes);
    }
}
