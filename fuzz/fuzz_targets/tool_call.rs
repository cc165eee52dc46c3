//! Calls of tools: what the server gets is what was read, without the key; a key that can't be used
//! is not repeated.
#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_mcp::fuzzing::parse_call;
use serde_json::Value;

const KEYS: [&str; 2] = ["idempotencyKey", "idempotency_key"];

fuzz_target!(|data: &[u8]| {
    let Some(seen) = parse_call(data) else { return };
    let Ok(mut said) = serde_json::from_slice::<Value>(data) else {
        // Half a character in something that is passed on unread: the same call all the same.
        let again = parse_call(&seen.sent).expect("a call");
        assert_eq!((&again.tool, &again.fingerprint, &again.sent), (&seen.tool, &seen.fingerprint, &seen.sent));
        return;
    };
    if let Err(told) = &seen.key {
        // Refused: nothing is sent on.
        assert!(!told.contains("hunter2"), "{told}");
        return;
    }
    let mut sent: Value = serde_json::from_slice(&seen.sent).expect("so is what is sent on");
    assert_eq!(sent["params"]["name"], seen.tool.as_str());
    if let Some(arguments) = sent.pointer("/params/arguments").and_then(Value::as_object) {
        assert!(KEYS.iter().all(|name| !arguments.contains_key(*name)), "the key is passed on");
    }
    // Nothing else is changed.
    if let Some(Value::Object(arguments)) = said.pointer_mut("/params/arguments") {
        arguments.retain(|name, _| !KEYS.contains(&name.as_str()));
    }
    assert_eq!(sent, said);
    // What is sent on is the same call, without a key in its arguments.
    let again = parse_call(&seen.sent).expect("a call");
    assert_eq!((&again.tool, &again.derived), (&seen.tool, &seen.derived));
    assert_eq!((&again.fingerprint, &again.sent), (&seen.fingerprint, &seen.sent));
    // Asked by another message, with its members in another order, it is the same call too.
    let has_one_form = semel_core::canonicalize(&seen.sent).is_ok();
    sent["id"] = "another".into();
    let other = parse_call(sent.to_string().as_bytes()).expect("a call");
    if has_one_form {
        assert_eq!((other.derived, other.fingerprint), (seen.derived, seen.fingerprint));
    }
});
