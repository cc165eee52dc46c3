//! Problems: whatever a caller sends, what it is told is one JSON object that repeats none of it.
#![no_main]

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http::{HeaderValue, Response};
use http_body::Body as _;
use libfuzzer_sys::fuzz_target;
use semel_core::env::SystemEntropy;
use semel_core::{KeyRules, canonicalize};
use semel_http::{Body, PROFILES, Refusal, read_key};
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let line = HeaderValue::from_bytes(data).ok();
    let key = line.and_then(|line| read_key(&line, &KeyRules::default()).err());
    let payload = canonicalize(data).err().map(Refusal::from);
    for refusal in key.into_iter().chain(payload) {
        for terms in &PROFILES {
            let response = refusal.response(terms.profile, &SystemEntropy);
            check(data, &refusal, response);
        }
    }
});

fn check(sent: &[u8], refusal: &Refusal, response: Response<Body>) {
    assert!(response.status().is_client_error());
    let told = text(response.into_body());
    let document: Value = serde_json::from_str(&told).expect("a problem is JSON");
    assert_eq!(document["code"], refusal.code().as_str());
    assert_eq!(document["retryable"], false);
    // A caller could send words of ours.
    let ours =
        "the key has a character that is not allowed, payload can't be fingerprinted as JSON";
    if let Ok(sent) = std::str::from_utf8(sent)
        && sent.len() >= 24
        && !ours.contains(sent)
    {
        assert!(!told.contains(sent), "{told}");
    }
}

fn text(mut body: Body) -> String {
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(&mut body).poll_frame(&mut context) {
        Poll::Ready(Some(Ok(frame))) => {
            let data = frame.into_data().expect("data");
            String::from_utf8(data.to_vec()).expect("text")
        }
        _ => panic!("a problem is in memory"),
    }
}
