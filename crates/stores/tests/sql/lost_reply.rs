//! Something is written, and its reply is lost.

use semel_core::{Certainty, Claim, State, Store, StoreAdmin};
use semel_testkit::proxy::{Cut, Proxy};

use crate::support::{complete, won};

/// A deletion whose reply was lost is not denied, and not sent again, if it could meet another's
/// record (P28). `store` has one connection, by the proxy; `direct` goes past it.
pub(crate) async fn of_a_deletion_is_not_denied(
    proxy: &Proxy,
    store: &impl StoreAdmin,
    direct: &impl Store,
    fresh: impl Fn() -> Claim,
) {
    let mut landed = 0;
    for lots in 0..8 {
        // On a connection of its own, if the statements are prepared already.
        let warm = fresh();
        won(store, &warm).await;
        assert!(store.delete(&warm.identity).await.expect("deleted"));
        let claim = fresh();
        won(store, &claim).await;
        proxy.cut_after(lots, Cut::BeforeReply);
        let told = store.delete(&claim.identity).await;
        let was_cut = proxy.disarm() == 0;
        let is_gone = direct.read(&claim.identity).await.expect("read").is_none();
        match told {
            Ok(was_there) => assert!(was_there && is_gone, "denied after {lots} replies"),
            Err(error) => assert_eq!(error.certainty, Certainty::Unknown, "{error}"),
        }
        landed += u32::from(was_cut && is_gone);
    }
    assert!(landed > 0, "no deletion was done and its reply lost");
}

/// A settlement whose last attempt changed nothing may have been applied by an earlier one, so its
/// error is not definite (P28). `store` has one connection, through the proxy; `direct` goes past
/// it.
pub(crate) async fn is_not_definite(
    proxy: &Proxy,
    store: &impl Store,
    direct: &impl Store,
    fresh: impl Fn() -> Claim,
) {
    let mut landed = 0;
    for lots in 0..4 {
        // On a connection of its own, if the statements are prepared already.
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
