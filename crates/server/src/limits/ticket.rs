//! [`Ticket`]: the admission of a request, and everything that it uses until its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use semel::http::TakeBytes;
use tokio::sync::OwnedSemaphorePermit;

use super::usage::{Caller, Usage};
use super::{ExceededLimit, Limit, LimitScope, Limiter};

/// The admission of a request, and everything that it uses.
#[derive(Clone, Debug)]
pub(crate) struct Ticket(pub(super) Arc<RequestUsage>);

#[derive(Debug)]
pub(super) struct RequestUsage {
    pub(super) limiter: Limiter,
    pub(super) callers: Vec<(Caller, Arc<Usage>)>,
    pub(super) bytes: AtomicUsize,
    /// Whether this is the first ticket of its request, which counts for the process.
    pub(super) is_first: bool,
}

/// The permit to run a request at the service: one of each caller, and one of the process.
#[derive(Debug)]
pub(crate) struct RunPermit {
    _permits: Vec<OwnedSemaphorePermit>,
    // Keeps the counters of the permits alive.
    _ticket: Ticket,
}

impl Ticket {
    /// Memory accounting for the layer that reads the body.
    pub(crate) fn body_room(&self) -> semel::http::BodyRoom {
        semel::http::BodyRoom(Arc::clone(&self.0) as Arc<dyn TakeBytes>)
    }

    /// Waits at most `timeout` for a permit to run at the service. The caller's own permit comes
    /// first, so that a caller never has more than its share of the requests that wait for the
    /// process's.
    pub(crate) async fn acquire_run(&self, timeout: Duration) -> Result<RunPermit, ExceededLimit> {
        let shared = &self.0.limiter.shared;
        let mut waits_for = LimitScope::Process;
        let of_callers = self.0.callers.iter();
        let all = of_callers.map(|(caller, counts)| (caller.by, counts));
        let all = all.chain([(LimitScope::Process, &shared.process)]);
        let permits = async {
            let mut permits = Vec::with_capacity(self.0.callers.len() + 1);
            for (by, usage) in all {
                waits_for = by;
                permits.extend(usage.acquire_run().await);
            }
            permits
        };
        let permits = shared.quotas.clock().timeout(timeout, permits).await;
        match permits {
            Ok(permits) => Ok(RunPermit {
                _permits: permits,
                _ticket: self.clone(),
            }),
            Err(_) => {
                let exceeded = ExceededLimit::new(Limit::Running, waits_for);
                Err(self.0.limiter.count_refusal(exceeded))
            }
        }
    }
}

impl TakeBytes for RequestUsage {
    fn take(&self, bytes: usize) -> bool {
        let process = &self.limiter.shared.process;
        let of_callers = self.callers.iter();
        let all = of_callers.map(|(caller, counts)| (caller.by, counts));
        let mut reserved: Vec<&Arc<Usage>> = Vec::new();
        for (by, usage) in all.chain([(LimitScope::Process, process)]) {
            if !usage.reserve(bytes) {
                reserved.into_iter().for_each(|usage| usage.release(bytes));
                self.limiter
                    .count_refusal(ExceededLimit::new(Limit::Buffered, by));
                return false;
            }
            reserved.push(usage);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }
}

impl Drop for RequestUsage {
    fn drop(&mut self) {
        let (shared, bytes) = (&self.limiter.shared, self.bytes.load(Ordering::Relaxed));
        for (caller, usage) in self.callers.drain(..) {
            usage.release(bytes);
            shared.callers.end(&caller, &usage);
        }
        shared.process.release(bytes);
        if self.is_first {
            shared.process.end();
        }
    }
}
