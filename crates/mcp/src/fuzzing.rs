//! Parses a call as the gateway does, for the fuzz targets in `fuzz/`.

use bytes::Bytes;
use semel::core::{Fingerprint, Key};
use semel::{KeyRules, Secret};

use crate::call::{Call, CallKey, Caller};
use crate::conversation::ConversationSource;
use crate::message::Message;
use crate::settings::KeyRule;
use crate::tools::ToolFacts;

/// A parsed `tools/call`.
#[derive(Debug)]
pub struct ParsedCall {
    /// The name of the tool.
    pub tool: String,
    /// The caller's key, or why it is unusable.
    pub key: Result<Option<Key>, String>,
    /// The key that would be derived from the call.
    pub derived: Option<Key>,
    /// The fingerprint of tool and arguments.
    pub fingerprint: Fingerprint,
    /// The message that the server receives.
    pub sent: Bytes,
}

/// Parses a message; `None` if it is no call of a tool.
#[must_use]
pub fn parse_call(text: &[u8]) -> Option<ParsedCall> {
    let mut call = Call::read(&Message::new(Bytes::copy_from_slice(text)))?;
    let secret = Secret::none();
    let key = call.take_key(ToolFacts::default(), &KeyRules::default());
    let (caller, source) = (Caller::default(), ConversationSource::Session);
    let derived = call.choose_key(None, KeyRule::Derive, None, &caller, &source, &secret);
    let derived = match derived {
        Ok(CallKey::Derived(key)) => Some(key),
        _ => None,
    };
    Some(ParsedCall {
        key: key.map_err(|error| error.to_string()),
        derived,
        fingerprint: call.fingerprint(&Caller::default(), &secret),
        sent: call.to_message(None),
        tool: call.tool,
    })
}
