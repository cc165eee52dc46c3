//! The engine's rules (P30–P40, P50), one by one, on the memory store and a clock that tests move.

mod apart;
mod breaker;
mod deadline;
mod door;
mod doubt;
mod given_up;
mod leases;
mod modes;
mod once;
mod operate;
mod pauses;
mod queue;
mod remote;
mod scripted;
mod settling;
mod slow;
mod store_down;
mod stubborn;
mod turns;
mod verdicts;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use semel_conformance::clock::{FakeClock, env};
use semel_core::engine::{Engine, EngineConfig, Lease, Report, Request, Response, Verdict};
use semel_core::event::{Event, Observer, Step};
use semel_core::policy::Policy;
use semel_core::{
    Answer, AnswerBody, Fingerprint, Key, MemoryConfig, MemoryStore, Namespace, Secret, Store,
};

/// An engine on a store, with everything in the test's hands.
struct Rig {
    clock: FakeClock,
    store: Arc<dyn Store>,
    engine: Engine,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log(Mutex<Vec<Step>>);

impl Observer for Log {
    fn observe(&self, event: &Event<'_>) {
        self.0.lock().push(event.step);
    }
}

impl Log {
    fn count(&self, fits: impl Fn(&Step) -> bool) -> usize {
        self.0.lock().iter().filter(|step| fits(step)).count()
    }
}

impl Rig {
    fn new() -> Self {
        let clock = FakeClock::new();
        let store = MemoryStore::new(MemoryConfig::default(), Arc::new(clock.clone()));
        Self::on(clock, Arc::new(store), EngineConfig::default())
    }

    fn on(clock: FakeClock, store: Arc<dyn Store>, config: EngineConfig) -> Self {
        // Chance of its own for every rig: two owners with one token would be one owner.
        static SEED: AtomicUsize = AtomicUsize::new(0);
        let log = Arc::new(Log::default());
        let env = env(&clock, SEED.fetch_add(1, Ordering::SeqCst) as u64);
        let engine = Engine::with(
            Arc::clone(&store),
            env,
            Secret::none(),
            config,
            Arc::clone(&log) as _,
        );
        Self {
            clock,
            store,
            engine,
            log,
        }
    }

    /// Another process on the same store and clock.
    fn another(&self) -> Self {
        Self::on(
            self.clock.clone(),
            Arc::clone(&self.store),
            EngineConfig::default(),
        )
    }

    fn request(&self, key: &str, payload: &str, policy: &Policy) -> Request {
        let namespace = Namespace::new("test", "acme", "charge").expect("a namespace");
        let key = Key::parse(key).expect("a key");
        let fingerprint = Fingerprint::builder(self.engine.secret())
            .part(payload.as_bytes())
            .finish();
        Request::new(
            &self.engine,
            namespace,
            &key,
            fingerprint,
            Arc::new(policy.clone()),
        )
    }

    /// Runs `effect` under `key`, with one payload and `policy`.
    async fn run<F, Fut>(&self, key: &str, policy: &Policy, effect: F) -> Response<String>
    where
        F: FnOnce(Lease) -> Fut + Send + 'static,
        Fut: Future<Output = Report<String>> + Send + 'static,
    {
        self.engine
            .execute(self.request(key, "payload", policy), effect)
            .await
    }

    /// Starts the same on a task of its own.
    fn start<F, Fut>(
        &self,
        key: &str,
        policy: &Policy,
        effect: F,
    ) -> tokio::task::JoinHandle<Response<String>>
    where
        F: FnOnce(Lease) -> Fut + Send + 'static,
        Fut: Future<Output = Report<String>> + Send + 'static,
    {
        let (engine, request) = (self.engine.clone(), self.request(key, "payload", policy));
        tokio::spawn(async move { engine.execute(request, effect).await })
    }

    /// Lets time pass in small steps, and every task run in between.
    async fn pass(&self, time: Duration) {
        let step = Duration::from_millis(500);
        let mut left = time;
        while !left.is_zero() {
            let now = left.min(step);
            self.clock.advance(now);
            left -= now;
            settle_down().await;
        }
    }
}

/// Lets every task run until none has anything to do.
async fn settle_down() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// Counts how often an effect runs.
#[derive(Clone, Default)]
struct Effects(Arc<AtomicUsize>);

impl Effects {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// An effect that answers with `text` at once.
    fn answer(
        &self,
        text: &'static str,
    ) -> impl FnOnce(Lease) -> std::future::Ready<Report<String>> + Send + use<> {
        let count = Arc::clone(&self.0);
        move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::ready(completed(text))
        }
    }

    /// An effect that answers with `text` once `gate` opens.
    fn answer_after(
        &self,
        text: &'static str,
        gate: &Gate,
    ) -> impl FnOnce(Lease) -> semel_core::BoxFuture<'static, Report<String>> + Send + use<> {
        let (count, gate) = (Arc::clone(&self.0), gate.clone());
        move |_| {
            Box::pin(async move {
                count.fetch_add(1, Ordering::SeqCst);
                gate.opened().await;
                completed(text)
            })
        }
    }
}

/// Something to wait for that the test opens.
#[derive(Clone, Default)]
struct Gate(Arc<tokio::sync::Notify>);

impl Gate {
    fn open(&self) {
        self.0.notify_one();
    }

    async fn opened(&self) {
        self.0.notified().await;
    }
}

fn completed(text: &str) -> Report<String> {
    Report::new(
        text.to_owned(),
        Verdict::Complete(Answer::from_body(text.to_owned())),
    )
}

fn said(verdict: Verdict) -> Report<String> {
    Report::new("said".to_owned(), verdict)
}

/// The text of a fresh answer.
fn ran(response: &Response<String>) -> &str {
    match response {
        Response::Ran(ran) => &ran.value,
        other => panic!("expected a fresh answer, got {other:?}"),
    }
}

/// The text of a replayed answer.
fn replayed(response: &Response<String>) -> &str {
    match response {
        Response::Replayed(replayed) => match &replayed.replay.answer.body {
            AnswerBody::Kept(body) => std::str::from_utf8(body).expect("text"),
            AnswerBody::Omitted { .. } | AnswerBody::External { .. } => {
                panic!("the body was not kept")
            }
        },
        other => panic!("expected a replay, got {other:?}"),
    }
}

fn hold() -> Policy {
    Policy::default().with_crash(semel_core::CrashPolicy::Hold)
}
