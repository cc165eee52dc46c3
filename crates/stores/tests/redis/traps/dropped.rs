//! Calls that are given up half-way. Clients have answered one caller with another's reply after
//! that.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use semel_core::store::Store as _;
use semel_core::{Claimed, StoreErrorKind};
use semel_testkit::private::RedisServer;
use semel_testkit::proxy::{Proxy, Way};

use crate::support::{again, clock, complete, open, scene};

const KEYS: usize = 64;
const ROUNDS: usize = 60;

/// I8: while thousands of calls are dropped at every stage, whoever reads gets the record asked
/// for.
async fn nobody_gets_anothers_record(url_options: &str) {
    let server = RedisServer::start(&[]).await;
    let proxy = Proxy::to(server.address(), clock()).await.expect("a port");
    proxy.delay(Way::Reply, Duration::from_millis(1));
    let store = open(&format!("redis://{}{url_options}", proxy.address())).await;
    let corner = scene(server.url()).await;
    let mut claims = Vec::new();
    for number in 0..KEYS {
        let claim = corner.fresh().expect("a claim");
        let lease = corner.won(&claim).await.expect("won");
        corner
            .settled(&lease, &complete(&number.to_string()))
            .await
            .expect("settled");
        claims.push(claim);
    }
    let claims = Arc::new(claims);
    let droppers = (0..4).map(|worker| {
        let (store, claims) = (store.clone(), Arc::clone(&claims));
        tokio::spawn(async move {
            let mut dropped = 0;
            for round in 0..ROUNDS * 16 {
                let claim = again(&claims[(round * 7 + worker) % KEYS]);
                // Polled, so that it is sent; then given up, now or a little later.
                let mut call = store.claim(&claim);
                dropped += usize::from(call.as_mut().now_or_never().is_none());
                if round % 3 == 0 {
                    tokio::task::yield_now().await;
                    dropped -= usize::from(call.as_mut().now_or_never().is_some());
                }
            }
            dropped
        })
    });
    let readers = (0..4).map(|worker| {
        let (store, claims) = (store.clone(), Arc::clone(&claims));
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                let number = (round * 11 + worker * 5) % KEYS;
                match store.claim(&again(&claims[number])).await {
                    Ok(Claimed::Replay(replay)) => {
                        assert_eq!(replay.answer, expected(number), "another's answer");
                    }
                    Ok(other) => panic!("{number} is settled, not {other:?}"),
                    Err(error) => {
                        assert_ne!(error.kind, StoreErrorKind::Record, "another's record");
                    }
                }
            }
        })
    });
    let (droppers, readers): (Vec<_>, Vec<_>) = (droppers.collect(), readers.collect());
    for reader in readers {
        reader.await.expect("a reader");
    }
    let mut dropped = 0;
    for dropper in droppers {
        dropped += dropper.await.expect("a dropper");
    }
    assert!(
        dropped > 2_000,
        "only {dropped} calls were dropped half-way"
    );
}

fn expected(number: usize) -> Arc<semel_core::Answer> {
    let semel_core::Settlement::Complete(answer) = complete(&number.to_string()) else {
        unreachable!("complete completes")
    };
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dropped_calls_give_nobody_anothers_record() {
    nobody_gets_anothers_record("").await;
}
