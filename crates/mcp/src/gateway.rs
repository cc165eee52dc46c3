//! [`Gateway`]: turns a call into a request of the engine, and the engine's response into a reply.

mod held;
mod observed;
#[cfg(test)]
mod tests;
mod verify;
#[cfg(test)]
mod verify_tests;
#[cfg(test)]
mod wording_tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel::core::engine::{
    Engine, Lease, OperatorOutcome, Problem, Ran, Report, Request, Response, Verdict,
};
use semel::core::event::{ShadowDecision, Step};
use semel::core::{
    BoxFuture, Clock, Code, Fence, Fingerprint, Identity, Key, Namespace, NamespaceError,
    Resolution, Tick,
};
use semel::{CrashPolicy, Mode, Policy, Semel};

use self::held::Variant;
use self::verify::{DID_NOTHING, Turns, Verifier, ended_in_doubt};
pub(crate) use self::verify::{Lookup, ServerGone};
use crate::answer::{self, Reply};
use crate::call::{Call, CallKey, Caller, DERIVED_PREFIX};
use crate::hints::Hints;
use crate::identity::Sketch;
use crate::outcome::{self, AnswerTerms, Outcome};
use crate::rewordings::Rewordings;
use crate::settings::{KeyRule, Settings, Treatment};
use crate::tools::ToolFacts;
use crate::verify::VerifyRule;

/// The engine of a store and the settings for tools, shared by all connections.
pub struct Gateway {
    pub(crate) semel: Semel,
    pub(crate) settings: Settings,
    rewordings: Rewordings,
    turns: Turns,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gateway({}, {:?})", self.settings.name, self.semel)
    }
}

/// What to do with a call.
pub(crate) enum Plan {
    /// Forward it unchanged.
    Pass,
    /// Forward this message: the call without its empty key argument.
    Keyless(Bytes),
    /// Reply without calling the server.
    Answer(Reply),
    /// Run it under its key.
    Run(Box<KeyedCall>),
}

/// A call with its key.
pub(crate) struct KeyedCall {
    pub(crate) call: Arc<Call>,
    pub(crate) key: Key,
    is_derived: bool,
    treatment: Treatment,
    origin: Origin,
    /// What a variant of the call is compared with, if the key is derived from a part of the
    /// arguments.
    sketch: Option<Sketch>,
    request: Request,
    /// The request that keeps a doubt about a derived key for longer than the key itself lives (see
    /// `report_to_guard`).
    guard: Option<Request>,
    /// How to find out whether the call took effect.
    verify: Option<Arc<VerifyRule>>,
    facts: ToolFacts,
}

impl KeyedCall {
    /// Whether a doubt about the call can be looked up.
    pub(crate) fn can_be_verified(&self) -> bool {
        self.verify.is_some()
    }
}

/// Where the key of a call comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeySource {
    Caller,
    Arguments,
    /// The arguments that identify the call.
    Identity,
}

/// What all requests of a call have in common.
#[derive(Clone)]
struct Origin {
    namespace: Namespace,
    tool: Arc<str>,
    principal: Arc<str>,
    /// Whether nobody else makes calls in this namespace.
    has_one_caller: bool,
    fingerprint: Fingerprint,
}

impl Origin {
    fn request(&self, engine: &Engine, key: &Key, policy: Policy) -> Request {
        let (namespace, policy) = (self.namespace.clone(), Arc::new(policy));
        let request = Request::new(engine, namespace, key, self.fingerprint, policy)
            .with_operation(Arc::clone(&self.tool));
        match &*self.principal {
            "" => request,
            _ => request.with_actor(Arc::clone(&self.principal)),
        }
    }
}

/// A call that is about to be forwarded.
pub(crate) struct OutgoingCall {
    pub(crate) message: Bytes,
    /// The key for the `Idempotency-Key` header of the server's HTTP endpoint.
    pub(crate) downstream: Option<String>,
    pub(crate) doubt: OpenDoubt,
}

