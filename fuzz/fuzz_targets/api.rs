//! The protocol API, request by request: never an error of ours; a key is won once, and settled as
//! one thing.
#![no_main]

#[path = "support/mod.rs"]
mod support;

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use semel_server::api::{ApiConfig, ApiState, router};
use semel_server::web::Access;
use serde_json::Value;
use support::router::{next, semel, send};

fuzz_target!(|data: &[u8]| {
    let router = router(ApiState::new(semel(), Access::Open, ApiConfig::default()));
    let mut fences: HashMap<String, u64> = HashMap::new();
    let mut kept: HashMap<String, Value> = HashMap::new();
    let (mut rest, mut last) = (data, String::new());
    while let Some(request) = next(&mut rest, &last) {
        let Some(answer) = send(&router, &request) else { return };
        if request.uri().path() != "/v1/claims" || !answer.status().is_success() {
            continue;
        }
        let said: Value = serde_json::from_slice(answer.body()).expect("an answer is JSON");
        let id = said["id"].as_str().expect("a claim has an id").to_owned();
        last.clone_from(&id);
        if said["status"] == "claimed" {
            // Time stands still: whoever wins after somebody else has a higher fence, or is the
            // same.
            let fence = said["fence"].as_u64().expect("a fence");
            let before = fences.insert(id.clone(), fence).unwrap_or(0);
            assert!(fence >= before, "{fence} after {before}");
            assert!(!kept.contains_key(&id), "it was done, and is won again");
            // Sent again, a claim without a token of the caller's is not won again.
            let asked: Value = serde_json::from_slice(request.body()).expect("a claim is JSON");
            let again = send(&router, &request).filter(|again| again.status().is_success());
            let again = again.map(|again| serde_json::from_slice::<Value>(again.body()).expect("JSON"));
            assert!(asked["token"].is_string() || again.is_none(), "one key, won twice");
        } else if said["status"] != "unprotected" {
            // An answer stays the answer.
            let first = kept.entry(id).or_insert_with(|| said["answer"].clone());
            assert_eq!(*first, said["answer"]);
        }
    }
});
