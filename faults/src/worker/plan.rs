//! What an effect is going to do, and how operations are treated.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use semel::core::CrashPolicy;
use semel::{BreakerConfig, CacheConfig, EngineConfig, OnBusy, Policy};

use super::Setup;

/// The lease and the retention of keys that expire within the round.
pub(super) const TINY: Duration = Duration::from_millis(60);

/// What an effect is going to do, if it is run.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) takes: Duration,
    pub(super) end: End,
    /// How often progress is kept meanwhile.
    pub(super) checkpoints: u32,
}

#[derive(Clone, Copy)]
pub(super) enum End {
    Answer,
    Reject,
    Retry,
    NoEffect,
    Unknown,
}

impl Plan {
    pub(super) fn of(rng: &mut StdRng, lease: Duration) -> Self {
        let takes = match rng.random_range(0..1000) {
            0..900 => Duration::ZERO,
            900..985 => Duration::from_millis(rng.random_range(1..6)),
            985..997 => lease.mul_f64(rng.random_range(0.2..0.8)),
            // Longer than the lease, which is renewed meanwhile.
            _ => lease.mul_f64(1.3),
        };
        let end = match rng.random_range(0..100) {
            0..93 => End::Answer,
            93..95 => End::Reject,
            95..97 => End::Retry,
            97..99 => End::NoEffect,
            _ => End::Unknown,
        };
        // Each is a call to the store: seldom where the effect takes no time.
        let checkpoints = match rng.random_range(0..100) {
            0..3 => 1,
            _ if takes.is_zero() => 0,
            3..50 => 2,
            _ => 0,
        };
        Self {
            takes,
            end,
            checkpoints,
        }
    }
}

/// Half of the workers keep local copies; a store that is back is asked soon.
pub(super) fn engine(setup: &Setup) -> EngineConfig {
    EngineConfig::default()
        .with_call_limit(Duration::from_millis((setup.lease_ms * 2).max(1_500)))
        .with_breaker(
            BreakerConfig::default()
                .with_failures(20)
                .with_first_try(Duration::from_millis(200))
                .with_open_for(Duration::from_millis(200)),
        )
        .with_cache(
            CacheConfig::default().with_max_bytes(if setup.worker.is_multiple_of(2) {
                4 << 20
            } else {
                0
            }),
        )
}

pub(super) fn policies(lease: Duration, restless: bool) -> [Arc<Policy>; 4] {
    let day = Duration::from_secs(24 * 60 * 60);
    let of = |crash, lease: Duration, retention| {
        Arc::new(
            Policy::default()
                .with_lease(lease)
                .with_retention(retention)
                .with_crash(crash)
                .with_on_busy(if restless {
                    OnBusy::Refuse
                } else {
                    OnBusy::Wait(lease.mul_f64(1.5))
                })
                .with_max_attempts(8),
        )
    };
    [
        of(CrashPolicy::Takeover, lease, day),
        of(CrashPolicy::Hold, lease, day),
        of(CrashPolicy::Takeover, TINY, TINY),
        of(CrashPolicy::Hold, TINY, TINY),
    ]
}
