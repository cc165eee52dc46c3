//! What leases of the protocol API count in quotas, so that each is counted once and what is not
//! kept is taken back.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use semel::core::{Fence, Identity, Tick};

use crate::web::SettlementEffect;

/// A lease of the protocol API.
pub(super) type LeaseId = (Identity, Fence);

/// How many leases are remembered. What older ones kept stays counted until it leaves the window.
const MAX_LEASES: usize = 65_536;

/// What a lease counts.
#[derive(Clone, Copy, Debug, Default)]
struct LeaseUsage {
    /// Whether its key is counted here. Another node may have handed it out.
    has_key: bool,
    /// The size of its checkpoint.
    checkpoint: u64,
    /// Whether its settlement is counted: one that is sent again keeps nothing more.
    is_settled: bool,
}

/// The keys and bytes that are not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unkept {
    pub(super) keys: u64,
    pub(super) bytes: u64,
}

/// The leases of the last window, oldest first.
pub(super) struct Leases {
    window: Duration,
    usage: HashMap<LeaseId, LeaseUsage>,
    order: VecDeque<(Tick, LeaseId)>,
}

impl Leases {
    pub(super) fn new(window: Duration) -> Self {
        Self {
            window,
            usage: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Remembers that the key of a lease is counted.
    pub(super) fn open(&mut self, lease: LeaseId, now: Tick) {
        self.usage(lease, now).has_key = true;
    }

    /// Remembers the checkpoint of a lease. Returns the size of the one before.
    pub(super) fn replace_checkpoint(&mut self, lease: LeaseId, bytes: u64, now: Tick) -> u64 {
        std::mem::replace(&mut self.usage(lease, now).checkpoint, bytes)
    }

    /// Begins a settlement. `false` if this lease was settled before, so that it is counted
    /// already.
    pub(super) fn begin_settlement(&mut self, lease: LeaseId, now: Tick) -> bool {
        !std::mem::replace(&mut self.usage(lease, now).is_settled, true)
    }

    /// Ends a settlement that has begun. Returns what the lease had counted and is gone.
    pub(super) fn end_settlement(&mut self, lease: &LeaseId, effect: SettlementEffect) -> Unkept {
        let Some(usage) = self.usage.get_mut(lease) else {
            return Unkept::default();
        };
        match effect {
            SettlementEffect::Kept => Unkept {
                keys: 0,
                bytes: std::mem::take(&mut usage.checkpoint),
            },
            SettlementEffect::Released => Unkept {
                keys: u64::from(std::mem::take(&mut usage.has_key)),
                bytes: std::mem::take(&mut usage.checkpoint),
            },
            SettlementEffect::InDoubt | SettlementEffect::Nothing => {
                usage.is_settled = false;
                Unkept::default()
            }
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.usage.len()
    }

    fn usage(&mut self, lease: LeaseId, now: Tick) -> &mut LeaseUsage {
        if !self.usage.contains_key(&lease) {
            self.forget_oldest(now);
            self.order.push_back((now, lease));
        }
        self.usage.entry(lease).or_default()
    }

    /// Leases that are settled at another node are never closed here: they leave with the window.
    fn forget_oldest(&mut self, now: Tick) {
        while let Some((since, lease)) = self.order.front() {
            if self.order.len() < MAX_LEASES && now.since(*since) < self.window {
                return;
            }
            self.usage.remove(lease);
            self.order.pop_front();
        }
    }
}
