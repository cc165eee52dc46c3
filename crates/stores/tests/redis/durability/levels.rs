//! What an answer waits for.

use std::path::Path;
use std::time::Duration;

use semel_core::store::Store as _;
use semel_core::{Certainty, Claimed, StoreError, StoreErrorKind};

use super::{Pair, redis_and_valkey};
use crate::support::{again, clock, complete, open, scene, suite};

fn is_unknown<T>(answer: Result<T, StoreError>) {
    let error = answer.err().expect("nobody confirms");
    let unknown = (StoreErrorKind::Unavailable, Certainty::Unknown);
    assert_eq!((error.kind, error.certainty), unknown);
}

/// A short count is an error that says *unknown*; the same call again is confirmed once the replica is back:
/// a claim gives the same lease (P6), a settlement is done (P18). And nobody is shown what isn't confirmed.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_confirmed_is_not_told_and_is_confirmed_when_sent_again() {
    for program in redis_and_valkey().await {
        let pair = Pair::start(&program).await;
        let url = format!("{}?durability=wait:1", pair.master.url());
        let (scene, other) = (scene(&url).await, open(&url).await);
        let (store, plain) = (scene.store(), open(&pair.master.url()).await);
        let (done, new) = (scene.fresh().unwrap(), scene.fresh().unwrap());
        let (lease, end) = (scene.won(&done).await.unwrap(), complete("done"));

        pair.cut_off(true);
        let (claimed, settled) = tokio::join!(store.claim(&new), store.settle(&lease, &end));
        is_unknown(claimed);
        is_unknown(settled);
        let landed = plain.read(&new.identity).await.unwrap();
        let landed = landed.expect("the master has it");
        let replay = plain.claim(&again(&done)).await.unwrap();
        assert!(matches!(replay, Claimed::Replay(_)), "the master has it");

        let asked = again(&done);
        let (shown, read, claimed, settled) = tokio::join!(
            other.claim(&asked),
            other.read(&done.identity),
            store.claim(&new),
            store.settle(&lease, &end),
        );
        is_unknown(shown);
        is_unknown(read);
        is_unknown(claimed);
        is_unknown(settled);

        pair.cut_off(false);
        assert_eq!(scene.won(&new).await.unwrap().fence, landed.fence);
        scene.settled(&lease, &end).await.unwrap();
        let replay = other.claim(&again(&done)).await.unwrap();
        assert!(matches!(replay, Claimed::Replay(_)));
    }
}

/// A wait holds up nobody else: other stores of the process, and other calls of this one.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_holds_up_no_other_call() {
    let pair = Pair::start(Path::new("redis-server")).await;
    let url = format!("{}?durability=wait:1", pair.master.url());
    let (scene, time) = (scene(&url).await, clock());
    pair.cut_off(true);
    let begun = time.now();
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let (scene, claim) = (scene.clone(), scene.fresh().unwrap());
            tokio::spawn(async move { scene.store().claim(&claim).await.is_err() })
        })
        .collect();
    for call in calls {
        assert!(call.await.unwrap(), "nobody confirms");
    }
    let took = time.now().since(begun);
    assert!(
        took < Duration::from_secs(4),
        "twenty waits of a second each took {took:?}"
    );
}

/// The suite keeps passing at the level, on both servers' ways to do it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suite_passes_at_a_level() {
    let pair = Pair::start(Path::new("redis-server")).await;
    suite(&format!("{}?durability=wait:1", pair.master.url()), |_| {
        true
    })
    .await;
}
