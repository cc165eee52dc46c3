//! A whole request through the HTTP layer: it is passed on, run or refused; sent again, it is
//! answered alike and runs nothing.
#![no_main]

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use http::Method;
use libfuzzer_sys::fuzz_target;
use semel_core::KeyRules;
use semel_http::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, Route, read_key};
use support::{Rig, parse, text};

fuzz_target!(|data: &[u8]| {
    let Some(request) = parse(data) else { return };
    let route = Route::new().caller_ttl(Duration::from_secs(3600));
    let mut rig = Rig::new(route);
    let (first, second) = (rig.send(&request), rig.send(&request));
    for answer in [&first, &second] {
        assert!(answer.status().as_u16() < 500, "{}", answer.status());
    }
    let mut lines = request.headers().get_all(IDEMPOTENCY_KEY).iter();
    let only = lines.next().filter(|_| lines.next().is_none());
    let keyed = only.is_some_and(|line| read_key(line, &KeyRules::default()).is_ok());
    let covered = [Method::POST, Method::PATCH].contains(request.method());
    // A refusal of a gRPC call is a 200 too, and says so in a header.
    let is_refused = !first.status().is_success() || first.headers().contains_key("grpc-status");
    if keyed && covered && !is_refused {
        assert_eq!(rig.runs(), 1, "it ran again");
        assert_eq!(first.status(), second.status());
        assert!(second.headers().contains_key(IDEMPOTENT_REPLAYED));
        assert_eq!(text(first), text(second));
    } else if is_refused {
        assert_eq!(rig.runs(), 0, "what is refused does not run");
    }
});
