//! [`Gateway`]: the door. A call becomes a request of the engine's, and the engine's response an answer to the call.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel::core::engine::{Lease, Operated, Ran, Report, Request, Response, Verdict};
use semel::core::event::{Step, Would};
use semel::core::{
    BoxFuture, Clock, Fence, Fingerprint, Identity, Key, Namespace, NamespaceError, Resolution,
    Tick,
};
use semel::{CrashPolicy, Mode, Policy, Semel};

use crate::answer::{self, Reply};
use crate::call::{Call, CallKey, Caller, DERIVED};
use crate::http::Patience;
use crate::outcome::{self, Outcome};
use crate::settings::{KeyRule, Settings, Treatment};
use crate::tools::Known;

/// The gateway: a store's engine, and how tools are treated. Shared by all connections.
pub struct Gateway {
    pub(crate) semel: Semel,
    pub(crate) settings: Settings,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gateway({}, {:?})", self.settings.name, self.semel)
    }
}

/// What is to be done about a call.
pub(crate) enum Plan {
    /// Send it on as it came.
    Pass,
    /// Send this on: the call without the argument for a key, which was empty.
    Keyless(Bytes),
    /// It is answered already.
    Answer(Reply),
    /// Run it under its key.
    Run(Box<Job>),
}

/// A call with its key.
pub(crate) struct Job {
    pub(crate) call: Call,
    pub(crate) key: Key,
    is_derived: bool,
    treatment: Treatment,
    request: Request,
    /// What a derived key of a tool that must not act twice is in doubt under (see `guarded`).
    guard: Option<Request>,
}

/// A call about to be sent on.
pub(crate) struct Sending {
    pub(crate) message: Bytes,
    /// For the server's HTTP side.
    pub(crate) downstream: Option<String>,
    pub(crate) open: Open,
}

/// What a late answer ends.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    leases: Vec<(Identity, Fence)>,
    treatment: Treatment,
}

impl Gateway {
    /// A gateway on `semel`'s store.
    ///
    /// # Errors
    /// A sentence about what is wrong with the settings.
    pub fn new(semel: Semel, settings: Settings) -> Result<Arc<Self>, String> {
        settings.check()?;
        Ok(Arc::new(Self { semel, settings }))
    }

