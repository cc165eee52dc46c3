//! [`Message`]: a JSON-RPC message, parsed only as far as needed and forwarded byte for byte.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::members::Members;

/// The largest message accepted in either direction.
pub(crate) const MAX_BYTES: usize = 16 * 1024 * 1024;

/// A JSON-RPC message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The message as received, without the end of the line.
    pub(crate) text: Bytes,
    pub(crate) kind: Kind,
}

/// The kind of a message, by its outermost members.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Request {
        id: Id,
        method: String,
    },
    Notification {
        method: String,
    },
    /// A result or an error.
    Response {
        id: Id,
    },
    /// A JSON-RPC batch, which old protocol versions allow.
    Batch,
    /// Anything else. The other side may understand it.
    Other,
}

/// An ID as it was written: `1` and `"1"` differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id(pub(crate) Box<str>);

impl Id {
    pub(crate) fn raw(&self) -> Box<RawValue> {
        let parsed = RawValue::from_string(self.0.clone().into());
        parsed.unwrap_or_else(|_| RawValue::NULL.to_owned())
    }
}

impl Message {
    pub(crate) fn new(text: Bytes) -> Self {
        let kind = kind(&text);
        Self { text, kind }
    }

    /// The members of `params`; empty if there are none.
    pub(crate) fn params(&self) -> Members {
        let message = Members::parse(&self.text);
        let params = message.and_then(|message| message.object("params"));
        params.unwrap_or_default()
    }

    pub(crate) fn method(&self) -> Option<&str> {
        match &self.kind {
            Kind::Request { method, .. } | Kind::Notification { method } => Some(method),
            _ => None,
        }
    }
}

fn kind(text: &[u8]) -> Kind {
    if text.trim_ascii_start().first() == Some(&b'[') {
        return Kind::Batch;
    }
    let Some(members) = Members::parse(text) else {
        return Kind::Other;
    };
    let id = members.get("id").map(|raw| Id(raw.get().into()));
    match (members.read::<String>("method"), id) {
        (Some(method), Some(id)) => Kind::Request { id, method },
        (Some(method), None) => Kind::Notification { method },
        (None, Some(id)) if members.has("result") || members.has("error") => Kind::Response { id },
        _ => Kind::Other,
    }
}

/// Writes a response that carries `result`.
pub(crate) fn result(id: &Id, result: &RawValue) -> Bytes {
    let mut message = Members::default();
    message.set("jsonrpc", &"2.0");
    message.set("id", &id.raw());
    message.set("result", &result);
    message.to_bytes().into()
}

/// Writes an error response of the gateway.
pub(crate) fn error(id: &Id, code: i32, text: &str) -> Bytes {
    let mut error = Members::default();
    error.set("code", &code);
    error.set("message", &text);
    let mut message = Members::default();
    message.set("jsonrpc", &"2.0");
    message.set("id", &id.raw());
    message.set("error", &error);
    message.to_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Kind {
        Message::new(Bytes::copy_from_slice(text.as_bytes())).kind
    }

    #[test]
    fn message_kind_follows_from_its_outermost_members() {
        assert!(matches!(
            of(r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{}}"#),
            Kind::Request { id, method } if &*id.0 == r#""a""# && method == "tools/call"
        ));
        assert!(matches!(
            of(r#"{"method":"notifications/x"}"#),
            Kind::Notification { .. }
        ));
        assert!(matches!(of(r#"{"id":1,"result":{}}"#), Kind::Response { id } if &*id.0 == "1"));
        assert!(matches!(
            of(r#"{"id":1,"error":{"code":-1,"message":"no"}}"#),
            Kind::Response { .. }
        ));
        assert!(matches!(of(r#" [{"id":1,"method":"ping"}]"#), Kind::Batch));
        assert!(matches!(of("no JSON"), Kind::Other));
    }
}
