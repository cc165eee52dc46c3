//! Submissions of jobs: never an error of ours; what is taken is one job for its key, with the
//! parameters that were sent.
#![no_main]

#[path = "support/mod.rs"]
mod support;

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use semel_core::KeyRules;
use semel_jobs::Jobs;
use semel_server::web::Access;
use semel_server::jobs::{JobsState, router};
use serde_json::Value;
use support::queue::Kept;
use support::router::{env, next, send};

fuzz_target!(|data: &[u8]| {
    let (queue, env, rules) = (Arc::new(Kept::default()), env(), KeyRules::default());
    let jobs = Jobs::new(queue.clone(), Arc::clone(&env.clock), rules.clone());
    let router = router(JobsState::new(jobs, Access::Open, rules, env));
    let (mut rest, mut last) = (data, String::new());
    while let Some(request) = next(&mut rest, &last) {
        let before = queue.len();
        let Some(answer) = send(&router, &request) else { return };
        if !answer.status().is_success() {
            assert_eq!(queue.len(), before, "what is refused is not submitted");
            continue;
        }
        if request.uri().path() != "/mesh/submit_request" {
            continue;
        }
        let told: Value = serde_json::from_slice(answer.body()).expect("an answer is JSON");
        let said: Value = serde_json::from_slice(request.body()).expect("so is what was asked");
        assert_eq!(queue.len(), before + usize::from(told["dedup"] == false));
        last = told["job_id"].as_str().expect("a job").to_owned();
        let job = queue.job(&last);
        assert_eq!(said["kind"], job.kind.as_str());
        let params: Value = serde_json::from_slice(&job.params).expect("parameters are JSON");
        assert!(told["dedup"] == true || params == said["params"], "other parameters");
        // Once more: with a key it is the same job, without one it is another.
        let again = send(&router, &request).expect("a submission doesn't wait");
        let again: Value = serde_json::from_slice(again.body()).expect("JSON");
        assert_eq!(again["job_id"] == told["job_id"], job.key.is_some());
        if let (Some(key), Some(named)) = (&job.key, said["idempotency_key"].as_str()) {
            assert_eq!(key.as_str(), named);
        }
    }
});
