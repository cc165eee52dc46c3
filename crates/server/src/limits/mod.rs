//! Concurrency limits and rate limits of the process, and each caller's share of them
//! (back-pressure).
//!
//! Every request gets a [`Ticket`] when it arrives. The ticket counts what the request uses: a
//! concurrent request, the bytes of its body, and a run at the service. The ticket lives as long as
//! the request and its response, even if the client disconnects.

mod leases;
mod quota;
mod rate;
mod response;
mod tenants;
mod ticket;
mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::config::Limits;
use quota::{Quotas, RequestQuota};
use rate::Rates;
use response::limit_failure;
pub(crate) use response::limit_response;
pub(crate) use tenants::RequestTenants;
use ticket::RequestUsage;
pub(crate) use ticket::{RunPermit, Ticket};
pub(crate) use usage::Caller;
use usage::{ActiveCallers, Usage};

/// Whose limit it is: the process's, or a caller's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LimitScope {
    Process,
    Tenant,
    Principal,
    Address,
}

impl LimitScope {
    pub(crate) const ALL: [Self; 4] = [Self::Process, Self::Tenant, Self::Principal, Self::Address];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Tenant => "tenant",
            Self::Principal => "principal",
            Self::Address => "address",
        }
    }
}

/// The limited resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Connections,
    Requests,
    Running,
    Buffered,
    Rate,
    Keys,
}

impl Limit {
    pub(crate) const ALL: [Self; 6] = [
        Self::Connections,
        Self::Requests,
        Self::Running,
        Self::Buffered,
        Self::Rate,
        Self::Keys,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Requests => "requests",
            Self::Running => "running",
            Self::Buffered => "buffered",
            Self::Rate => "rate",
            Self::Keys => "keys",
        }
    }
}

/// A limit that a request or connection exceeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExceededLimit {
    pub(crate) limit: Limit,
    pub(crate) by: LimitScope,
    pub(crate) retry_after: Duration,
}

impl ExceededLimit {
    pub(crate) const fn new(limit: Limit, by: LimitScope) -> Self {
        Self {
            limit,
            by,
            retry_after: Duration::from_secs(1),
        }
    }
}

/// Counts and limits what the process and each caller use. Clones share their counters.
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
}

struct Shared {
    limits: Limits,
    process: Arc<Usage>,
    callers: ActiveCallers,
    rates: Rates,
    quotas: Quotas,
    connections: AtomicUsize,
    refused: [[AtomicU64; LimitScope::ALL.len()]; Limit::ALL.len()],
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Limiter({} requests)", self.shared.process.requests())
    }
}

