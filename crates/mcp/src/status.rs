//! The built-in tool `semel_status`, which tells an agent what became of a call.

use bytes::Bytes;
use semel::core::{Identity, Key, Namespace, Record, State};
use semel::http::rfc3339;
use serde_json::{Value, json};

use crate::answer;
use crate::call::{Call, Caller};
use crate::gateway::{Gateway, guard_key};

impl Gateway {
    /// Answers a call of the built-in tool.
    pub(crate) async fn status(&self, call: &Call, caller: &Caller) -> Bytes {
        let said = match self.look_up(call, caller).await {
            Ok(status) => status,
            Err(text) => json!({"isError": true, "content": [{"type": "text", "text": text}]}),
        };
        answer::own_result(call, said)
    }

    async fn look_up(&self, call: &Call, caller: &Caller) -> Result<Value, String> {
        let missing = |name: &str| format!("The argument `{name}` is missing.");
        let tool = call.argument("tool").ok_or_else(|| missing("tool"))?;
        let key = call.argument("idempotencyKey");
        let key = key.ok_or_else(|| missing("idempotencyKey"))?;
        let key: Key = self
            .semel
            .key_rules()
            .check(&key)
            .map_err(|error| format!("{error}."))?;
        let namespace = self
            .namespace(&tool, caller)
            .map_err(|error| format!("{error}."))?;
        let now = self
            .semel
            .store()
            .now()
            .await
            .map_err(|_| store_unavailable())?;
        let record = self.find_record(&namespace, &key).await?;
        let (state, text) = match &record {
            None => (
                "unknown",
                "No call of this tool with this key is on record: it was never made here, or its \
                 record has expired.",
            ),
            Some(record) if record.is_in_doubt(now) => (
                "in_doubt",
                "It is not known whether the call took effect. Do not call it again; check whether \
                 the effect is there, or tell the user. A person can settle it.",
            ),
            Some(record) => (record.state.as_str(), describe(record.state)),
        };
        let mut status = json!({"tool": tool, "state": state});
        if let Some(Record {
            created_at,
            attempt,
            ..
        }) = &record
        {
            status["firstCalled"] = json!(rfc3339(*created_at));
            status["attempt"] = json!(attempt);
        }
        Ok(json!({
            "content": [{"type": "text", "text": format!("{state}: {text}")}],
            "structuredContent": status,
        }))
    }

    /// Finds the record that describes a key's call.
    async fn find_record(
        &self,
        namespace: &Namespace,
        key: &Key,
    ) -> Result<Option<Record>, String> {
        // The guard of a derived key may hold a doubt or a late answer for longer than the key's
        // own record (see `report_to_guard`). A released guard says nothing about the call.
        if let Some(guard) = guard_key(key) {
            let found = self.read(namespace, &guard).await?;
            if let Some(found) = found.filter(|found| found.state != State::Released) {
                return Ok(Some(found));
            }
        }
        self.read(namespace, key).await
    }

    async fn read(&self, namespace: &Namespace, key: &Key) -> Result<Option<Record>, String> {
        let engine = self.semel.engine();
        let identity = Identity::new(engine.secret(), namespace, key);
        let found = engine.store().read(&identity).await;
        found.map_err(|_| store_unavailable())
    }
}

fn store_unavailable() -> String {
    "The store of idempotency keys gave no answer. Try again.".to_owned()
}

const fn describe(state: State) -> &'static str {
    match state {
        State::Running => {
            "The call is still running. Make the same call with the same key to wait for its \
             result."
        }
        State::Completed => {
            "The call took effect. Make the same call with the same key to see its result; it does \
             not act again."
        }
        State::Failed => {
            "The call failed: the tool said so, or a person recorded it. Make the same call with \
             the same key to see the details; a new attempt needs a new key."
        }
        State::InDoubt => "It is not known whether the call took effect.",
        State::Released => {
            "The call did not take effect, or may be made again: call with the same key."
        }
    }
}