/// The leases that a late answer resolves.
#[derive(Clone, Debug)]
pub(crate) struct OpenDoubt {
    leases: Vec<(Identity, Fence)>,
    terms: AnswerTerms,
}

impl Gateway {
    /// Creates a gateway on the store of `semel`.
    ///
    /// # Errors
    /// A sentence that says which setting is wrong.
    pub fn new(semel: Semel, settings: Settings) -> Result<Arc<Self>, String> {
        settings.check()?;
        Ok(Arc::new(Self {
            semel,
            settings,
            rewordings: Rewordings::default(),
            turns: Turns::default(),
        }))
    }

    /// Sleeps on the engine's clock.
    pub(crate) fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        self.semel.engine().env().clock.sleep(span)
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.semel.engine().env().clock)
    }

    pub(crate) fn now(&self) -> Tick {
        self.semel.engine().env().clock.now()
    }

    /// Completes when a call has reached its time limit. Never completes where calls have no limit.
    pub(crate) fn call_limit(&self) -> BoxFuture<'static, ()> {
        match self.settings.limit() {
            Some(limit) => self.sleep(limit),
            None => Box::pin(std::future::pending()),
        }
    }

    /// Whether a call may need protection: it has a key, or the settings protect its tool.
    pub(crate) fn may_need_key(&self, call: &Call) -> bool {
        let rule = self.settings.treatment(&call.tool, Hints::default()).key;
        rule != KeyRule::Optional || call.brings_key()
    }

    pub(crate) fn plan(&self, mut call: Call, facts: Option<ToolFacts>, caller: &Caller) -> Plan {
        let listed = facts;
        let facts = listed.unwrap_or_default();
        let treatment = self.settings.treatment(&call.tool, facts.hints);
        if treatment.bypass {
            return Plan::Pass;
        }
        let secret = self.semel.engine().secret();
        let (settings, tool) = (&self.settings, call.tool.clone());
        let identity = settings.identity_rule(&tool);
        // Of a tool that is not listed, the argument may be its own.
        if let (Some(_), Some(facts)) = (identity, listed) {
            call.take_new_call(facts);
        }
        let key = call.take_key(facts, self.semel.key_rules());
        let source = &settings.conversation;
        let key = key.and_then(|given| {
            call.choose_key(given, treatment.key, identity, caller, source, secret)
        });
        let (key, source) = match key {
            Ok(CallKey::Given(key)) => (key, KeySource::Caller),
            Ok(CallKey::Derived(key)) => (key, KeySource::Arguments),
            Ok(CallKey::Identity(key)) => (key, KeySource::Identity),
            Ok(CallKey::None) => return Plan::Keyless(call.to_message(None)),
            Err(error) => return self.refuse(&call, answer::NO_KEY, &error),
        };
        match self.prepare(call, key, source, treatment, facts, caller) {
            Ok(keyed) => Plan::Run(Box::new(keyed)),
            Err((call, error)) => self.refuse(&call, answer::REFUSED, &error),
        }
    }

    /// Refuses a call that has no usable key. Outside of enforce mode the call passes (P39).
    fn refuse(&self, call: &Call, code: Code, why: &dyn std::fmt::Display) -> Plan {
        let would = ShadowDecision::Refuse(code);
        let (step, plan) = match self.settings.policy.mode {
            Mode::Observe => (Step::Observed { decision: would }, Plan::Pass),
            Mode::Off => return Plan::Pass,
            _ => {
                let reply = answer::refused(call, code, why);
                (Step::Refused { code }, Plan::Answer(reply))
            }
        };
        // The report does not name the caller, so an invalid principal does no harm here.
        if let Ok(namespace) = self.namespace(&call.tool, &Caller::default()) {
            let engine = self.semel.engine();
            engine.report(&namespace, Some(&call.tool), step);
        }
        plan
    }

    fn prepare(
        &self,
        call: Call,
        key: Key,
        source: KeySource,
        treatment: Treatment,
        facts: ToolFacts,
        caller: &Caller,
    ) -> Result<KeyedCall, (Box<Call>, NamespaceError)> {
        let namespace = match self.namespace(&call.tool, caller) {
            Ok(namespace) => namespace,
            Err(error) => return Err((Box::new(call), error)),
        };
        let engine = self.semel.engine();
        let origin = Origin {
            namespace,
            tool: call.tool.as_str().into(),
            principal: caller.principal.as_str().into(),
            has_one_caller: !caller.is_remote || !caller.principal.is_empty(),
            fingerprint: call.fingerprint(caller, engine.secret()),
        };
        let is_derived = source != KeySource::Caller;
        let is_identity = source == KeySource::Identity;
        let arguments = call.arguments_value().filter(|_| is_identity);
        let sketch =
            arguments.map(|value| Sketch::new(&value, &caller.credentials, engine.secret()));
        let request = |key: &Key, policy: Policy| {
            let request = origin.request(engine, key, policy);
            match is_identity {
                true => request.hold_variants(),
                false => request,
            }
        };
        let policy = match is_derived {
            true => self.settings.windowed_policy(treatment.crash),
            false => self.settings.policy_with(treatment.crash),
        };
        // A model asks for the result of a call by sending its derived key as its own.
        let guard = guard_key(&key)
            .filter(|_| treatment.crash == CrashPolicy::Hold)
            .map(|key| request(&key, self.settings.policy_with(CrashPolicy::Hold)));
        let verify = self.settings.verify_rule(&call.tool);
        Ok(KeyedCall {
            request: request(&key, policy),
            guard,
            verify: verify.filter(|_| self.settings.enforces()),
            facts,
            call: Arc::new(call),
            key,
            is_derived,
            treatment,
            sketch,
            origin,
        })
    }

    pub(crate) fn namespace(
        &self,
        tool: &str,
        caller: &Caller,
    ) -> Result<Namespace, NamespaceError> {
        Namespace::with_principal(
            self.semel.environment(),
            &self.settings.tenant,
            &self.settings.scope(&caller.path, tool),
            &caller.principal,
        )
    }

    /// Runs a call once. `send` forwards it and waits for its outcome. `lookup` calls another tool,
    /// to find out about a doubt.
    pub(crate) async fn run<F>(
        self: &Arc<Self>,
        keyed: KeyedCall,
        lookup: Option<Lookup>,
        send: F,
    ) -> Reply
    where
        F: FnOnce(OutgoingCall) -> BoxFuture<'static, Outcome> + Send + 'static,
    {
        let noted = keyed.sketch.as_ref().map(Sketch::to_bytes);
        let terms = AnswerTerms::new(keyed.treatment.errors, noted.as_ref());
        let verifier = self.verifier(&keyed, &terms, lookup);
        let KeyedCall {
            call,
            key,
            is_derived,
            treatment,
            origin,
            sketch,
            mut request,
            mut guard,
            facts,
            ..
        } = keyed;
        // In observe mode a call waits for no more of the store than its claim (P39).
        let noted = noted.filter(|_| self.settings.enforces());
        let again = verifier.is_some().then(|| (request.clone(), guard.clone()));
        if let Some(verifier) = &verifier {
            request = request.recover_with(verifier.hook());
            guard = guard.map(|guard| guard.recover_with(verifier.hook()));
        }
        let sending = self.sending(&call, &terms, is_derived, &request, guard.as_ref());
        // The caller means an earlier call, so this one must not act if that is forgotten.
        let is_repeated = sketch.is_some() && call.new_call == Some(false);
        let forward = move |leases: &[&Lease]| match is_repeated {
            false => send(sending(leases)),
            true => not_sent(answer::GONE),
        };
        let response = self.execute(request, guard, noted, terms.clone(), forward);
        let mut response = response.await;
        if let (Some(verifier), Some((request, guard))) = (verifier, again)
            && ended_in_doubt(&response)
            && Box::pin(verifier.resolve()).await
        {
            let nothing = |_: &[&Lease]| not_sent(DID_NOTHING);
            let settled = self.execute(request, guard, None, terms.clone(), nothing);
            response = Box::pin(settled).await;
        }
        match sketch.filter(|_| is_held(&response)) {
            None => answer::write(&self.settings, &call, &key, response),
            Some(sketch) => {
                let variant = Variant {
                    call: &call,
                    key,
                    origin,
                    treatment,
                    sketch,
                    terms,
                    declares_new_call: facts.declares_new_call,
                };
                Box::pin(self.hold(variant)).await
            }
        }
    }

    /// Makes the message that is sent under these leases.
    fn sending(
        &self,
        call: &Arc<Call>,
        terms: &AnswerTerms,
        is_derived: bool,
        request: &Request,
        guard: Option<&Request>,
    ) -> impl FnOnce(&[&Lease]) -> OutgoingCall + Send + 'static + use<> {
        // A derived key is used again by the next equal call after the window, which is a new
        // operation for the systems behind. So only the caller's own keys are passed on.
        let pass_key = self.settings.pass_key && !is_derived;
        let identities = identities(request, guard);
        let (call, terms) = (Arc::clone(call), terms.clone());
        move |leases| {
            let downstream = leases.first().filter(|_| pass_key);
            let downstream = downstream.map(|lease| lease.derive_key(DOWNSTREAM_STEP));
            let fences = leases.iter().filter_map(|lease| lease.fence());
            OutgoingCall {
                message: call.to_message(downstream.as_deref()),
                downstream,
                doubt: OpenDoubt {
                    leases: identities.into_iter().zip(fences).collect(),
                    terms,
                },
            }
        }
    }

    fn verifier(
        self: &Arc<Self>,
        keyed: &KeyedCall,
        terms: &AnswerTerms,
        lookup: Option<Lookup>,
    ) -> Option<Arc<Verifier>> {
        let secret = self.semel.engine().secret();
        let identities = identities(&keyed.request, keyed.guard.as_ref());
        let passes_key = self.settings.pass_key && !keyed.is_derived;
        let downstream = passes_key.then(|| identities[0].derive_key(secret, DOWNSTREAM_STEP));
        Some(Arc::new(Verifier {
            gateway: Arc::clone(self),
            rule: keyed.verify.clone()?,
            call: Arc::clone(&keyed.call),
            key: keyed.key.clone(),
            origin: keyed.origin.clone(),
            identities,
            downstream,
            terms: terms.clone(),
            declares_output: keyed.facts.declares_output,
            lookup: lookup?,
        }))
    }

    /// Runs the call through the engine: under its own record, and under its guard's if it has one.
    async fn execute<F>(
        &self,
        request: Request,
        guard: Option<Request>,
        noted: Option<Bytes>,
        terms: AnswerTerms,
        forward: F,
    ) -> Response<Outcome>
    where
        F: FnOnce(&[&Lease]) -> BoxFuture<'static, Outcome> + Send + 'static,
    {
        let engine = self.semel.engine();
        let Some(guard) = guard else {
            let effect = move |lease: Lease| async move {
                let outcome = match note(&lease, noted).await {
                    Ok(()) => forward(&[&lease]).await,
                    Err(outcome) => outcome,
                };
                outcome.report(&terms)
            };
            return engine.execute(request, effect).await;
        };
        let inner = engine.clone();
        let effect = move |lease: Lease| async move {
            let guard_terms = terms.clone();
            let effect = move |guarding: Lease| async move {
                let outcome = match note(&guarding, noted).await {
                    Ok(()) => forward(&[&lease, &guarding]).await,
                    Err(outcome) => outcome,
                };
                report_to_guard(outcome, &guard_terms)
            };
            outcome_of_guard(inner.execute(guard, effect).await).report(&terms)
        };
        engine.execute(request, effect).await
    }

    /// Resolves a doubt with an answer that arrived after the time limit.
    pub(crate) async fn resolve_late(&self, doubt: &OpenDoubt, message: &[u8]) {
        let mut resolution = match outcome::late_verdict(message, &doubt.terms) {
            Some(Verdict::Complete(answer)) => Resolution::Complete(Arc::new(answer)),
            Some(Verdict::Fail(answer)) => Resolution::Fail(Arc::new(answer)),
            Some(_) => Resolution::Release,
            None => return,
        };
        for (identity, fence) in &doubt.leases {
            if self.resolve_doubt(identity, *fence, &resolution).await {
                // The guard comes second. It is released once the call's own record has the answer.
                // If that record has expired, the guard keeps the answer.
                resolution = Resolution::Release;
            }
        }
    }

    /// Resolves one doubt. Returns whether it did.
    async fn resolve_doubt(
        &self,
        identity: &Identity,
        fence: Fence,
        resolution: &Resolution,
    ) -> bool {
        // The record may not say `in_doubt` yet.
        for pause in [10, 100, 1_000, 5_000] {
            let engine = self.semel.engine();
            match engine.resolve(identity, fence, resolution).await {
                Ok(OperatorOutcome::Done { .. }) => return true,
                Ok(OperatorOutcome::Absent) => return false,
                Ok(OperatorOutcome::MovedOn(_)) | Err(_) => {}
            }
            self.sleep(Duration::from_millis(pause)).await;
        }
        false
    }
}

