//! The built-in tool `semel_status`: an agent asks what became of a call.

use bytes::Bytes;
use semel::core::{Identity, Key, Namespace, Record, State};
use semel::http::rfc3339;
use serde_json::{Value, json};

use crate::answer;
use crate::call::{Call, Caller};
use crate::gateway::{Gateway, guard_key};

/// Its name.
pub(crate) const NAME: &str = "semel_status";

/// As it is listed.
pub(crate) fn tool() -> Value {
    json!({
        "name": NAME,
        "description": "Tells what became of an earlier tool call that was made with an idempotencyKey: whether it \
            took effect, is still running, or is in doubt (nobody knows). Changes nothing.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "tool": {"type": "string", "description": "The name of the tool that was called."},
                "idempotencyKey": {"type": "string", "description": "The key that it was called with."},
            },
            "required": ["tool", "idempotencyKey"],
        },
        "annotations": {"title": "Status of a call", "readOnlyHint": true, "openWorldHint": false},
    })
}

impl Gateway {
    /// Answers a call of the built-in tool.
    pub(crate) async fn status(&self, call: &Call, caller: &Caller) -> Bytes {
        let said = match self.looked_up(call, caller).await {
            Ok(status) => status,
            Err(text) => json!({"isError": true, "content": [{"type": "text", "text": text}]}),
        };
        answer::of_ours(call, said)
    }

    async fn looked_up(&self, call: &Call, caller: &Caller) -> Result<Value, String> {
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
        let now = self.semel.store().now().await.map_err(|_| down())?;
        let record = self.record_of(&namespace, &key).await?;
        let (state, text) = match &record {
            None => (
                "unknown",
                "No call of this tool with this key is on record: it was never made here, or its record has expired.",
            ),
            Some(record) if record.is_in_doubt(now) => (
                "in_doubt",
                "It is not known whether the call took effect. Do not call it again; look whether the effect is \
                 there, or tell the user. A person can settle it.",
            ),
            Some(record) => (record.state.as_str(), words(record.state)),
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

    /// The record that says most of a key's call.
    async fn record_of(&self, namespace: &Namespace, key: &Key) -> Result<Option<Record>, String> {
        // A doubt about a call with a derived key outlives that key, and so does an answer that came too late for it: see
        // `guarded`. A guard that is free says nothing of its call.
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
        let identity = Identity::of(engine.secret(), namespace, key);
        let found = engine.store().read(&identity).await;
        found.map_err(|_| down())
    }
}

fn down() -> String {
    "The store of idempotency keys gave no answer. Ask again.".to_owned()
}

const fn words(state: State) -> &'static str {
    match state {
        State::Running => {
            "The call is still running. Make the same call with the same key to wait for its result."
        }
        State::Completed => {
            "The call took effect. Make the same call with the same key to see its result; it does not act again."
        }
        State::Failed => {
            "The call failed: the tool said so, or a person recorded it. Make the same call with the same key to see \
             what was said; a new attempt needs a new key."
        }
        State::InDoubt => "It is not known whether the call took effect.",
        State::Released => {
            "The call did not take effect, or may be made again: call with the same key."
        }
    }
}
