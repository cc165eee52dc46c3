//! Doubts that resolve themselves: looks up whether a call took effect, and settles its records.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel::core::engine::{OperatorOutcome, Ran, Recover, Response};
use semel::core::event::{Event, LookupResult, Step};
use semel::core::{
    Answer, AnswerBody, BoxFuture, Fence, Fingerprint, Identity, Key, Resolution, State,
    StoreError, Timestamp,
};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use super::{Gateway, Origin};
use crate::call::Call;
use crate::members::Members;
use crate::message::Id;
use crate::outcome::{AnswerTerms, Outcome};
use crate::verify::{MAX_PAUSE, VerifyRule};

/// Calls another tool of the server. `None` if the server gives no answer.
pub(crate) type Lookup =
    Arc<dyn Fn(LookupCall) -> BoxFuture<'static, Result<Option<Bytes>, ServerGone>> + Send + Sync>;

/// The server has ended, and no later lookup of this session can succeed.
pub(crate) struct ServerGone;

/// The call of another tool, for a call in doubt.
pub(crate) struct LookupCall {
    pub(crate) rule: Arc<VerifyRule>,
    call: Arc<Call>,
    arguments: Value,
}

impl LookupCall {
    /// The request that makes it.
    pub(crate) fn message(&self, id: &Id) -> Bytes {
        self.call
            .lookup_request(id, &self.rule.tool, &self.arguments)
    }
}

/// Why a call that did not take effect is not sent a second time by itself.
pub(super) const DID_NOTHING: &str = "the server did not carry it out";

/// How many keys are looked up at once.
const MAX_LOOKUPS: usize = 64;

/// Lets callers of the same key look it up one after the other, and few at once.
pub(super) struct Turns(Vec<Mutex<()>>);

impl Default for Turns {
    fn default() -> Self {
        Self((0..MAX_LOOKUPS).map(|_| Mutex::default()).collect())
    }
}

impl Turns {
    async fn take(&self, identity: &Identity) -> MutexGuard<'_, ()> {
        let byte = usize::from(identity.as_bytes()[0]);
        self.0[byte % MAX_LOOKUPS].lock().await
    }
}

/// Finds out about the doubts of one call.
pub(super) struct Verifier {
    pub(super) gateway: Arc<Gateway>,
    pub(super) rule: Arc<VerifyRule>,
    pub(super) call: Arc<Call>,
    pub(super) key: Key,
    pub(super) origin: Origin,
    /// The call's own record, and its guard's.
    pub(super) identities: Vec<Identity>,
    /// The key that the call carries for the systems behind the server.
    pub(super) downstream: Option<String>,
    pub(super) terms: AnswerTerms,
    /// Whether the tool declares the form of its results.
    pub(super) declares_output: bool,
    pub(super) lookup: Lookup,
}

/// A record in doubt.
struct OpenRecord {
    identity: Identity,
    fence: Fence,
    written_at: Timestamp,
}

/// What the lookups found.
struct Finding {
    found: LookupResult,
    attempts: u16,
    /// The result that decides.
    result: Option<Value>,
}

impl Verifier {
    /// The hook by which the engine asks about a doubt.
    pub(super) fn hook(self: &Arc<Self>) -> Recover {
        let verifier = Arc::clone(self);
        Arc::new(move |_| {
            let verifier = Arc::clone(&verifier);
            Box::pin(async move {
                // The records are resolved by now, so the engine's own resolution changes nothing:
                // it is fenced. It makes the engine claim the key again.
                verifier.resolve().await.then_some(Resolution::Release)
            })
        })
    }

