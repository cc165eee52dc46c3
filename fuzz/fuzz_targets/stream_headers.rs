//! Headers of messages: any texts name an operation or are refused; what they name, they name
//! again.
#![no_main]

use std::borrow::Cow;

use libfuzzer_sys::fuzz_target;
use semel_stream::consume::Headers;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.split('\n');
    let mut next = || lines.next().filter(|line| *line != "-").map(Cow::Borrowed);
    let mut headers = Headers::default();
    headers.session = next();
    headers.sequence = next();
    headers.epoch = next();
    headers.key = next();
    let Ok(operation) = headers.operation() else { return };
    assert_eq!(headers.clone().operation(), Ok(operation));
    let Some((_, mark)) = operation.place() else {
        assert!(operation.key().is_some(), "a message is told from others by something");
        return;
    };
    // A number is what it reads as, and another number is another operation.
    let number: u64 = headers.sequence.as_deref().unwrap_or("").parse().expect("digits");
    assert_eq!(mark.seqno.0, number);
    assert!(number >= 1);
    let mut other = headers.clone();
    other.sequence = Some(Cow::Owned((number ^ 3).max(1).to_string()));
    if let Ok(other) = other.operation() {
        assert_eq!(other == operation, (number ^ 3).max(1) == number);
    }
});
