//! The typed operation, built step by step: scope → key → payload → run.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use semel_core::engine::{Doubt, Lease, Recover, Replayed, Report, Request, Response, Verdict};
use semel_core::policy::Policy;
use semel_core::{Answer as Stored, AnswerBody, CrashPolicy, Fingerprint, FingerprintBuilder, Key};
use semel_core::{DataSubject, Namespace, Resolution, State};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answer::{Error, Failure, FailureKind, Rejection, TypedAnswer, system_time};
use crate::open::Semel;

/// An operation that has a scope. Next: [`Operation::key`].
#[must_use = "an operation does nothing until `run`"]
pub struct Operation {
    semel: Semel,
    scope: String,
    tenant: String,
    policy: Arc<Policy>,
    actor: Option<Arc<str>>,
    subject: Option<String>,
}

impl Semel {
    /// Begins an operation: `scope` names what is done, such as `"charge"`.
    pub fn operation(&self, scope: &str) -> Operation {
        Operation::new(self.clone(), scope)
    }
}

impl Operation {
    fn new(semel: Semel, scope: &str) -> Self {
        let policy = Arc::clone(&semel.shared.policy);
        Self {
            semel,
            scope: scope.to_owned(),
            tenant: String::new(),
            policy,
            actor: None,
            subject: None,
        }
    }

    /// The tenant: equal keys of different tenants are different keys.
    pub fn tenant(mut self, tenant: &str) -> Self {
        tenant.clone_into(&mut self.tenant);
        self
    }

    /// Names the caller for events: logs and the audit trail. It isn't part of the key, and never
    /// kept in a record.
    pub fn actor(mut self, actor: &str) -> Self {
        self.actor = Some(actor.into());
        self
    }

    /// Names whose data the operation leaves, such as the id of a customer: with data keys per
    /// subject ([`Encryption::data_keys`](crate::Encryption::data_keys)), it can be erased alone
    /// ([`Semel::erase`]). It isn't part of the key, and only a keyed digest of it is kept.
    pub fn subject(mut self, name: &str) -> Self {
        self.subject = Some(name.to_owned());
        self
    }

    /// Uses `policy` for this operation instead of the default one. Share it between calls.
    pub fn policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.policy = policy.into();
        self
    }

    /// At most once: if this process crashes, the key is in doubt until resolved. For effects that
    /// can't be undone.
    pub fn hold(mut self) -> Self {
        Arc::make_mut(&mut self.policy).crash = CrashPolicy::Hold;
        self
    }

    /// How long the answer is kept, from when it is stored.
    pub fn retention(mut self, retention: Duration) -> Self {
        Arc::make_mut(&mut self.policy).retention = retention;
        self
    }

    /// How long the answer is replayed, if that is shorter than the retention. Later, a call with
    /// the same key and payload gets [`Problem::AnswerExpired`](crate::core::engine::Problem), and
    /// nothing runs. Not in a transaction of the caller's ([`Call::run_in`](crate::Call::run_in)).
    pub fn answer_retention(mut self, answer_retention: Duration) -> Self {
        Arc::make_mut(&mut self.policy).answer_retention = Some(answer_retention);
        self
    }

    /// The caller's key.
    pub fn key(self, key: &str) -> Keyed {
        let key = self.semel.shared.key_rules.check(key).map_err(Error::from);
        Keyed {
            operation: self,
            key,
        }
    }
}

/// An operation that has a key. Next: [`Keyed::payload`].
#[must_use = "an operation does nothing until `run`"]
pub struct Keyed {
    operation: Operation,
    key: Result<Key, Error>,
}

impl Keyed {
    /// The payload of the request. The same key with another payload is refused.
    ///
    /// Two payloads are the same if their JSON has the same meaning: member order doesn't count.
    pub fn payload(self, payload: &(impl Serialize + ?Sized)) -> Call {
        let text = serde_json::to_vec(payload).map_err(Error::Payload);
        let fingerprint = text.and_then(|text| Ok(self.builder().json(&text)?.finish()));
        self.call(fingerprint)
    }

    /// The payload as bytes, which are compared byte by byte.
    pub fn payload_bytes(self, payload: &[u8]) -> Call {
        let fingerprint = Ok(self.builder().part(payload).finish());
        self.call(fingerprint)
    }

    /// No payload: the key alone identifies the request, without a check against reuse.
    pub fn no_payload(self) -> Call {
        let fingerprint = Ok(self.builder().finish());
        self.call(fingerprint)
    }

    fn builder(&self) -> FingerprintBuilder {
        Fingerprint::builder(self.operation.semel.engine().secret())
    }

    fn call(self, fingerprint: Result<Fingerprint, Error>) -> Call {
        let Self { operation, key } = self;
        Call {
            operation,
            key,
            fingerprint,
            recover: None,
        }
    }
}

/// An operation that can be run.
#[must_use = "an operation does nothing until `run`"]
pub struct Call {
    operation: Operation,
    key: Result<Key, Error>,
    fingerprint: Result<Fingerprint, Error>,
    recover: Option<Recover>,
}

impl Call {
    /// Asks `find_out` what happened if the key is in doubt. It returns a resolution, or `None` if
    /// it can't tell.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let semel = semel::Semel::open("memory://").await?;
    /// # async fn provider_knows(_: &str) -> bool { false }
    /// use semel::{Doubt, Resolution};
    ///
    /// let call = semel.operation("charge").hold().key("ord-1").payload(&100).recover(
    ///     |doubt: Doubt| async move {
    ///         let happened = provider_knows(&doubt.derive_key("psp")).await;
    ///         (!happened).then_some(Resolution::Release)
    ///     },
    /// );
    /// # let _ = call.run(|_| async { Ok::<_, std::io::Error>(()) }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn recover<F, Fut>(mut self, find_out: F) -> Self
    where
        F: Fn(Doubt) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<Resolution>> + Send + 'static,
    {
        self.recover = Some(Arc::new(move |doubt| Box::pin(find_out(doubt))));
        self
    }