    /// The engine's clock.
    pub(crate) fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        self.semel.engine().env().clock.sleep(span)
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.semel.engine().env().clock)
    }

    pub(crate) fn now(&self) -> Tick {
        self.semel.engine().env().clock.now()
    }

    /// Ends when a call has had its time, if there is an end to it.
    pub(crate) fn call_limit(&self) -> BoxFuture<'static, ()> {
        match self.settings.limit() {
            Some(limit) => self.sleep(limit),
            None => Box::pin(std::future::pending()),
        }
    }

    /// As long as a call may take: its stream, once broken off, is taken up again until then.
    pub(crate) fn patience(&self) -> Patience {
        Patience::new(self.clock(), self.settings.limit())
    }

    /// Whether a call may need protection: it brings a key, or the user wants its tool protected.
    pub(crate) fn concerns(&self, call: &Call) -> bool {
        let rule = self
            .settings
            .treatment(&call.tool, crate::tools::Hints::default())
            .key;
        rule != KeyRule::Optional || call.brings_key()
    }

    pub(crate) fn plan(&self, mut call: Call, known: Option<Known>, caller: &Caller) -> Plan {
        let known = known.unwrap_or_default();
        let treatment = self.settings.treatment(&call.tool, known.hints);
        if treatment.bypass {
            return Plan::Pass;
        }
        let secret = self.semel.engine().secret();
        let key = call
            .take_key(known, self.semel.key_rules())
            .and_then(|given| call.key(given, treatment.key, caller, secret));
        let (key, is_derived) = match key {
            Ok(CallKey::Given(key)) => (key, false),
            Ok(CallKey::Derived(key)) => (key, true),
            Ok(CallKey::None) => return Plan::Keyless(call.to_message(None)),
            Err(error) => return self.refused(&call, answer::NO_KEY, &error),
        };
        match self.job(call, key, is_derived, treatment, caller) {
            Ok(job) => Plan::Run(Box::new(job)),
            Err((call, error)) => self.refused(&call, answer::REFUSED, &error),
        }
    }

    /// A call that can't run under a key: refused, or let through where nothing is enforced (P39).
    fn refused(&self, call: &Call, code: &'static str, why: &dyn std::fmt::Display) -> Plan {
        let would = Would::Refuse(code);
        let (step, plan) = match self.settings.policy.mode {
            Mode::Enforce => {
                let reply = answer::refused(call, code, why);
                (Step::Refused { code }, Plan::Answer(reply))
            }
            Mode::Observe => (Step::Observed { would }, Plan::Pass),
            Mode::Off => return Plan::Pass,
        };
        // Whose call it was is not shown, so it need not be one that can be.
        if let Ok(namespace) = self.namespace(&call.tool, &Caller::default()) {
            self.semel.engine().report(&namespace, step);
        }
        plan
    }

    fn job(
        &self,
        call: Call,
        key: Key,
        is_derived: bool,
        treatment: Treatment,
        caller: &Caller,
    ) -> Result<Job, (Box<Call>, NamespaceError)> {
        let namespace = match self.namespace(&call.tool, caller) {
            Ok(namespace) => namespace,
            Err(error) => return Err((Box::new(call), error)),
        };
        let fingerprint = call.fingerprint(caller, self.semel.engine().secret());
        let request = |key: &Key, policy: Policy| {
            Request::new(
                self.semel.engine(),
                namespace.clone(),
                key,
                fingerprint,
                Arc::new(policy),
            )
        };
        let policy = match is_derived {
            true => self.settings.windowed(treatment.crash),
            false => self.settings.kept(treatment.crash),
        };
        // A key that was derived may come back as the caller's own: that is how a model asks for the result of a call.
        let guard = guard_key(&key)
            .filter(|_| treatment.crash == CrashPolicy::Hold)
            .map(|key| request(&key, self.settings.kept(CrashPolicy::Hold)));
        Ok(Job {
            request: request(&key, policy),
            guard,
            call,
            key,
            is_derived,
            treatment,
        })
    }

    pub(crate) fn namespace(
        &self,
        tool: &str,
        caller: &Caller,
    ) -> Result<Namespace, NamespaceError> {
        Namespace::of_principal(
            self.semel.environment(),
            &self.settings.tenant,
            &self.settings.scope(&caller.path, tool),
            &caller.principal,
        )
    }

    /// Runs a call once; `send` sends it on and waits for what becomes of it.
    pub(crate) async fn run<F>(self: &Arc<Self>, job: Job, send: F) -> Reply
    where
        F: FnOnce(Sending) -> BoxFuture<'static, Outcome> + Send + 'static,
    {
        let Job {
            call,
            key,
            is_derived,
            treatment,
            request,
            guard,
        } = job;
        let call = Arc::new(call);
        // A derived key comes back for the next call of the same kind, which is another to the systems behind.
        let pass_key = self.settings.pass_key && !is_derived;
        let identities: Vec<Identity> = [Some(&request), guard.as_ref()]
            .into_iter()
            .flatten()
            .map(|request| *request.identity())
            .collect();
        let sending = {
            let call = Arc::clone(&call);
            move |leases: &[&Lease]| {
                let downstream = leases.first().filter(|_| pass_key);
                let downstream = downstream.map(|lease| lease.derive_key("mcp"));
                let fences = leases.iter().filter_map(|lease| lease.fence());
                Sending {
                    message: call.to_message(downstream.as_deref()),
                    downstream,
                    open: Open {
                        leases: identities.into_iter().zip(fences).collect(),
                        treatment,
                    },
                }
            }
        };
        let engine = self.semel.engine();
        let errors = treatment.errors;
        let response = match guard {
            None => {
                let effect = move |lease: Lease| async move {
                    send(sending(&[&lease])).await.report(errors)
                };
                engine.execute(request, effect).await
            }
            Some(guard) => {
                let inner = engine.clone();
                let effect = move |lease: Lease| async move {
                    let effect = move |guarding: Lease| async move {
                        let outcome = send(sending(&[&lease, &guarding])).await;
                        guarded(outcome, treatment)
                    };
                    unwrapped(inner.execute(guard, effect).await).report(errors)
                };
                engine.execute(request, effect).await
            }
        };
        answer::write(&self.settings, &call, &key, response)
    }

    /// Ends a doubt by an answer that came after we had stopped waiting for it.
    pub(crate) async fn late(&self, open: &Open, message: &[u8]) {
        let mut resolution = match outcome::late(message, open.treatment.errors) {
            Some(Verdict::Complete(answer)) => Resolution::Complete(Arc::new(answer)),
            Some(Verdict::Fail(answer)) => Resolution::Fail(Arc::new(answer)),
            Some(_) => Resolution::Release,
            None => return,
        };
        for (identity, fence) in &open.leases {
            if self.ends(identity, *fence, &resolution).await {
                // The guard, if there is one, comes second, and is free once the call's own record tells what became of
                // it. Where that one's window is over, nothing else would: then the guard keeps the answer.
                resolution = Resolution::Release;
            }
        }
    }

    /// Ends one doubt. → whether it did.
    async fn ends(&self, identity: &Identity, fence: Fence, resolution: &Resolution) -> bool {
        // The doubt may still be on its way to the store.
        for pause in [10, 100, 1_000, 5_000] {
            let engine = self.semel.engine();
            match engine.resolve(identity, fence, resolution).await {
                Ok(Operated::Done { .. }) => return true,
                Ok(Operated::Absent) => return false,
                Ok(Operated::MovedOn(_)) | Err(_) => {}
            }
            self.sleep(Duration::from_millis(pause)).await;
        }
        false
    }
}

/// The key that a doubt is kept under when the key itself is good for a window only; none for keys that only begin like
/// a derived one.
pub(crate) fn guard_key(key: &Key) -> Option<Key> {
    let digest = key.as_str().strip_prefix(DERIVED)?;
    let is_digest = digest.len() == 2 * (Fingerprint::BYTES - 1)
        && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    Key::parse(&format!("open-{digest}"))
        .ok()
        .filter(|_| is_digest)
}

/// What the guard's record says of an outcome: whatever is known frees it, and what is not known stays for as long as
/// any record is kept. A derived key is good for two minutes or so, and a doubt must outlive that: after it, the same
/// call would act again although nobody knows whether it has acted.
fn guarded(outcome: Outcome, treatment: Treatment) -> Report<Outcome> {
    let verdict = match outcome.is_known(treatment.errors) {
        true => Verdict::NoEffect,
        false => Verdict::Unknown,
    };
    Report {
        value: outcome,
        verdict,
    }
}

/// What a guard's run means for the call around it.
fn unwrapped(response: Response<Outcome>) -> Outcome {
    match response {
        Response::Ran(Ran { value, .. }) | Response::Unprotected(value) => value,
        // An operator said what happened, or an answer that came too late for the call's own record.
        Response::Replayed(replayed) => Outcome::Kept(Box::new(replayed)),
        Response::Problem(problem) => Outcome::Problem(Arc::new(problem)),
    }
}
