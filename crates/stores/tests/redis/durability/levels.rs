//! What an answer waits for.

use std::path::Path;
use std::time::Duration;

use semel_core::store::Store as _;
use semel_core::{Claimed, Grant, Settled, StoreError};

use super::{Pair, redis_and_valkey};
use crate::support::{again, clock, complete, is_unconfirmed, open, scene, suite_at_a_level};

fn is_unknown<T>(answer: Result<T, StoreError>) {
    let error = answer.err().expect("nobody confirms");
    assert!(is_unconfirmed(&error), "{error:?}");
}

/// Sends a call again, as callers do, until it is confirmed.
async fn confirmed<T>(call: impl AsyncFn() -> Result<T, StoreError>) -> T {
    for _ in 0..30 {
        match call().await {
            Err(error) if is_unconfirmed(&error) => {}
            answer => return answer.expect("an answer"),
        }
    }
    panic!("nobody ever confirmed it");
}

fn lease(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Won(grant) => grant,
        other => panic!("won was expected: {other:?}"),
    }
}

/// A short count is an error that says *unknown*; the same call again is confirmed once the replica
/// is back: a claim gives the same lease (P6), a settlement is done (P18). And nobody is shown what
/// isn't confirmed.
#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_answer_is_withheld_and_confirmed_on_retry() {
    for program in redis_and_valkey().await {
        let pair = Pair::start(&program).await;
        let url = format!("{}?durability=wait:1", pair.master.url());
        let (scene, other) = (scene(&url).await, open(&url).await);
        let (store, plain) = (scene.store(), open(&pair.master.url()).await);
        let (done, new) = (scene.fresh().unwrap(), scene.fresh().unwrap());
        let first = lease(confirmed(async || store.claim(&done).await).await);
        let end = complete("done");

        pair.cut_off(true);
        let (claimed, settled) = tokio::join!(store.claim(&new), store.settle(&first, &end));
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
            store.settle(&first, &end),
        );
        is_unknown(shown);
        is_unknown(read);
        is_unknown(claimed);
        is_unknown(settled);

        pair.cut_off(false);
        let second = lease(confirmed(async || store.claim(&new).await).await);
        assert_eq!(second.fence, landed.fence);
        let settled = confirmed(async || store.settle(&first, &end).await).await;
        assert_eq!(settled, Settled::Done);
        let replay = confirmed(async || other.claim(&asked).await).await;
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
        took < Duration::from_secs(10),
        "twenty waits of a second each took {took:?}"
    );
}

/// The suite keeps passing at the level, on both servers' ways to do it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suite_passes_at_a_level() {
    let pair = Pair::start(Path::new("redis-server")).await;
    let url = format!("{}?durability=wait:1", pair.master.url());
    suite_at_a_level(&url, |_| true).await;
}
