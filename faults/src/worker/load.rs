//! The callers of one worker in one round, and the effects that they ask for.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use semel::core::engine::Problem;
use semel::core::{
    Answer, CrashPolicy, Fence, Identity, Key, Namespace, Secret, Store as _, StoreAdmin,
};
use semel::{
    BreakerConfig, CacheConfig, EngineConfig, Error, Failure, Lease, OnBusy, Policy, Semel,
};
use semel_testkit::history::callers::{Outcome, Told, is_final};
use semel_testkit::history::{Ending, Log, Recorder, answer_mark, key_of};
use tokio::task::JoinHandle;

use super::{ENVIRONMENT, Setup};
use crate::clock::{MachineClock, pass};
use crate::points::{Point, Pointed, Points};

const SCOPE: &str = "charge";
/// A caller asks for one of so many keys before the newest: some run, most are done.
const RECENT: u64 = 32;
/// Every so-manieth key expires within the round, where the store's clock is fine enough.
const TINY_EVERY: u64 = 16;
/// The lease and the retention of those.
const TINY: Duration = Duration::from_millis(60);
/// How often a key is asked for at the close, at most; and how often it is found busy, each time for longer than a lease.
const CLOSING_TRIES: u32 = 60;
const CLOSING_WAITS: u32 = 8;

/// The callers of one worker in one round.
pub(super) struct Load {
    setup: Setup,
    number: u64,
    semel: Semel,
    log: Log,
    recorder: Recorder,
    points: Points,
    next: AtomicU64,
    runs: AtomicU64,
    stop: AtomicBool,
    /// Takeover and hold, each long and tiny.
    policies: [Arc<Policy>; 4],
}

/// What one call is about.
#[derive(Clone)]
struct Asked {
    key: String,
    identity: Identity,
    policy: Arc<Policy>,
    payload: u64,
    tiny: bool,
}

impl Load {
    pub(super) async fn new(
        setup: &Setup,
        number: u64,
        file: &Path,
        store: Arc<dyn StoreAdmin>,
        points: Points,
    ) -> Arc<Self> {
        let out = std::fs::OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(file);
        let out = out.expect("the harness has a folder for histories");
        let log = Log::in_lines(MachineClock::shared(), Box::new(out));
        let recorder = log.recorder(store, setup.client());
        let pointed = Arc::new(Pointed {
            inner: recorder.clone(),
            points: points.clone(),
        });
        let semel = loop {
            let builder = Semel::builder().environment(ENVIRONMENT);
            let builder = builder.engine_config(engine(setup));
            let store = Arc::clone(&pointed) as Arc<dyn StoreAdmin>;
            match builder.open_on(store).await {
                Ok(semel) => break semel,
                Err(error) => {
                    eprintln!("worker: {error}");
                    pass(Duration::from_millis(100)).await;
                }
            }
        };
        Arc::new(Self {
            policies: policies(Duration::from_millis(setup.lease_ms)),
            setup: setup.clone(),
            number,
            semel,
            log,
            recorder,
            points,
            next: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        })
    }

    pub(super) fn begin(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let task = |task| tokio::spawn(Arc::clone(self).call_on(task));
        (0..self.setup.tasks).map(task).collect()
    }