    /// Looks up what became of the call, and resolves its records. Returns whether the doubt has
    /// ended.
    pub(super) async fn resolve(&self) -> bool {
        let arguments = self.call.arguments_value().unwrap_or_default();
        let downstream = self.downstream.as_deref();
        let Some(arguments) = self.rule.lookup_arguments(&arguments, downstream) else {
            return false;
        };
        let _turn = self.gateway.turns.take(&self.identities[0]).await;
        let Ok((open, now)) = self.open_records().await else {
            return false;
        };
        let Some(last) = open.iter().max_by_key(|open| open.written_at) else {
            return true;
        };
        let finding = self.find_out(&arguments, now.since(last.written_at)).await;
        self.report(last.fence, &finding);
        let mut resolution = match finding {
            Finding {
                found: LookupResult::Done,
                result,
                ..
            } => Resolution::Complete(Arc::new(self.answer(&result.unwrap_or_default()))),
            Finding {
                found: LookupResult::NotDone,
                ..
            } => Resolution::Release,
            _ => return false,
        };
        let engine = self.gateway.semel.engine();
        for OpenRecord {
            identity, fence, ..
        } in &open
        {
            match engine.resolve(identity, *fence, &resolution).await {
                // The guard comes second. It is released once the call's own record has the answer.
                Ok(OperatorOutcome::Done { .. }) => resolution = Resolution::Release,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        true
    }

    async fn open_records(&self) -> Result<(Vec<OpenRecord>, Timestamp), StoreError> {
        let now = self.gateway.semel.store().now().await?;
        let mut open = Vec::new();
        for identity in &self.identities {
            let found = self.gateway.semel.engine().store().read(identity).await?;
            let doubt = found.filter(|record| !record.is_expired(now) && record.is_in_doubt(now));
            open.extend(doubt.map(|record| OpenRecord {
                identity: *identity,
                fence: record.fence,
                written_at: record.written_at,
            }));
        }
        Ok((open, now))
    }

    /// Looks until the result is clear, at most as often as the rule says. `age` is the time since
    /// the call's last sign of life.
    async fn find_out(&self, arguments: &Value, age: Duration) -> Finding {
        let (start, mut pause) = (self.gateway.now(), self.rule.pause);
        let mut attempts = 0;
        while attempts < self.rule.attempts {
            if attempts > 0 {
                self.gateway.sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
            attempts += 1;
            let Ok(result) = self.look(arguments).await else {
                break;
            };
            let found = result.as_ref().map(|result| self.rule.judge(result));
            let age = age + self.gateway.now().since(start);
            match found {
                // The server may still be working on the call.
                Some(LookupResult::NotDone) if age < self.rule.after => {}
                Some(found @ (LookupResult::Done | LookupResult::NotDone)) => {
                    return Finding {
                        found,
                        attempts,
                        result,
                    };
                }
                _ => {}
            }
        }
        Finding {
            found: LookupResult::Unknown,
            attempts,
            result: None,
        }
    }

    /// The result of one lookup. `None` if the server answers with no result.
    async fn look(&self, arguments: &Value) -> Result<Option<Value>, ServerGone> {
        let call = LookupCall {
            rule: Arc::clone(&self.rule),
            call: Arc::clone(&self.call),
            arguments: arguments.clone(),
        };
        let Some(answer) = (self.lookup)(call).await? else {
            return Ok(None);
        };
        let message = Members::parse(&answer);
        let result: Option<Value> = message.and_then(|message| message.read("result"));
        let is_complete = |result: &Value| {
            let kind = result["resultType"].as_str();
            kind.is_none_or(|kind| kind == "complete")
        };
        Ok(result.filter(is_complete))
    }

    fn report(&self, fence: Fence, finding: &Finding) {
        let engine = self.gateway.semel.engine();
        let evidence = finding.result.as_ref().map(|result| {
            let parts = Fingerprint::builder(engine.secret()).part(b"mcp-evidence");
            parts.part(result.to_string().as_bytes()).finish()
        });
        let step = Step::Verified {
            fence,
            found: finding.found,
            attempts: finding.attempts,
            evidence,
        };
        let origin = &self.origin;
        let event = Event::new(&origin.namespace, self.key.hint(), self.identities[0], step);
        let event = event.with_operation(&*origin.tool);
        let actor = (!origin.principal.is_empty()).then_some(&*origin.principal);
        engine.report_event(&event.with_actor(actor));
    }

    /// What the record keeps in the place of the lost result.
    fn answer(&self, result: &Value) -> Answer {
        let text = format!(
            "This call of `{}` took effect. Its own result was lost; `{}` shows the effect. Don't \
             call again.",
            self.call.tool, self.rule.tool
        );
        let mut content = vec![json!({"type": "text", "text": text})];
        if let Value::Array(shown) = &result["content"] {
            content.extend(shown.iter().cloned());
        }
        // Clients refuse a result without the data that the tool declares, unless it is an error.
        let body = json!({
            "content": content,
            "isError": self.declares_output,
            "_meta": {"semel/verifiedBy": self.rule.tool},
        });
        Answer {
            head: self.terms.head.clone(),
            body: AnswerBody::Kept(body.to_string().into()),
        }
    }
}

/// Whether a run has just ended in doubt, with a caller that still waits for the answer.
pub(super) fn ended_in_doubt(response: &Response<Outcome>) -> bool {
    let Response::Ran(Ran { value, state, .. }) = response else {
        return false;
    };
    let sent = matches!(
        value,
        Outcome::Answered(_) | Outcome::Http(_) | Outcome::Lost | Outcome::TimedOut
    );
    *state == State::InDoubt && sent
}
