//! [`OnceLayer`]: a tower layer for workers, such as those of `apalis`. A task that is delivered
//! again, because the queue delivers at least once or it was submitted twice, gets the answer of
//! the first run.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use semel_core::engine::{Engine, Report, Request, Response, Verdict};
use semel_core::policy::Policy;
use semel_core::{Answer, AnswerBody, Fingerprint, KeyRules, Namespace};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_layer::Layer;
use tower_service::Service;

/// An error of the service, or of the layer.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The key and payload of a task.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskIdentity {
    /// The idempotency key: the same for every delivery of the task.
    pub key: String,
    /// The payload: JSON. The same key with another payload is refused.
    pub payload: Vec<u8>,
}

impl TaskIdentity {
    /// A task with this key and this payload.
    #[must_use]
    pub fn new(key: impl Into<String>, payload: Vec<u8>) -> Self {
        Self {
            key: key.into(),
            payload,
        }
    }
}

/// Runs each task once. `describe` returns the identity of a task; `None` lets it pass unprotected.
#[derive(Clone)]
pub struct OnceLayer<F> {
    shared: Arc<Shared>,
    describe: F,
}

struct Shared {
    engine: Engine,
    namespace: Namespace,
    policy: Arc<Policy>,
    key_rules: KeyRules,
}

impl<F> OnceLayer<F> {
    /// With records in the store of `engine`, in this namespace.
    pub fn new(engine: &Engine, namespace: Namespace, policy: Policy, describe: F) -> Self {
        let shared = Shared {
            engine: engine.clone(),
            namespace,
            policy: Arc::new(policy),
            key_rules: KeyRules::default(),
        };
        Self {
            shared: Arc::new(shared),
            describe,
        }
    }
}

impl<S, F: Clone> Layer<S> for OnceLayer<F> {
    type Service = OnceService<S, F>;

    fn layer(&self, inner: S) -> OnceService<S, F> {
        OnceService {
            inner,
            shared: Arc::clone(&self.shared),
            describe: self.describe.clone(),
        }
    }
}

/// The service of an [`OnceLayer`].
#[derive(Clone)]
pub struct OnceService<S, F> {
    inner: S,
    shared: Arc<Shared>,
    describe: F,
}

impl<S, F, T> Service<T> for OnceService<S, F>
where
    S: Service<T> + Clone + Send + 'static,
    S::Response: Serialize + DeserializeOwned + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    F: Fn(&T) -> Option<TaskIdentity>,
    T: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, task: T) -> Self::Future {
        // Takes the service that is ready, and leaves a clone.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let Some(known) = (self.describe)(&task) else {
            let called = inner.call(task);
            return Box::pin(async move { called.await.map_err(Into::into) });
        };
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let request = shared.request(&known)?;
            let effect = move |_| async move {
                let value = inner.call(task).await.map_err(Into::into);
                let verdict = verdict(value.as_ref().ok());
                Report::new(value, verdict)
            };
            match shared.engine.execute(request, effect).await {
                Response::Ran(ran) => ran.value,
                Response::Unprotected(value) => value,
                Response::Replayed(replayed) => match &replayed.replay.answer.body {
                    AnswerBody::Kept(body) => Ok(serde_json::from_slice(body)?),
                    AnswerBody::Omitted { .. } | AnswerBody::External { .. } => {
                        Err("done before; the answer was too large to keep".into())
                    }
                },
                Response::Problem(problem) => Err(problem.into()),
            }
        })
    }
}

fn verdict<R: Serialize>(value: Option<&R>) -> Verdict {
    match value.map(serde_json::to_vec) {
        Some(Ok(body)) => Verdict::Complete(Answer::from_body(body)),
        // The effect has happened, so it is recorded even if its answer can't be serialized.
        Some(Err(_)) => Verdict::Complete(Answer {
            body: AnswerBody::Omitted { bytes: 0 },
            ..Answer::from_body("")
        }),
        None => Verdict::Retry,
    }
}

impl Shared {
    fn request(&self, known: &TaskIdentity) -> Result<Request, BoxError> {
        let key = self.key_rules.check(&known.key)?;
        let fingerprint = Fingerprint::builder(self.engine.secret());
        let fingerprint = fingerprint.json(&known.payload)?.finish();
        let (namespace, policy) = (self.namespace.clone(), Arc::clone(&self.policy));
        Ok(Request::new(
            &self.engine,
            namespace,
            &key,
            fingerprint,
            policy,
        ))
    }
}
