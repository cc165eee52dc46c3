//! [`ForwardContext`]: the lease and limits of a forwarded request, and what an error means for its
//! key.

use std::sync::Arc;

use http::{Request, Version};
use semel::core::CrashPolicy;
use semel::http::{Body, EffectOutcome, HandlerLease};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::{self, Cause, ProxyError, Retry};
use super::headers;
use super::upgrade::UpgradeRequest;
use crate::limits::{RunPermit, Ticket};

/// What a lost response of the service means for a key of the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostAnswerPolicy {
    /// Whether the key is in doubt, whatever its crash policy says.
    pub doubts: bool,
    /// Whether keys are only observed, so that the next request runs in any case.
    pub observes: bool,
}

/// The limit on concurrent requests with a key of one route.
#[derive(Clone, Debug)]
pub struct RouteConcurrency(pub Arc<Semaphore>);

/// The permits of a request with a key that runs at the service.
pub(super) struct RunPermits {
    pub(super) _route: Option<OwnedSemaphorePermit>,
    pub(super) _run: Option<RunPermit>,
}

/// The ticket and the permits of a forwarded request.
pub(super) struct ForwardPermits {
    pub(super) _ticket: Option<Ticket>,
    pub(super) _run: Option<RunPermits>,
}

/// What decides about a request, besides its head and body.
pub(super) struct ForwardContext {
    pub(super) ticket: Option<Ticket>,
    pub(super) route: Option<RouteConcurrency>,
    pub(super) lease: Option<HandlerLease>,
    pub(super) lost_answer: Option<LostAnswerPolicy>,
    pub(super) upgrade: Option<UpgradeRequest>,
}

impl ForwardContext {
    pub(super) fn take_from(request: &mut Request<Body>) -> Self {
        let lease = request.extensions().get::<HandlerLease>().cloned();
        let protocol = headers::requested_upgrade(request.headers());
        let upgrade = protocol.filter(|_| lease.is_none() && request.version() == Version::HTTP_11);
        Self {
            ticket: request.extensions_mut().remove(),
            route: request.extensions().get().cloned(),
            lost_answer: request.extensions().get().copied(),
            upgrade: upgrade.map(|protocol| UpgradeRequest {
                protocol,
                slot: request.extensions().get().cloned(),
                client: hyper::upgrade::on(request),
            }),
            lease,
        }
    }

    pub(super) fn classify_error(&self, error: &hyper_util::client::legacy::Error) -> ProxyError {
        if error.is_connect() {
            return self.not_sent(Cause::Unreachable);
        }
        match error::find_client_fault(error) {
            // The body of a request with a key was complete before it was forwarded.
            Some(fault) if self.lease.is_none() => self.sent(Cause::Client(fault)),
            _ => self.sent(Cause::Broken),
        }
    }

    /// The request was not sent: the key is free again.
    pub(super) fn not_sent(&self, cause: Cause) -> ProxyError {
        if let Some(lease) = &self.lease {
            lease.mark(EffectOutcome::NoEffect);
        }
        let retry = Retry::Safe;
        ProxyError { cause, retry }
    }

    /// The request was sent, so its outcome is unknown.
    pub(super) fn sent(&self, cause: Cause) -> ProxyError {
        let Some(lease) = &self.lease else {
            let retry = Retry::Unsafe;
            return ProxyError { cause, retry };
        };
        let doubts = self.lost_answer.is_some_and(|lost| lost.doubts);
        let observes = self.lost_answer.is_some_and(|lost| lost.observes);
        if doubts {
            lease.mark(EffectOutcome::Unknown);
        }
        // The policy in the record applies, not the current settings.
        let retry = match lease.crash() {
            Some(_) if observes => Retry::Unsafe,
            Some(CrashPolicy::Hold) => Retry::InDoubt,
            Some(CrashPolicy::Takeover) if doubts => Retry::InDoubt,
            Some(CrashPolicy::Takeover) => Retry::RunsAgain,
            None => Retry::Unsafe,
        };
        ProxyError { cause, retry }
    }
}
