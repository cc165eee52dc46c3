//! A variant of an earlier call: nothing runs, and the caller learns which call it resembles.

use std::sync::Arc;

use semel::core::engine::{Lease, Problem, Response};
use semel::core::{Identity, Record, State, StoreError, Timestamp};
use semel::{CrashPolicy, Policy};

use super::{Gateway, Key, Origin, guard_key};
use crate::answer::{self, Reply};
use crate::call::Call;
use crate::identity::Sketch;
use crate::outcome::{AnswerTerms, Outcome, sketch_in_head};
use crate::settings::Treatment;

/// A call that was held.
pub(super) struct Variant<'a> {
    pub(super) call: &'a Arc<Call>,
    pub(super) key: Key,
    pub(super) origin: Origin,
    pub(super) treatment: Treatment,
    pub(super) sketch: Sketch,
    pub(super) terms: AnswerTerms,
    /// Whether the tool itself has an argument that is named like the flag.
    pub(super) declares_new_call: bool,
}

/// The call that a variant resembles.
struct Earlier {
    key: Key,
    record: Record,
    sketch: Option<Sketch>,
    now: Timestamp,
}

impl Gateway {
    /// Answers a variant of an earlier call.
    pub(super) async fn hold(&self, variant: Variant<'_>) -> Reply {
        let Variant { call, key, .. } = &variant;
        let earlier = match self.find_earlier(&variant).await {
            Ok(Some(earlier)) => earlier,
            Ok(None) => return answer::write_problem(call, key, &Problem::Held),
            Err(source) => {
                let away = Problem::from_store_error(Some(source), std::time::Duration::ZERO);
                return answer::write_problem(call, key, &away);
            }
        };
        // Another caller learns nothing of the call.
        match &earlier.sketch {
            Some(theirs) if !theirs.has_credentials_of(&variant.sketch) => {
                return answer::write_problem(call, key, &Problem::Mismatch);
            }
            // The answer has expired, or an operator gave it. Who made the call is forgotten.
            None if !variant.origin.has_one_caller => return answer::held_unknown(call),
            _ => {}
        }
        if call.new_call == Some(false) {
            return self.replay_earlier(&variant, &earlier).await;
        }
        let differs = earlier.sketch.as_ref();
        let differs = differs.map(|earlier| earlier.differences(&variant.sketch));
        let told = answer::HeldAgainst {
            key: &earlier.key,
            state: earlier.record.state_at(earlier.now),
            called_at: earlier.record.created_at,
            ago: earlier.now.since(earlier.record.created_at),
            differs: differs.unwrap_or_default(),
            has_flag: !variant.declares_new_call,
        };
        answer::held(call, &told)
    }

    /// Finds the record that the variant met, and the sketch of its call.
    async fn find_earlier(&self, variant: &Variant<'_>) -> Result<Option<Earlier>, StoreError> {
        let engine = self.semel.engine();
        let now = self.semel.store().now().await?;
        let keys = [Some(variant.key.clone()), guard_key(&variant.key)];
        let mut earlier: Option<Earlier> = None;
        for key in keys.into_iter().flatten() {
            let identity = Identity::new(engine.secret(), &variant.origin.namespace, &key);
            // A record whose answer has expired or can't be read is still an earlier call.
            let found = match engine.read(&identity).await {
                Ok(found) => found,
                Err(_) => engine.store().read(&identity).await?,
            };
            let Some(record) = found else { continue };
            let is_other = record.fingerprint != variant.origin.fingerprint;
            if record.is_expired(now) || record.state == State::Released || !is_other {
                continue;
            }
            let sketch = sketch_of(&record);
            match &mut earlier {
                Some(earlier) => earlier.sketch = earlier.sketch.take().or(sketch),
                None => {
                    earlier = Some(Earlier {
                        key,
                        record,
                        sketch,
                        now,
                    });
                }
            }
        }
        Ok(earlier)
    }

    /// The caller says that it is the earlier call again: it gets that call's result.
    async fn replay_earlier(&self, variant: &Variant<'_>, earlier: &Earlier) -> Reply {
        let engine = self.semel.engine();
        let origin = Origin {
            fingerprint: earlier.record.fingerprint,
            ..variant.origin.clone()
        };
        let policy: Policy = match earlier.key == variant.key {
            true => self.settings.windowed_policy(variant.treatment.crash),
            false => self.settings.policy_with(CrashPolicy::Hold),
        };
        let request = origin.request(engine, &earlier.key, policy);
        let terms = variant.terms.clone();
        let effect = move |_: Lease| async move { Outcome::NotSent(answer::GONE).report(&terms) };
        let response: Response<Outcome> = engine.execute(request, effect).await;
        answer::write(&self.settings, variant.call, &variant.key, response)
    }
}

fn sketch_of(record: &Record) -> Option<Sketch> {
    let in_answer = || sketch_in_head(&record.answer.as_ref()?.head);
    let text = match record.checkpoint.is_empty() {
        true => in_answer()?,
        false => &record.checkpoint,
    };
    Sketch::parse(text)
}
