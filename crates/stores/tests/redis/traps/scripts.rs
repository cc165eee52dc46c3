//! A server may forget scripts at any time: a restart, a failover, an operator.

use semel_core::CrashPolicy;
use semel_testkit::private::RedisServer;

use crate::support::{again, complete, scene};

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
