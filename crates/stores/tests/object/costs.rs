//! How many requests things take: each has its price.

use semel_core::{Claim, Settled, Store as _};

use super::support::{again, busy, complete, fresh, open, own_url, proxy, replayed, through, won};

#[tokio::test]
async fn a_fresh_run_takes_two_requests_and_a_replay_two_or_one() {
    let proxy = proxy().await;
    let store = open(&through(&proxy, &own_url())).await;
    let _ = proxy.requests();
    let claim = fresh();
    let lease = won(&store, &claim).await;
    let settled = store.settle(&lease, &complete("done")).await;
    assert_eq!(settled.expect("an answer"), Settled::Done);
    assert_eq!(proxy.requests(), ["PUT", "PUT"]);

    replayed(&store, &claim).await;
    assert_eq!(proxy.requests(), ["PUT", "GET"]);

    let retry = Claim {
        retry: true,
        ..again(&claim)
    };
    let _ = store.claim(&retry).await.expect("an answer");
    assert_eq!(proxy.requests(), ["GET"]);
}

#[tokio::test]
async fn a_renewal_takes_one_request_and_so_does_the_settlement_after_it() {
    let proxy = proxy().await;
    let store = open(&through(&proxy, &own_url())).await;
    let claim = fresh();
    let lease = won(&store, &claim).await;
    let _ = proxy.requests();
    store.renew(&lease, None).await.expect("an answer");
    assert_eq!(proxy.requests(), ["PUT"]);
    busy(&store, &again(&claim)).await;
    assert_eq!(proxy.requests(), ["PUT", "GET"]);
    // A lease remembers what it was before the renewal; this process knows better.
    store.renew(&lease, None).await.expect("an answer");
    let settled = store.settle(&lease, &complete("done")).await;
    assert_eq!(settled.expect("an answer"), Settled::Done);
    assert_eq!(proxy.requests(), ["PUT", "PUT"]);
}