    /// Lets every caller come to its end. → how many keys were begun.
    pub(super) async fn end(&self, callers: Vec<JoinHandle<()>>) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        for caller in callers {
            caller.await.expect("callers don't panic");
        }
        self.semel.idle().await;
        self.next.load(Ordering::SeqCst)
    }

    /// Asks for every key of this worker's share until it is answered. → how many never were.
    pub(super) async fn close(self: &Arc<Self>, keys: u64) -> u64 {
        let share = AtomicU64::new(self.setup.worker);
        let share = Arc::new(share);
        let mut tasks = Vec::new();
        for task in 0..self.setup.tasks {
            let (this, share) = (Arc::clone(self), Arc::clone(&share));
            tasks.push(tokio::spawn(async move {
                let (mut rng, mut unanswered) = (this.rng(1_000 + task), 0);
                loop {
                    let index = share.fetch_add(this.setup.workers, Ordering::SeqCst);
                    if index >= keys {
                        return unanswered;
                    }
                    unanswered += u64::from(!this.until_final(index, &mut rng).await);
                }
            }));
        }
        let mut unanswered = 0;
        for task in tasks {
            unanswered += task.await.expect("callers don't panic");
        }
        self.semel.idle().await;
        unanswered
    }

    async fn until_final(self: &Arc<Self>, index: u64, rng: &mut StdRng) -> bool {
        let mut busy = 0;
        for _ in 0..CLOSING_TRIES {
            let asked = self.asked(index, false);
            let told = self.ask(&asked, rng).await;
            if is_final(told) {
                return true;
            }
            busy += u32::from(told == Outcome::Busy);
            if busy >= CLOSING_WAITS {
                return false;
            }
            pass(Duration::from_millis(self.setup.lease_ms / 8)).await;
        }
        false
    }

    fn rng(&self, task: u64) -> StdRng {
        let Setup {
            seed,
            incarnation,
            worker,
            ..
        } = self.setup;
        let mixed = [self.number, u64::from(incarnation), worker, task];
        let mix = |seed: u64, by: u64| {
            (seed ^ by)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29)
        };
        StdRng::seed_from_u64(mixed.into_iter().fold(seed, mix))
    }

    async fn call_on(self: Arc<Self>, task: u64) {
        let mut rng = self.rng(task);
        while !self.stop.load(Ordering::SeqCst) {
            let index = if rng.random_bool(0.6) {
                self.next.fetch_add(1, Ordering::SeqCst)
            } else {
                let newest = self.next.load(Ordering::SeqCst);
                newest.saturating_sub(rng.random_range(0..RECENT))
            };
            let asked = self.asked(index, rng.random_bool(0.02));
            let told = self.ask(&asked, &mut rng).await;
            if told == Outcome::NotStarted {
                pass(Duration::from_millis(20)).await;
            }
            // Around the very moment of its expiry.
            if asked.tiny && matches!(told, Outcome::Answer(_)) {
                let around = TINY.saturating_sub(Duration::from_micros(1_000));
                pass(around + Duration::from_micros(rng.random_range(0..2_000))).await;
                self.ask(&asked, &mut rng).await;
            }
        }
    }

    fn asked(&self, index: u64, odd: bool) -> Asked {
        let tiny = self.setup.tiny && index % TINY_EVERY == 7;
        let hold = index % 2 == 1;
        let key = format!(
            "{}{}-{index}",
            if tiny { "tiny-" } else { "k-" },
            self.number
        );
        Asked {
            identity: identity_of(&key),
            key,
            policy: Arc::clone(&self.policies[usize::from(hold) + 2 * usize::from(tiny)]),
            payload: index * 2 + u64::from(odd),
            tiny,
        }
    }

    /// One call, and what it was told.
    async fn ask(self: &Arc<Self>, asked: &Asked, rng: &mut StdRng) -> Outcome {
        let start = self.log.tick();
        let operation = self
            .semel
            .operation(SCOPE)
            .policy(Arc::clone(&asked.policy));
        let call = operation.key(&asked.key).payload(&asked.payload);
        let (this, identity, plan) = (Arc::clone(self), asked.identity, Plan::of(rng, asked));
        let answer = call
            .run(move |lease| this.effect(identity, lease, plan))
            .await;
        let what = match &answer {
            Ok(answer) => Outcome::Answer(Ending::Completed(mark(&answer.value))),
            Err(Error::Rejected(rejection)) => {
                Outcome::Answer(Ending::Failed(mark(&rejection.reason)))
            }
            Err(error) => outcome(error),
        };
        self.log.told(Told {
            client: self.setup.client(),
            key: key_of(&asked.identity),
            payload: asked.payload,
            start,
            end: self.log.tick(),
            what,
        });
        if let Err(Error::Problem(Problem::InDoubt(doubt))) = &answer
            && rng.random_bool(0.2)
        {
            self.resolve(&asked.identity, doubt.fence, rng).await;
        }
        what
    }

    /// An operator looks into it, and decides.
    async fn resolve(&self, identity: &Identity, fence: Fence, rng: &mut StdRng) {
        use semel::Resolution;
        let answer = Arc::new(stored(&format!("resolved-{:x}", rng.random::<u64>())));
        let resolution = match rng.random_range(0..3) {
            0 => Resolution::Complete(answer),
            1 => Resolution::Fail(answer),
            _ => Resolution::Release,
        };
        // An error is one of the faults of the day; the doubt stays.
        let _ = self.recorder.resolve(identity, fence, &resolution).await;
        self.semel.engine().forget(identity);
    }

    async fn effect(
        self: Arc<Self>,
        identity: Identity,
        lease: Lease,
        plan: Plan,
    ) -> Result<String, Failure> {
        if matches!(plan.end, End::NoEffect) {
            return Err(Failure::no_effect("nothing was begun"));
        }
        let fence = lease.fence().unwrap_or(Fence(0));
        self.recorder
            .effect_started(&identity, fence, lease.attempt());
        self.points.pass(Point::InEffect);
        if !plan.takes.is_zero() {
            pass(plan.takes).await;
        }
        self.recorder.effect_finished(&identity, fence);
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        let answer = format!("{}-{}-{run}", self.setup.client(), self.number);
        match plan.end {
            End::Answer => Ok(answer),
            End::Reject => Err(Failure::reject(answer)),
            End::Retry => Err(Failure::retry("may be tried again")),
            End::NoEffect | End::Unknown => Err(Failure::unknown("no reply came")),
        }
    }
}

