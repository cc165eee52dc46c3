//! Canonical JSON: any bytes have a canonical form or none; the form is stable, and means the same.
//! The scanner of plain texts and the full parser agree on it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_core::canonical::CanonicalErrorKind;
use semel_core::canonicalize;
use serde_json::Value;

/// So deep, no text is plain: only the full parser takes it.
const LEVELS: usize = 17;

fuzz_target!(|data: &[u8]| {
    let Ok(canonical) = canonicalize(data) else {
        return;
    };
    assert_eq!(canonicalize(&canonical).as_deref(), Ok(&canonical[..]));
    let deep = [&[b'['; LEVELS][..], data, &[b']'; LEVELS]].concat();
    match canonicalize(&deep) {
        Ok(form) => assert_eq!(form[LEVELS..form.len() - LEVELS], canonical[..]),
        Err(error) => assert_eq!(error.kind, CanonicalErrorKind::Depth),
    }
    let before: Value = serde_json::from_slice(data).expect("what has a form is JSON");
    let after: Value = serde_json::from_slice(&canonical).expect("the form is JSON");
    assert!(same(&before, &after));
});

/// Numbers by their value: `1.0` and `1` are one number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let found = |(name, a)| b.get(name).is_some_and(|b| same(a, b));
            a.len() == b.len() && a.iter().all(found)
        }
        _ => a == b,
    }
}
