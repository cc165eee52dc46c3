//! A settlement is written, its reply is lost, and there is no way to send it again.

use semel_core::{Certainty, Claim, State, Store};
use semel_testkit::proxy::{Cut, Proxy};

use crate::support::{complete, won};

/// That the last sending changed nothing is no comfort: the error is not definite (P28). `store` has one connection, by the
/// proxy; `direct` goes past it.
pub(crate) async fn is_not_definite(
    proxy: &Proxy,
    store: &impl Store,
    direct: &impl Store,
    fresh: impl Fn() -> Claim,
) {
    let mut landed = 0;
    for lots in 0..4 {
        // On a connection of its own, where the statements are prepared already.
        proxy.refuse(false);
        let warm = won(store, &fresh()).await;
        store
            .settle(&warm, &complete("warm"))
            .await
            .expect("settled");
        let claim = fresh();
        let lease = won(store, &claim).await;
        proxy.cut_after(lots, Cut::BeforeReply);
        proxy.refuse(true);
        let Err(error) = store.settle(&lease, &complete("once")).await else {
            proxy.disarm();
            continue;
        };
        let record = direct.read(&claim.identity).await.expect("read");
        if record.is_some_and(|record| record.state == State::Completed) {
            assert_eq!(error.certainty, Certainty::Unknown, "{error}");
            landed += 1;
        }
    }
    assert!(landed > 0, "no settlement was written and its reply lost");
}
