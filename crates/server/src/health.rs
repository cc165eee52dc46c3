//! Health probes: liveness, readiness, and the self-check.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{StatusCode, header};
use parking_lot::Mutex;
use semel::core::engine::{Engine, Report, Request, Verdict};
use semel::core::event::{BreakerState, NoopObserver};
use semel::core::{Answer, Fingerprint, Identity, Key, Namespace, Secret, Tick};
use semel::{CacheConfig, EngineConfig, OnBusy, Policy, Semel};

use crate::config::SelfCheck;

/// The scope of the self-check's own operations.
pub const SELF_CHECK_SCOPE: &str = "semel-self-check";

/// How long the store may take before it counts as down.
const STORE_LIMIT: Duration = Duration::from_secs(2);

/// How long a result of the store probe is cached, so that readiness probes cannot overload the
/// store.
const CACHED_FOR: Duration = Duration::from_millis(500);

/// The health of this process.
pub struct Health {
    semel: Semel,
    environment: String,
    /// An engine without replay cache, so that the self-check tests the store.
    engine: Engine,
    draining: AtomicBool,
    mode: SelfCheck,
    /// The last result of the self-check; `None` before the first.
    checked: Mutex<Option<Result<(), String>>>,
    store: tokio::sync::Mutex<Option<(Tick, bool)>>,
}

impl Health {
    /// The health before the first check.
    #[must_use]
    pub fn new(semel: &Semel, environment: &str, mode: SelfCheck) -> Arc<Self> {
        let engine = semel.engine();
        let config = EngineConfig::default().with_cache(CacheConfig::default().with_max_bytes(0));
        let (store, env) = (Arc::clone(engine.store()), engine.env().clone());
        let engine = Engine::with(
            store,
            env,
            engine.secret().clone(),
            config,
            Arc::new(NoopObserver),
        );
        Arc::new(Self {
            semel: semel.clone(),
            environment: environment.to_owned(),
            engine,
            draining: AtomicBool::new(false),
            mode,
            checked: Mutex::new(None),
            store: tokio::sync::Mutex::new(None),
        })
    }

    /// Makes the process not ready from now on.
    pub fn start_drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Runs one operation twice, and verifies that the second is a replay of the first.
    ///
    /// # Errors
    /// A description of what happened instead.
    pub async fn self_check(&self) -> Result<(), String> {
        let result = self.run_twice().await;
        *self.checked.lock() = Some(result.clone());
        result
    }

    async fn run_twice(&self) -> Result<(), String> {
        let entropy = &self.engine.env().entropy;
        let key = Key::parse(&format!("{:032x}", entropy.next_u128()))
            .map_err(|error| error.to_string())?;
        let namespace = Namespace::new(&self.environment, "", SELF_CHECK_SCOPE)
            .map_err(|error| error.to_string())?;
        let policy = Arc::new(
            Policy::default()
                .with_lease(Duration::from_secs(10))
                .with_retention(Duration::from_secs(60))
                .with_on_busy(OnBusy::Refuse),
        );
        let runs = Arc::new(AtomicU32::new(0));
        for round in ["first", "second"] {
            let fingerprint = Fingerprint::builder(self.engine.secret())
                .part(b"self-check")
                .finish();
            let request = Request::new(
                &self.engine,
                namespace.clone(),
                &key,
                fingerprint,
                Arc::clone(&policy),
            );
            let counted = Arc::clone(&runs);
            let effect = move |_| async move {
                counted.fetch_add(1, Ordering::SeqCst);
                Report::new((), Verdict::Complete(Answer::from_body("semel")))
            };
            match (round, self.engine.execute(request, effect).await) {
                ("first", semel::core::engine::Response::Ran(_)) => {}
                ("second", semel::core::engine::Response::Replayed(replayed))
                    if *replayed.replay.answer == Answer::from_body("semel") => {}
                (_, semel::core::engine::Response::Problem(problem)) => {
                    return Err(format!(
                        "the {round} of two requests with one key failed: {problem}"
                    ));
                }
                _ => {
                    return Err(format!(
                        "the {round} of two requests with one key had an unexpected result"
                    ));
                }
            }
        }
        match runs.load(Ordering::SeqCst) {
            1 => Ok(()),
            runs => Err(format!("two requests with one key ran {runs} times")),
        }
    }

    async fn store_answers(&self) -> bool {
        let clock = &self.engine.env().clock;
        let mut cached = self.store.lock().await;
        let now = clock.now();
        if let Some((at, answers)) = *cached
            && now.since(at) < CACHED_FOR
        {
            return answers;
        }
        let namespace = Namespace::new(&self.environment, "", SELF_CHECK_SCOPE).ok();
        let identity = namespace.and_then(|namespace| {
            let key = Key::parse("ready").ok()?;
            Some(Identity::new(&Secret::none(), &namespace, &key))
        });
        let Some(identity) = identity else {
            return false;
        };
        let read = clock
            .timeout(STORE_LIMIT, self.engine.store().read(&identity))
            .await;
        let answers = matches!(read, Ok(Ok(_)));
        *cached = Some((clock.now(), answers));
        answers
    }

    async fn readiness(&self) -> (bool, serde_json::Value) {
        let store = self.store_answers().await;
        let breaker = self.semel.engine().breaker();
        let draining = self.draining.load(Ordering::SeqCst);
        let checked = self.checked.lock().clone();
        let check_fails = matches!(checked, Some(Err(_))) && self.mode == SelfCheck::Fail;
        let ready = store && breaker != BreakerState::Open && !draining && !check_fails;
        let document = serde_json::json!({
            "ready": ready,
            "store": if store { "answers" } else { "gives no answer" },
            "breaker": match breaker {
                BreakerState::Closed => "closed",
                BreakerState::HalfOpen => "half-open",
                BreakerState::Open => "open",
            },
            "draining": draining,
            "selfCheck": match checked {
                None => "not run".to_owned(),
                Some(Ok(())) => "passed".to_owned(),
                Some(Err(why)) => why,
            },
            "running": self.semel.engine().running(),
            "waiting": self.semel.engine().waiting(),
        });
        (ready, document)
    }

    /// `/healthz` and a detailed `/readyz`, for operators.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .with_state(Arc::clone(self))
    }

    /// `/healthz` and a `/readyz` without details, for everybody.
    pub fn short_router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready_brief))
            .with_state(Arc::clone(self))
    }
}

async fn ready(State(health): State<Arc<Health>>) -> Response {
    let (ready, document) = health.readiness().await;
    ready_response(ready, &document)
}

async fn ready_brief(State(health): State<Arc<Health>>) -> Response {
    let (ready, _) = health.readiness().await;
    ready_response(ready, &serde_json::json!({ "ready": ready }))
}

fn ready_response(ready: bool, document: &serde_json::Value) -> Response {
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, document.to_string()).into_response()
}

/// Repeats the self-check as long as the health is in use.
pub(crate) async fn repeat_self_check(health: std::sync::Weak<Health>, every: Duration) {
    let mut failing = false;
    loop {
        let Some(clock) = health
            .upgrade()
            .map(|health| Arc::clone(&health.engine.env().clock))
        else {
            return;
        };
        clock.sleep(every).await;
        let Some(health) = health.upgrade() else {
            return;
        };
        match health.self_check().await {
            Err(why) => tracing::error!(why, "the self-check failed"),
            Ok(()) if failing => tracing::info!("the self-check passes again"),
            Ok(()) => {}
        }
        failing = matches!(*health.checked.lock(), Some(Err(_)));
    }
}
