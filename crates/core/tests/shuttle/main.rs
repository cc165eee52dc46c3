//! Interleavings of the memory store, the wake-ups and the renewals, explored by shuttle.
//!
//! Only with `RUSTFLAGS="--cfg semel_shuttle"`, which swaps the crate's locks and atomics for ones
//! that shuttle schedules.
#![cfg(semel_shuttle)]

mod hub;
mod mistakes;
mod renewals;
mod store;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic as plain;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use semel_core::clock::Sleep;
use semel_core::{
    Answer, Claim, ClaimTerms, Claimed, Clock, CrashPolicy, Fingerprint, Grant, Identity, Key,
    MemoryConfig, MemoryStore, Namespace, Secret, Settlement, StoreResult, Tick, Timestamp, Token,
};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
use shuttle::thread::JoinHandle;
use shuttle::{Config, Runner};

const ITERATIONS: usize = 3_000;

fn run(scheduler: impl Scheduler + 'static, test: fn()) {
    let mut config = Config::new();
    config.stack_size = 256 * 1024;
    Runner::new(scheduler, config).run(test);
}

/// Runs `test` under schedules drawn at random, and under ones with few, well-placed switches.
fn explore(test: fn()) {
    run(RandomScheduler::new(ITERATIONS), test);
    for depth in [2, 3, 4] {
        run(PctScheduler::new(depth, ITERATIONS), test);
    }
}

/// Whether exploring `test` finds a schedule in which it fails.
fn finds_fault(test: fn()) -> bool {
    catch_unwind(AssertUnwindSafe(|| explore(test))).is_err()
}

/// A clock that stands still until a thread moves it; looking at it is a point to switch threads
/// at.
#[derive(Clone, Default)]
struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    fn advance(&self, millis: u64) {
        self.0.fetch_add(millis, SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Tick {
        Tick::new(Duration::from_millis(self.0.load(SeqCst)))
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(1_000_000)
    }

    fn sleep(&self, _: Duration) -> Sleep {
        unreachable!("the memory store never sleeps")
    }
}

const LEASE: u64 = 10;
const RETENTION: u64 = 100;

fn claim_of(key: &str, token: u128) -> Claim {
    let namespace = Namespace::new("", "", "charge").expect("a namespace");
    let key = Key::parse(key).expect("a key");
    let millis = Duration::from_millis;
    Claim {
        retry: false,
        identity: Identity::new(&Secret::none(), &namespace, &key),
        fingerprint: Fingerprint::from_bytes([1; 17]),
        token: Token(token),
        terms: ClaimTerms::new(millis(LEASE), millis(RETENTION), CrashPolicy::Takeover, 9)
            .expect("fitting terms"),
        secret_id: 0,
        namespace,
        hint: key.hint(),
    }
}

fn store_of(capacity: usize) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::default();
    (
        MemoryStore::new(
            MemoryConfig::default().with_capacity(capacity),
            Arc::new(clock.clone()),
        ),
        clock,
    )
}

/// What a store's future gives; the memory store never waits.
fn now<T>(future: impl Future<Output = StoreResult<T>>) -> T {
    future
        .now_or_never()
        .expect("no waiting")
        .expect("an answer")
}

fn won(claimed: &Claimed) -> Option<Grant> {
    if let Claimed::Won(grant) = claimed {
        Some(grant.clone())
    } else {
        None
    }
}

fn join<T>(handles: Vec<JoinHandle<T>>) -> Vec<T> {
    handles
        .into_iter()
        .map(|handle| handle.join().expect("a thread that ends"))
        .collect()
}

fn complete(text: &'static str) -> Settlement {
    Settlement::Complete(Answer::from_body(Bytes::from_static(text.as_bytes())).into())
}

fn identity() -> Identity {
    claim_of("k", 0).identity
}

/// Counts what happened over all schedules of a test, so that one in which only half of the story
/// was ever told doesn't pass. Not one of shuttle's: it outlives a schedule, and must not steer it.
struct Seen(plain::AtomicUsize);

impl Seen {
    const fn new() -> Self {
        Self(plain::AtomicUsize::new(0))
    }

    fn note(&self) {
        self.0.fetch_add(1, plain::Ordering::Relaxed);
    }

    fn assert_happened(&self, what: &str) {
        assert!(
            self.0.load(plain::Ordering::Relaxed) > 0,
            "in no schedule: {what}"
        );
    }
}