impl Limiter {
    /// A limiter without any usage.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        let process = Usage::new(compute_shares(limits, LimitScope::Process));
        let shared = Shared {
            process: Arc::new(process),
            callers: ActiveCallers::default(),
            rates: Rates::new(limits),
            quotas: Quotas::new(limits, semel::tokio_env().clock),
            connections: AtomicUsize::new(0),
            refused: Default::default(),
            limits: limits.clone(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Whether callers of this scope have limits of their own.
    pub(crate) fn has_limit_for(&self, by: LimitScope) -> bool {
        let shared = &self.shared;
        percent(&shared.limits, by) < 100 || shared.rates.has(by) || shared.quotas.has(by)
    }

    /// Admits a request of these callers.
    pub(crate) fn enter(&self, callers: &[Caller]) -> Result<Ticket, ExceededLimit> {
        self.check_rates(callers)?;
        if !self.shared.process.begin() {
            return Err(
                self.count_refusal(ExceededLimit::new(Limit::Requests, LimitScope::Process))
            );
        }
        self.begin_shares(callers, true)
    }

    /// Admits further callers of a request that has a ticket already.
    pub(crate) fn join(&self, callers: &[Caller]) -> Result<Ticket, ExceededLimit> {
        self.check_rates(callers)?;
        self.begin_shares(callers, false)
    }

    fn check_rates(&self, callers: &[Caller]) -> Result<(), ExceededLimit> {
        for caller in callers {
            if let Err(retry_after) = self.shared.rates.check(caller) {
                let exceeded = ExceededLimit {
                    retry_after,
                    ..ExceededLimit::new(Limit::Rate, caller.by)
                };
                return Err(self.count_refusal(exceeded));
            }
        }
        Ok(())
    }

    fn begin_shares(&self, callers: &[Caller], is_first: bool) -> Result<Ticket, ExceededLimit> {
        let shared = &self.shared;
        let mut usage = RequestUsage {
            limiter: self.clone(),
            callers: Vec::new(),
            bytes: AtomicUsize::new(0),
            is_first,
        };
        for caller in callers {
            if percent(&shared.limits, caller.by) == 100 {
                continue;
            }
            let make = || Usage::new(compute_shares(&shared.limits, caller.by));
            match shared.callers.begin(caller, make) {
                Some(counts) => usage.callers.push((caller.clone(), counts)),
                None => {
                    return Err(self.count_refusal(ExceededLimit::new(Limit::Requests, caller.by)));
                }
            }
        }
        Ok(Ticket(Arc::new(usage)))
    }

    /// The quota of new keys of these callers, if they have one.
    pub(crate) fn key_quota(&self, callers: &[Caller]) -> Option<semel::http::KeyQuota> {
        let quota = self.request_quota(callers)?;
        Some(semel::http::KeyQuota(Arc::new(quota)))
    }

    fn request_quota(&self, callers: &[Caller]) -> Option<RequestQuota> {
        let quotas = &self.shared.quotas;
        let callers = callers.iter().filter(|caller| quotas.has(caller.by));
        let callers: Vec<Caller> = callers.cloned().collect();
        (!callers.is_empty()).then(|| RequestQuota {
            limiter: self.clone(),
            callers,
        })
    }

    /// Counts a refusal.
    pub(crate) fn count_refusal(&self, exceeded: ExceededLimit) -> ExceededLimit {
        let count = &self.shared.refused[exceeded.limit as usize][exceeded.by as usize];
        count.fetch_add(1, Ordering::Relaxed);
        exceeded
    }

    pub(crate) fn connection_opened(&self) {
        self.shared.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_closed(&self) {
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a refused connection.
    pub(crate) fn count_refused_connection(&self, by: LimitScope) {
        self.count_refusal(ExceededLimit::new(Limit::Connections, by));
    }

    /// The name, current usage and maximum of each limit. The engine knows how many requests wait.
    pub(crate) fn usage(&self, waiting: usize) -> [(&'static str, usize, usize); 5] {
        let (shared, limits) = (&self.shared, &self.shared.limits);
        [
            (
                Limit::Connections.as_str(),
                shared.connections.load(Ordering::Relaxed),
                limits.connections,
            ),
            (
                Limit::Requests.as_str(),
                shared.process.requests(),
                limits.requests,
            ),
            (
                Limit::Running.as_str(),
                shared.process.running(),
                limits.running,
            ),
            ("waiting", waiting, limits.waiting),
            (
                Limit::Buffered.as_str(),
                shared.process.bytes(),
                limits.buffered.bytes(),
            ),
        ]
    }

    /// How often each limit was exceeded, by scope.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (Limit, LimitScope, u64)> + '_ {
        Limit::ALL.into_iter().flat_map(move |limit| {
            LimitScope::ALL.into_iter().map(move |by| {
                let count = &self.shared.refused[limit as usize][by as usize];
                (limit, by, count.load(Ordering::Relaxed))
            })
        })
    }
}

const fn percent(limits: &Limits, by: LimitScope) -> u8 {
    match by {
        LimitScope::Process => 100,
        LimitScope::Tenant => limits.tenant_share,
        LimitScope::Principal => limits.principal_share,
        LimitScope::Address => limits.address_share,
    }
}

/// The maximum number of requests, runs and bytes.
fn compute_shares(limits: &Limits, by: LimitScope) -> [usize; 3] {
    let all = [limits.requests, limits.running, limits.buffered.bytes()];
    all.map(|all| Limits::compute_share(percent(limits, by), all))
}

#[cfg(test)]
mod tests;
