//! What the process takes at a time, and how much of it one caller may have: `[limits]`.
//!
//! A request gets a [`Ticket`] at the door, and everything that it takes is counted on that: its place, the bytes of its
//! body, its place with the service. A ticket goes with the request and its answer, also when the client has left.

mod answer;
mod counts;
mod rate;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use semel::http::TakeBytes;
use tokio::sync::OwnedSemaphorePermit;

use crate::config::Limits;
pub(crate) use answer::refused;
pub(crate) use counts::Caller;
use counts::{Callers, Counts};
use rate::Rates;

/// Who has as much as they may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum By {
    Process,
    Tenant,
    Principal,
    Address,
}

impl By {
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

/// What there is no more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Connections,
    Requests,
    Running,
    Buffered,
    Rate,
}

impl Limit {
    pub(crate) const ALL: [Self; 5] = [
        Self::Connections,
        Self::Requests,
        Self::Running,
        Self::Buffered,
        Self::Rate,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Requests => "requests",
            Self::Running => "running",
            Self::Buffered => "buffered",
            Self::Rate => "rate",
        }
    }
}

/// A limit that was met.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Met {
    pub(crate) limit: Limit,
    pub(crate) by: By,
    pub(crate) retry_after: Duration,
}

impl Met {
    pub(crate) const fn new(limit: Limit, by: By) -> Self {
        Self {
            limit,
            by,
            retry_after: Duration::from_secs(1),
        }
    }
}

/// Counts what is taken, in the whole process and by each caller. Cheap to clone; clones count together.
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
}

struct Shared {
    limits: Limits,
    process: Arc<Counts>,
    callers: Callers,
    rates: Rates,
    connections: AtomicUsize,
    refused: [[AtomicU64; By::ALL.len()]; Limit::ALL.len()],
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Limiter({} requests)", self.shared.process.requests())
    }
}

impl Limiter {
    /// Nothing is taken yet.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        let whole = |by| share(limits, by);
        let shared = Shared {
            process: Arc::new(Counts::new(whole(By::Process))),
            callers: Callers::default(),
            rates: Rates::new(limits),
            connections: AtomicUsize::new(0),
            refused: Default::default(),
            limits: limits.clone(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Whether requests of a kind of caller are counted apart.
    pub(crate) fn tells_apart(&self, by: By) -> bool {
        percent(&self.shared.limits, by) < 100 || self.shared.rates.has(by)
    }

    /// Lets a request in.
    pub(crate) fn enter(&self, callers: &[Caller]) -> Result<Ticket, Met> {
        let shared = &self.shared;
        for caller in callers {
            if let Err(retry_after) = shared.rates.check(caller) {
                let met = Met {
                    retry_after,
                    ..Met::new(Limit::Rate, caller.by)
                };
                return Err(self.met(met));
            }
        }
        if !shared.process.begin() {
            return Err(self.met(Met::new(Limit::Requests, By::Process)));
        }
        let mut held = Held {
            limiter: self.clone(),
            callers: Vec::new(),
            bytes: AtomicUsize::new(0),
        };
        for caller in callers {
            if percent(&shared.limits, caller.by) == 100 {
                continue;
            }
            let make = || Counts::new(share(&shared.limits, caller.by));
            match shared.callers.begin(caller, make) {
                Some(counts) => held.callers.push((caller.clone(), counts)),
                None => return Err(self.met(Met::new(Limit::Requests, caller.by))),
            }
        }
        Ok(Ticket(Arc::new(held)))
    }

    /// Counts a refusal.
    pub(crate) fn met(&self, met: Met) -> Met {
        self.shared.refused[met.limit as usize][met.by as usize].fetch_add(1, Ordering::Relaxed);
        met
    }

    pub(crate) fn connection_opened(&self) {
        self.shared.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_closed(&self) {
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// A connection was turned away.
    pub(crate) fn no_connection(&self, by: By) {
        self.met(Met::new(Limit::Connections, by));
    }

    /// What is taken now, and how much may be. Who waits is known to the engine.
    pub(crate) fn used_with(&self, waiting: usize) -> [(&'static str, usize, usize); 5] {
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

    /// How often each limit was met, by whom.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (Limit, By, u64)> + '_ {
        Limit::ALL.into_iter().flat_map(move |limit| {
            By::ALL.into_iter().map(move |by| {
                let count = &self.shared.refused[limit as usize][by as usize];
                (limit, by, count.load(Ordering::Relaxed))
            })
        })
    }
}

const fn percent(limits: &Limits, by: By) -> u8 {
    match by {
        By::Process => 100,
        By::Tenant => limits.tenant_share,
        By::Principal => limits.principal_share,
        By::Address => limits.address_share,
    }
}

/// The most requests, runs and bytes.
fn share(limits: &Limits, by: By) -> [usize; 3] {
    let all = [limits.requests, limits.running, limits.buffered.bytes()];
    all.map(|all| Limits::share_of(percent(limits, by), all))
}

/// A request's place in the process, and all that it takes there.
#[derive(Clone, Debug)]
pub(crate) struct Ticket(Arc<Held>);

#[derive(Debug)]
struct Held {
    limiter: Limiter,
    callers: Vec<(Caller, Arc<Counts>)>,
    bytes: AtomicUsize,
}

/// A place with the service, of each whose share it is of.
#[derive(Debug)]
pub(crate) struct RunPlace {
    _permits: Vec<OwnedSemaphorePermit>,
    /// Whose counts they are of.
    _ticket: Ticket,
}

impl Ticket {
    /// For the layer that reads the body.
    pub(crate) fn room(&self) -> semel::http::BodyRoom {
        semel::http::BodyRoom(Arc::clone(&self.0) as Arc<dyn TakeBytes>)
    }

    /// A place with the service, within `patience`. The caller's own comes first, so that those who wait for the process's
    /// are never more than their share.
    pub(crate) async fn run(&self, patience: Duration) -> Result<RunPlace, Met> {
        let shared = &self.0.limiter.shared;
        let mut asked = By::Process;
        let theirs = self.0.callers.iter();
        let all = theirs.map(|(caller, counts)| (caller.by, counts));
        let all = all.chain([(By::Process, &shared.process)]);
        let places = async {
            let mut places = Vec::with_capacity(self.0.callers.len() + 1);
            for (by, counts) in all {
                asked = by;
                places.extend(counts.place().await);
            }
            places
        };
        let places = tokio::time::timeout(patience, places).await;
        match places {
            Ok(permits) => Ok(RunPlace {
                _permits: permits,
                _ticket: self.clone(),
            }),
            Err(_) => Err(self.0.limiter.met(Met::new(Limit::Running, asked))),
        }
    }
}

impl TakeBytes for Held {
    fn take(&self, bytes: usize) -> bool {
        let process = &self.limiter.shared.process;
        let theirs = self.callers.iter();
        let all = theirs.map(|(caller, counts)| (caller.by, counts));
        let mut taken: Vec<&Arc<Counts>> = Vec::new();
        for (by, counts) in all.chain([(By::Process, process)]) {
            if !counts.take(bytes) {
                taken.into_iter().for_each(|counts| counts.give_back(bytes));
                self.limiter.met(Met::new(Limit::Buffered, by));
                return false;
            }
            taken.push(counts);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (shared, bytes) = (&self.limiter.shared, self.bytes.load(Ordering::Relaxed));
        for (caller, counts) in self.callers.drain(..) {
            counts.give_back(bytes);
            shared.callers.end(&caller, &counts);
        }
        shared.process.give_back(bytes);
        shared.process.end();
    }
}

#[cfg(test)]
mod tests;