fn not_sent(why: &'static str) -> BoxFuture<'static, Outcome> {
    Box::pin(std::future::ready(Outcome::NotSent(why)))
}

/// The step of the key for the systems behind the server.
const DOWNSTREAM_STEP: &str = "mcp";

/// The records of a call: its own, and its guard's.
fn identities(request: &Request, guard: Option<&Request>) -> Vec<Identity> {
    let requests = [Some(request), guard].into_iter().flatten();
    requests.map(|request| *request.identity()).collect()
}

/// The key of the guard record of a derived key; `None` for other keys.
pub(crate) fn guard_key(key: &Key) -> Option<Key> {
    let digest = key.as_str().strip_prefix(DERIVED_PREFIX)?;
    let is_digest = digest.len() == 2 * (Fingerprint::BYTES - 1)
        && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    Key::parse(&format!("open-{digest}"))
        .ok()
        .filter(|_| is_digest)
}

/// Notes in the record what variants of the call are compared with.
async fn note(lease: &Lease, sketch: Option<Bytes>) -> Result<(), Outcome> {
    let Some(sketch) = sketch else { return Ok(()) };
    let why = "the store of idempotency keys gave no answer";
    let noted = lease.checkpoint(sketch).await;
    noted.map_err(|_| Outcome::NotSent(why))
}

/// Whether the engine held a call, because it is a variant of an earlier one.
fn is_held(response: &Response<Outcome>) -> bool {
    match response {
        Response::Problem(problem) => matches!(problem, Problem::Held),
        Response::Ran(Ran {
            value: Outcome::Problem(problem),
            ..
        }) => matches!(**problem, Problem::Held),
        _ => false,
    }
}

/// The verdict for the guard record. A settled outcome releases it. An unknown outcome stays in
/// doubt for the full retention, because a derived key lives only for minutes and the same call
/// would act again after that.
fn report_to_guard(outcome: Outcome, terms: &AnswerTerms) -> Report<Outcome> {
    let verdict = match outcome.is_settled(terms) {
        true => Verdict::NoEffect,
        false => Verdict::Unknown,
    };
    Report::new(outcome, verdict)
}

/// Turns the response of the guard's run into an outcome of the call.
fn outcome_of_guard(response: Response<Outcome>) -> Outcome {
    match response {
        Response::Ran(Ran { value, .. }) | Response::Unprotected(value) => value,
        // An operator resolved the guard, or a late answer did.
        Response::Replayed(replayed) => Outcome::Recorded(Box::new(replayed)),
        Response::Problem(problem) => Outcome::Problem(Arc::new(problem)),
    }
}
