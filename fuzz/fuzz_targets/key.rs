//! A key line: any bytes are a key or a refusal, and what is a key keeps the rules.
#![no_main]

use http::HeaderValue;
use libfuzzer_sys::fuzz_target;
use semel_core::KeyRules;
use semel_http::read_key;

fuzz_target!(|data: &[u8]| {
    let Ok(line) = HeaderValue::from_bytes(data) else {
        return;
    };
    let rules = KeyRules::default();
    let Ok(key) = read_key(&line, &rules) else {
        return;
    };
    let text = key.as_str();
    assert!(rules.check(text).is_ok());
    // Quoted or bare, it is the same key.
    for again in [text.to_owned(), format!("\"{text}\"")] {
        let again = HeaderValue::from_str(&again).expect("a key is a header's value");
        let again = read_key(&again, &rules).expect("a key stays a key");
        assert_eq!(again.as_str(), text);
    }
    // Never shown whole, unless there is nothing to hide.
    assert!(key.hint().as_str().len() <= text.len() / 2);
});