    /// Runs `effect` if this is the first call with its key; gives every caller the same answer.
    ///
    /// The effect goes on if the returned future is dropped. `effect` gets the [`Lease`], with the
    /// fence, derived keys and checkpoints.
    ///
    /// # Errors
    /// [`Error`] says what happened, and whether calling again can help.
    pub async fn run<T, E, F, Fut>(self, effect: F) -> Result<TypedAnswer<T>, Error>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Into<Failure>,
        F: FnOnce(Lease) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
    {
        let crash = self.crash();
        let (semel, request) = self.request()?;
        let effect = |lease| async move { report(effect(lease).await.map_err(Into::into)) };
        let response = semel.engine().execute(request, effect).await;
        answer(response, &semel, crash)
    }

    /// The crash policy of this call, for an unknown outcome.
    pub(crate) fn crash(&self) -> CrashPolicy {
        self.operation.policy.crash
    }

    /// Builds the request for the engine.
    pub(crate) fn request(self) -> Result<(Semel, Request), Error> {
        let Self {
            operation,
            key,
            fingerprint,
            recover,
        } = self;
        let Operation {
            semel,
            scope,
            tenant,
            policy,
            actor,
            subject,
        } = operation;
        let namespace = Namespace::new(&semel.shared.environment, &tenant, &scope)?;
        let mut request = Request::new(semel.engine(), namespace, &key?, fingerprint?, policy);
        if let Some(actor) = actor {
            request = request.with_actor(actor);
        }
        if let Some(subject) = subject {
            request = request.with_data_subject(DataSubject::new(&subject)?);
        }
        if let Some(recover) = recover {
            request = request.recover_with(recover);
        }
        Ok((semel, request))
    }
}

/// Converts the engine's response into the caller's answer.
pub(crate) fn answer<T: DeserializeOwned>(
    response: Response<Result<T, Failure>>,
    semel: &Semel,
    crash: CrashPolicy,
) -> Result<TypedAnswer<T>, Error> {
    let (said, attempt, record) = match response {
        Response::Ran(ran) => (ran.value, ran.attempt, Some(ran.state)),
        Response::Unprotected(said) => (said, 1, None),
        Response::Replayed(replayed) => return from_record(&replayed),
        Response::Problem(problem) => return Err(problem.into()),
    };
    match said {
        Ok(value) => Ok(TypedAnswer {
            value,
            replayed: false,
            attempt,
            original_time: system_time(semel.engine().env().clock.wall()),
        }),
        Err(Failure(kind)) => Err(error_for(kind, record, crash)),
    }
}

/// The caller's error for a failed effect, by the state of its record. Without a record, the call's
/// own policy decides what may have happened, as in P36.
fn error_for(kind: FailureKind, record: Option<State>, crash: CrashPolicy) -> Error {
    match (kind, record) {
        (FailureKind::Reject(reason), _) => Error::Rejected(Rejection {
            reason,
            replayed: false,
        }),
        (FailureKind::Unknown(cause), None) => Error::Unknown(cause),
        (FailureKind::Retry(cause), None) if crash == CrashPolicy::Hold => Error::Unknown(cause),
        (
            FailureKind::Retry(cause) | FailureKind::NoEffect(cause) | FailureKind::Unknown(cause),
            Some(State::InDoubt),
        ) => Error::InDoubt(cause),
        (
            FailureKind::Retry(cause) | FailureKind::NoEffect(cause) | FailureKind::Unknown(cause),
            _,
        ) => Error::Failed(cause),
    }
}

/// Makes the engine's report of an effect's result: its value, and the verdict for the record.
pub(crate) fn report<T: Serialize>(said: Result<T, Failure>) -> Report<Result<T, Failure>> {
    let verdict = match &said {
        Ok(value) => Verdict::Complete(stored(value)),
        Err(Failure(FailureKind::Reject(reason))) => Verdict::Fail(stored(reason)),
        Err(Failure(FailureKind::Retry(_))) => Verdict::Retry,
        Err(Failure(FailureKind::NoEffect(_))) => Verdict::NoEffect,
        Err(Failure(FailureKind::Unknown(_))) => Verdict::Unknown,
    };
    Report::new(said, verdict)
}

fn stored(value: &impl Serialize) -> Stored {
    match serde_json::to_vec(value) {
        Ok(body) => Stored::from_body(body),
        // The effect has happened, so it is recorded even if its answer can't be serialized.
        Err(_) => Stored {
            body: AnswerBody::Omitted { bytes: 0 },
            ..Stored::from_body("")
        },
    }
}

fn from_record<T: DeserializeOwned>(replayed: &Replayed) -> Result<TypedAnswer<T>, Error> {
    let replay = &replayed.replay;
    let body = match &replay.answer.body {
        AnswerBody::Kept(body) => Ok(body),
        AnswerBody::Omitted { bytes } | AnswerBody::External { bytes, .. } => {
            Err(Error::NotKept { bytes: *bytes })
        }
    };
    // Failed records stay failures even if the reason was not kept.
    if replay.state == State::Failed {
        let reason = body.ok().and_then(|body| serde_json::from_slice(body).ok());
        return Err(Error::Rejected(Rejection {
            reason: reason.unwrap_or_default(),
            replayed: true,
        }));
    }
    let value = serde_json::from_slice(body?).map_err(Error::Answer)?;
    let original_time = system_time(replay.requested_at);
    Ok(TypedAnswer {
        value,
        replayed: true,
        attempt: replay.attempt,
        original_time,
    })
}
