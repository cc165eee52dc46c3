//! What a store keeps up while it watches: the server's clock, and channels.

use std::time::Duration;

use semel_core::{Claim, ClaimTerms, Claimed, CrashPolicy, Store as _};
use semel_testkit::private::RedisServer;
use semel_testkit::proxy::Way;

use super::cuts::proxied;
use crate::support::{again, clock, open, scene};

/// The clock is asked when the store is opened. An answer that comes late must not make the
/// estimate too early, or a fence would be smaller than one that the server gave (P22).
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_answer_about_the_time_makes_no_fence_smaller() {
    let (server, proxy, url) = proxied().await;
    proxy.delay(Way::Reply, Duration::from_secs(1));
    let slow = open(&url).await;
    proxy.delay(Way::Reply, Duration::ZERO);
    let (other, corner) = (open(&server.url()).await, scene(server.url()).await);
    let long = corner.fresh().unwrap();
    let brief = Duration::from_millis(50);
    let short = Claim {
        terms: ClaimTerms::new(brief, brief, CrashPolicy::Takeover, 5).unwrap(),
        ..again(&long)
    };
    let Claimed::Won(first) = other.claim(&short).await.unwrap() else {
        panic!("a fresh key is won");
    };
    clock().sleep(brief * 2).await;
    let Claimed::Won(second) = slow.claim(&long).await.unwrap() else {
        panic!("the record has expired");
    };
    assert!(second.fence > first.fence, "{second:?} after {first:?}");
}

/// However much else goes on, channels that nobody waits on any more are left: each costs the
/// server memory.
#[tokio::test(flavor = "multi_thread")]
async fn channels_are_left_also_while_new_ones_come() {
    let server = RedisServer::start(&[]).await;
    let (store, corner) = (open(&server.url()).await, scene(server.url()).await);
    for _ in 0..60 {
        drop(store.watch(&corner.fresh().unwrap().identity));
        clock().sleep(Duration::from_millis(200)).await;
    }
    let open = server.ask(&["PUBSUB", "CHANNELS"]).lines().count();
    assert!(open < 50, "{open} channels after 60 waiters that left");
}
