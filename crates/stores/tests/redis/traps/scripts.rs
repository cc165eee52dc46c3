//! A server may forget scripts at any time: a restart, a failover, an operator.

use semel_core::CrashPolicy;
use semel_testkit::private::RedisServer;

use crate::support::{again, complete, key_of, scene};

#[tokio::test]
async fn a_script_cache_that_is_flushed_in_the_middle_disturbs_nobody() {
    let server = RedisServer::start(&[]).await;
    let scene = scene(server.url()).await;
    let terms = scene.lasting(CrashPolicy::Takeover).unwrap();
    for round in 0..50 {
        let claim = scene.fresh_on(terms).unwrap();
        let flush = || server.ask(&["SCRIPT", "FLUSH"]);
        let lease = scene.won(&claim).await.unwrap();
        let _ = flush();
        scene.held(&lease, None).await.unwrap();
        let _ = flush();
        scene.held(&lease, Some(b"half")).await.unwrap();
        let _ = flush();
        scene.busy(&again(&claim)).await.unwrap();
        let _ = flush();
        scene
            .settled(&lease, &complete(&round.to_string()))
            .await
            .unwrap();
        let _ = flush();
        scene.replayed(&again(&claim)).await.unwrap();
        let _ = flush();
        assert!(scene.store().delete(&claim.identity).await.unwrap());
    }
}

/// A clock that is set an hour back and forward again ends what is kept for a minute: the next
/// fence would be smaller.
#[tokio::test]
async fn a_deleted_records_fence_is_kept_for_a_day() {
    let server = RedisServer::start(&[]).await;
    let scene = scene(server.url()).await;
    let claim = scene.fresh().unwrap();
    let lease = scene.won(&claim).await.unwrap();
    scene.settled(&lease, &complete("done")).await.unwrap();
    assert!(scene.store().delete(&claim.identity).await.unwrap());
    let millis = server.ask(&["PTTL", &key_of(&claim.identity)]);
    let millis: u64 = millis.parse().expect("a time to live");
    let (hour, day) = (3_600_000, 24 * 3_600_000);
    assert!((day - hour..=day).contains(&millis), "{millis}");
}

/// The server removes records by itself: each has a time to live, which settling begins anew.
#[tokio::test]
async fn records_expire_on_the_server() {
    let server = RedisServer::start(&[]).await;
    let scene = scene(server.url()).await;
    let claim = scene.fresh().unwrap();
    let retention = claim.terms.retention().as_millis();
    let millis = || {
        let answer = server.ask(&["PTTL", &key_of(&claim.identity)]);
        answer.parse::<u128>().expect("a time to live")
    };
    let lease = scene.won(&claim).await.unwrap();
    assert!((retention / 2..=retention).contains(&millis()));
    // Shorter than it is, so that settling must set it.
    let shortened = server.ask(&["PEXPIRE", &key_of(&claim.identity), "5000"]);
    assert_eq!(shortened, "1");
    scene.settled(&lease, &complete("done")).await.unwrap();
    assert!((retention / 2..=retention).contains(&millis()));
}
