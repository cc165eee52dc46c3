//! What a call says, as the gateway reads it: for `fuzz/`.

use bytes::Bytes;
use semel::core::{Fingerprint, Key};
use semel::{KeyRules, Secret};

use crate::call::{Call, CallKey, Caller};
use crate::message::Message;
use crate::settings::KeyRule;
use crate::tools::Known;

/// A call of a tool.
#[derive(Debug)]
pub struct Seen {
    /// Which.
    pub tool: String,
    /// The caller's key, or why it can't be used.
    pub key: Result<Option<Key>, String>,
    /// The key that would be made of the call.
    pub derived: Option<Key>,
    /// What is asked for.
    pub fingerprint: Fingerprint,
    /// What the server gets.
    pub sent: Bytes,
}

/// Reads a message; nothing where it is no call.
#[must_use]
pub fn call(text: &[u8]) -> Option<Seen> {
    let mut call = Call::read(&Message::new(Bytes::copy_from_slice(text)))?;
    let secret = Secret::none();
    let key = call.take_key(Known::default(), &KeyRules::default());
    let derived = call.key(None, KeyRule::Derive, &Caller::default(), &secret);
    let derived = match derived {
        Ok(CallKey::Derived(key)) => Some(key),
        _ => None,
    };
    Some(Seen {
        key: key.map_err(|error| error.to_string()),
        derived,
        fingerprint: call.fingerprint(&Caller::default(), &secret),
        sent: call.to_message(None),
        tool: call.tool,
    })
}
