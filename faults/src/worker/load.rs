//! The callers of one worker in one round, and their effects.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use semel::core::engine::Problem;
use semel::core::{Fence, Identity, Store as _, StoreAdmin};
use semel::{Error, Failure, Lease, Policy, Semel, TypedAnswer as Reply};
use semel_testkit::history::callers::{CallerOutcome, CallerReport, is_final};
use semel_testkit::history::{HistoryLog, KeyEnding, Recorder, key_of};
use tokio::task::JoinHandle;

use super::doors::{LARGE_BYTES, is_large};
use super::plan::{End, Plan, TINY, engine, policies};
use super::words::{SCOPE, identity_of, mark, outcome, resolution, stored};
use super::{ENVIRONMENT, Setup};
use crate::clock::{MachineClock, pass};
use crate::points::{PausingStore, Point, Points};

/// A caller picks one of this many recent keys: some are running, most are done.
pub(super) const RECENT: u64 = 32;
/// One key in this many expires within the round, if the store's clock is fine enough.
const TINY_EVERY: u64 = 16;
/// The maximum number of requests for a key at the close, and of busy responses, each longer than a
/// lease.
const CLOSING_TRIES: u32 = 60;
const CLOSING_WAITS: u32 = 8;

/// The callers of one worker in one round.
pub(super) struct Load {
    setup: Setup,
    number: u64,
    pub(super) semel: Semel,
    log: HistoryLog,
    pub(super) recorder: Recorder,
    points: Points,
    pub(super) next: AtomicU64,
    runs: AtomicU64,
    pub(super) stop: AtomicBool,
    /// Takeover and hold, each with a long and a tiny lease.
    policies: [Arc<Policy>; 4],
}

/// One request.
#[derive(Clone)]
pub(super) struct PendingRequest {
    key: String,
    pub(super) identity: Identity,
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
        let log = HistoryLog::in_lines(MachineClock::shared(), Box::new(out));
        let recorder = log.recorder(store, setup.client());
        let pointed = Arc::new(PausingStore {
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
            policies: policies(Duration::from_millis(setup.lease_ms), setup.restless),
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
        let mut callers: Vec<_> = (0..self.setup.tasks).map(task).collect();
        callers.push(self.start_operator());
        callers
    }

    /// Waits for every caller. Returns the number of keys begun.
    pub(super) async fn end(&self, callers: Vec<JoinHandle<()>>) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        for caller in callers {
            caller.await.expect("callers don't panic");
        }
        self.semel.idle().await;
        self.next.load(Ordering::SeqCst)
    }

    /// Requests every key of this worker's share until it is answered. Returns the number without
    /// an answer.
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
            busy += u32::from(told == CallerOutcome::Busy);
            if busy >= CLOSING_WAITS {
                return false;
            }
            pass(Duration::from_millis(self.setup.lease_ms / 8)).await;
        }
        false
    }

    pub(super) fn rng(&self, task: u64) -> StdRng {
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
            if told == CallerOutcome::NotStarted {
                pass(Duration::from_millis(20)).await;
            }
            // Close to the moment of its expiry.
            if asked.tiny && matches!(told, CallerOutcome::Answer(_)) {
                let around = TINY.saturating_sub(Duration::from_micros(1_000));
                pass(around + Duration::from_micros(rng.random_range(0..2_000))).await;
                self.ask(&asked, &mut rng).await;
            }
        }
    }

    pub(super) fn asked(&self, index: u64, odd: bool) -> PendingRequest {
        let tiny = self.setup.tiny && index % TINY_EVERY == 7;
        let hold = index % 2 == 1;
        let key = format!(
            "{}{}-{index}",
            if tiny { "tiny-" } else { "k-" },
            self.number
        );
        PendingRequest {
            identity: identity_of(&key),
            key,
            policy: Arc::clone(&self.policies[usize::from(hold) + 2 * usize::from(tiny)]),
            payload: index * 2 + u64::from(odd),
            tiny,
        }
    }

    async fn call(
        self: &Arc<Self>,
        asked: &PendingRequest,
        plan: Plan,
    ) -> Result<Reply<String>, Error> {
        let operation = self.semel.operation(SCOPE);
        let operation = operation.policy(Arc::clone(&asked.policy));
        let call = operation.key(&asked.key).payload(&asked.payload);
        let (this, what) = (Arc::clone(self), asked.clone());
        call.run(move |lease| this.effect(what, lease, plan)).await
    }

    /// Makes one call, and records its outcome.
    async fn ask(self: &Arc<Self>, asked: &PendingRequest, rng: &mut StdRng) -> CallerOutcome {
        let start = self.log.tick();
        let plan = Plan::of(rng, asked.policy.lease);
        let mut answer = self.call(asked, plan).await;
        while self.setup.restless
            && matches!(answer, Err(Error::Problem(Problem::Busy { .. })))
            && !self.stop.load(Ordering::SeqCst)
        {
            answer = self.call(asked, plan).await;
        }
        let what = match &answer {
            Ok(answer) => CallerOutcome::Answer(KeyEnding::Completed(mark(&answer.value))),
            Err(Error::Rejected(rejection)) => {
                CallerOutcome::Answer(KeyEnding::Failed(mark(&rejection.reason)))
            }
            Err(error) => outcome(error),
        };
        self.log.record_report(CallerReport {
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

    /// An operator resolves a doubt.
    async fn resolve(&self, identity: &Identity, fence: Fence, rng: &mut StdRng) {
        let answer = stored(&format!("resolved-{:x}", rng.random::<u64>()));
        let resolution = resolution(rng, answer);
        // An error is one of the injected faults; the doubt stays.
        let _ = self.recorder.resolve(identity, fence, &resolution).await;
        self.semel.engine().forget(identity);
    }

    async fn effect(
        self: Arc<Self>,
        asked: PendingRequest,
        lease: Lease,
        plan: Plan,
    ) -> Result<String, Failure> {
        if matches!(plan.end, End::NoEffect) {
            return Err(Failure::no_effect("nothing was begun"));
        }
        let fence = lease.fence().unwrap_or(Fence(0));
        self.recorder
            .effect_started(&asked.identity, fence, lease.attempt());
        self.points.pass(Point::InEffect);
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        let mut answer = format!("{}-{}-{run}", self.setup.client(), self.number);
        for step in 0..plan.checkpoints {
            // An owner that has lost its lease learns it again at the settlement.
            let _ = lease.checkpoint(format!("{answer}-{step}")).await;
            pass(plan.takes / plan.checkpoints).await;
        }
        if plan.checkpoints == 0 && !plan.takes.is_zero() {
            pass(plan.takes).await;
        }
        self.recorder.effect_finished(&asked.identity, fence);
        if is_large(asked.payload) {
            answer += &"x".repeat(LARGE_BYTES);
        }
        match plan.end {
            End::Answer => Ok(answer),
            End::Reject => Err(Failure::reject(answer)),
            End::Retry => Err(Failure::retry("may be tried again")),
            End::NoEffect | End::Unknown => Err(Failure::unknown("no reply came")),
        }
    }
}