/// What an effect is going to do, if it is run.
#[derive(Clone, Copy)]
struct Plan {
    takes: Duration,
    end: End,
}

#[derive(Clone, Copy)]
enum End {
    Answer,
    Reject,
    Retry,
    NoEffect,
    Unknown,
}

impl Plan {
    fn of(rng: &mut StdRng, asked: &Asked) -> Self {
        let lease = asked.policy.lease;
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
        Self { takes, end }
    }
}

fn outcome(error: &Error) -> Outcome {
    match error {
        Error::Problem(Problem::Mismatch) => Outcome::Mismatch,
        Error::Problem(Problem::InDoubt(_)) | Error::InDoubt(_) => Outcome::InDoubt,
        Error::Problem(Problem::Busy { .. }) => Outcome::Busy,
        Error::Problem(Problem::Unavailable { .. } | Problem::Late) => Outcome::NotStarted,
        _ => Outcome::AskAgain,
    }
}

fn mark(value: &impl serde::Serialize) -> u64 {
    answer_mark(&stored(value))
}

fn stored(value: &impl serde::Serialize) -> Answer {
    Answer::of(serde_json::to_vec(value).expect("plain text"))
}

fn identity_of(key: &str) -> Identity {
    let namespace = Namespace::new(ENVIRONMENT, "", SCOPE).expect("plain text");
    let key = Key::parse(key).expect("plain text");
    Identity::of(&Secret::none(), &namespace, &key)
}

/// Half of the workers keep local copies; a store that is back is asked soon.
fn engine(setup: &Setup) -> EngineConfig {
    EngineConfig {
        call_limit: Duration::from_millis((setup.lease_ms * 2).max(1_500)),
        breaker: BreakerConfig {
            failures: 20,
            first_try: Duration::from_millis(200),
            open_for: Duration::from_millis(200),
        },
        cache: CacheConfig {
            max_bytes: if setup.worker.is_multiple_of(2) {
                4 << 20
            } else {
                0
            },
            ..CacheConfig::default()
        },
        ..EngineConfig::default()
    }
}

fn policies(lease: Duration) -> [Arc<Policy>; 4] {
    let day = Duration::from_secs(24 * 60 * 60);
    let of = |crash, lease: Duration, retention| {
        Arc::new(Policy {
            lease,
            retention,
            crash,
            on_busy: OnBusy::Wait(lease.mul_f64(1.5)),
            max_attempts: 8,
            ..Policy::default()
        })
    };
    [
        of(CrashPolicy::Takeover, lease, day),
        of(CrashPolicy::Hold, lease, day),
        of(CrashPolicy::Takeover, TINY, TINY),
        of(CrashPolicy::Hold, TINY, TINY),
    ]
}
