//! Webhooks: what is not signed runs nothing, whatever it says; what is signed runs once.
#![no_main]

#[path = "support/mod.rs"]
mod support;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderValue;
use libfuzzer_sys::fuzz_target;
use semel_core::KeyRules;
use semel_http::StandardWebhooks;
use support::{NOW, Rig, parse};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fuzz_target!(|data: &[u8]| {
    let Some(mut request) = parse(data) else { return };
    let route = || StandardWebhooks::new(&[SECRET]).expect("a secret").route();
    let mut rig = Rig::new(route());
    let covered = request.method() == http::Method::POST;
    let answer = rig.send(&request);
    assert!(answer.status().as_u16() < 500, "{}", answer.status());
    if !covered {
        return;
    }
    assert_eq!(rig.runs(), 0, "nobody but the sender can sign");
    // The same, signed.
    let Some(id) = request.headers().get("webhook-id").cloned() else { return };
    let Ok(id) = id.to_str().map(str::to_owned) else { return };
    let secret = BASE64_STANDARD.decode(&SECRET[6..]).expect("base64");
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&secret).expect("a key");
    for part in [id.as_bytes(), b".", NOW.to_string().as_bytes(), b".", request.body()] {
        mac.update(part);
    }
    let signature = format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()));
    let value = |text: &str| HeaderValue::from_str(text).expect("a value");
    let headers = request.headers_mut();
    headers.insert("webhook-id", value(&id));
    headers.insert("webhook-timestamp", value(&NOW.to_string()));
    headers.insert("webhook-signature", value(&signature));
    let mut rig = Rig::new(route());
    let answers = [rig.send(&request), rig.send(&request)];
    assert!(rig.runs() <= 1, "one event ran twice");
    if rig.runs() == 0 {
        assert!(answers.iter().all(|answer| answer.status().is_client_error()));
    } else {
        assert!(KeyRules::default().check(&id).is_ok() || !id.is_empty());
        assert!(answers.iter().all(|answer| answer.status().is_success()));
    }
});
