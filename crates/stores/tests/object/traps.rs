//! What conditional writes do to those who trust a status alone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::{ObjectStoreExt as _, PutMode, PutOptions, UpdateVersion};
use semel_core::store::StoreAdmin as _;
use semel_core::{
    Answer, Claim, Grant, Record, Renewed, Resolution, Resolved, Settled, Settlement, Store as _,
    StoreErrorKind,
};
use semel_stores::object::ObjectStore;
use semel_testkit::http_proxy::{HttpFault, HttpProxy};

use super::support::{
    OddClock, again, busy, complete, fresh, open, open_with, own_url, proxy, replayed, through, won,
};

/// Every kind of call, each with its first write going wrong; all have to end as if nothing had
/// been wrong.
async fn all_calls_with(wrong: HttpFault) {
    let proxy = proxy().await;
    let store = open(&through(&proxy, &own_url())).await;

    let claim = fresh();
    first_run_with(&proxy, &store, &claim, wrong).await;
    second_run_with(&proxy, &store, &claim, wrong).await;
    proxy.next("PUT", wrong);
    assert!(store.delete(&claim.identity).await.expect("an answer"));
    assert!(store.read(&claim.identity).await.expect("no").is_none());
    assert_eq!(proxy.armed(), 0, "something that was to go wrong did not");
}

/// Claimed, renewed, released.
async fn first_run_with(proxy: &HttpProxy, store: &ObjectStore, claim: &Claim, wrong: HttpFault) {
    proxy.next("PUT", wrong);
    let lease = won(store, claim).await;
    assert_eq!((lease.attempt, lease.token), (1, claim.token));
    busy(store, &again(claim)).await;
    proxy.next("PUT", wrong);
    let checkpoint = Bytes::from_static(b"progress");
    let renewed = store.renew(&lease, Some(&checkpoint)).await;
    assert_eq!(renewed.expect("an answer"), Renewed::Held);
    proxy.next("PUT", wrong);
    settle(store, &lease, &Settlement::Release).await;
}

/// Claimed in the place of what is there, in doubt, resolved, replayed.
async fn second_run_with(proxy: &HttpProxy, store: &ObjectStore, claim: &Claim, wrong: HttpFault) {
    let second = Claim {
        retry: true,
        ..again(claim)
    };
    proxy.next("PUT", wrong);
    let lease = won(store, &second).await;
    assert_eq!(lease.token, second.token);
    settle(store, &lease, &Settlement::Doubt).await;
    proxy.next("PUT", wrong);
    let happened = Arc::new(Answer::from_body("it happened"));
    let resolution = Resolution::Complete(Arc::clone(&happened));
    let resolved = store.resolve(&claim.identity, lease.fence, &resolution);
    assert_eq!(resolved.await.expect("an answer"), Resolved::Done);
    assert_eq!(replayed(store, claim).await, happened);
}

async fn settle(store: &ObjectStore, lease: &Grant, settlement: &Settlement) {
    let settled = store.settle(lease, settlement).await;
    assert_eq!(settled.expect("an answer"), Settled::Done);
}

#[tokio::test]
async fn an_own_write_whose_reply_was_lost_is_recognised() {
    all_calls_with(HttpFault::DoneAndCut).await;
}

#[tokio::test]
async fn an_error_of_the_server_after_the_write_is_not_taken_for_a_loss() {
    all_calls_with(HttpFault::DoneBut(500)).await;
    all_calls_with(HttpFault::DoneBut(503)).await;
}

#[tokio::test]
async fn an_own_write_that_is_refused_for_itself_is_recognised() {
    // What a retry further down would make of it: the write is there, and the answer is that it
    // can't be.
    all_calls_with(HttpFault::DoneBut(412)).await;
}

#[tokio::test]
async fn a_conflict_is_tried_again() {
    all_calls_with(HttpFault::Refused(409)).await;
}

#[tokio::test]
async fn an_error_of_the_server_before_the_write_is_tried_again() {
    all_calls_with(HttpFault::Refused(500)).await;
}

/// A connection that is closed before the answer, as servers close those that were idle, is no
/// reason to fail a look.
#[tokio::test]
async fn a_read_that_got_no_answer_is_sent_again() {
    let proxy = proxy().await;
    let store = open(&through(&proxy, &own_url())).await;
    let claim = fresh();
    let lease = won(&store, &claim).await;
    proxy.next("GET", HttpFault::DoneAndCut);
    busy(&store, &again(&claim)).await;
    proxy.next("PUT", HttpFault::DoneAndCut);
    proxy.next("GET", HttpFault::DoneAndCut);
    settle(&store, &lease, &complete("done")).await;
    assert_eq!(proxy.armed(), 0);
}

/// Nor is a status whose body breaks off an answer, whatever it says.
#[tokio::test]
async fn a_reply_that_breaks_off_in_its_body_is_no_answer() {
    let proxy = proxy().await;
    let store = open(&through(&proxy, &own_url())).await;
    let claim = fresh();
    // 404.
    proxy.next("GET", HttpFault::CutAfterHead);
    let found = store.read(&claim.identity).await;
    assert!(found.expect("an answer").is_none());
    let lease = won(&store, &claim).await;
    // 200.
    proxy.next("GET", HttpFault::CutAfterHead);
    busy(&store, &again(&claim)).await;
    // 412.
    proxy.next("PUT", HttpFault::CutAfterHead);
    busy(&store, &again(&claim)).await;
    // The look by which a settlement whose reply was lost is recognised.
    proxy.next("PUT", HttpFault::DoneAndCut);
    proxy.next("GET", HttpFault::CutAfterHead);
    settle(&store, &lease, &complete("done")).await;
    assert_eq!(proxy.armed(), 0);
}

/// Arms the next two writes, so that the second try fails too.
fn twice(proxy: &HttpProxy, wrong: HttpFault) {
    proxy.next("PUT", wrong);
    proxy.next("PUT", wrong);
}

#[tokio::test]
async fn several_conflicts_in_a_row_are_tried_again() {
    let proxy = proxy().await;
    let store = open(&through(&proxy, &own_url())).await;
    let claim = fresh();
    twice(&proxy, HttpFault::Refused(409));
    let lease = won(&store, &claim).await;
    twice(&proxy, HttpFault::Refused(503));
    settle(&store, &lease, &complete("done")).await;
    assert_eq!(proxy.armed(), 0);
}

/// Another's claim is never taken for one's own, whatever went wrong before.
#[tokio::test]
async fn anothers_write_is_not_taken_for_ones_own() {
    let proxy = proxy().await;
    let url = own_url();
    let (store, rival) = (open(&through(&proxy, &url)).await, open(&url).await);
    let claim = fresh();
    let lease = won(&rival, &again(&claim)).await;
    proxy.next("PUT", HttpFault::Refused(500));
    busy(&store, &claim).await;
    settle(&rival, &lease, &Settlement::Release).await;
    let theirs = won(&store, &claim).await;
    proxy.next("PUT", HttpFault::DoneBut(500));
    settle(&store, &theirs, &Settlement::Release).await;
    won(&rival, &again(&claim)).await;
    // A stale lease, and a reply that is lost: still nobody's.
    proxy.next("PUT", HttpFault::DoneAndCut);
    let late = store.settle(&theirs, &complete("late")).await;
    assert_eq!(late.expect("an answer"), Settled::Lost);
}

/// Two writes of the same record at the same time of a clock that stands still have different tags:
/// a condition on the first can't be met by the second.
#[tokio::test]
async fn two_writes_of_the_same_record_can_be_told_apart() {
    let clock = OddClock::new(0);
    let store = open_with(&own_url(), clock.clone()).await;
    let claim = fresh();
    let lease = won(&store, &claim).await;
    let path = store.path_of(&claim.identity);
    clock.stop();
    let mut tags = Vec::new();
    // More than a few, so that some of them fall into one second of the server's clock, which moves
    // our idea of time.
    for _ in 0..8 {
        let renewed = store.renew(&lease, None).await;
        assert_eq!(renewed.expect("an answer"), Renewed::Held);
        let meta = store.client().head(&path).await.expect("a record");
        tags.push(meta.e_tag.expect("a tag"));
    }
    let stale = UpdateVersion {
        e_tag: Some(tags[0].clone()),
        version: None,
    };
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 8, "two writes have one tag");
    // So whoever looked before the others is refused.
    let options = PutOptions::from(PutMode::Update(stale));
    let write = store
        .client()
        .put_opts(&path, "stale".into(), options)
        .await;
    assert!(write.is_err(), "a write on a stale condition was taken");
}

/// The next fence of the key is larger, even if the clock is set back within that day.
#[tokio::test]
async fn a_deleted_records_fence_is_kept_for_a_day() {
    let store = open(&own_url()).await;
    let claim = fresh();
    let lease = won(&store, &claim).await;
    assert!(store.delete(&claim.identity).await.expect("an answer"));
    let kept = store.client().get(&store.path_of(&claim.identity)).await;
    let kept = kept.expect("an object").bytes().await.expect("an object");
    let kept = Record::decode_for(&claim.identity, &kept).expect("a record");
    let day = Duration::from_secs(24 * 60 * 60);
    assert_eq!((kept.fence, kept.retention), (lease.fence, day));
}

#[tokio::test]
async fn missing_server_is_unavailable_and_nothing_changed() {
    let proxy = proxy().await;
    let store = open(&through(&proxy, &own_url())).await;
    drop(proxy);
    let error = store.claim(&fresh()).await.expect_err("nobody there");
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(error.to_string().contains("nothing was changed"), "{error}");
}

/// Errors are for logs: what they say never has the login, or what the server repeats of the
/// request.
#[tokio::test]
async fn a_refused_login_is_said_without_it() {
    let url = own_url().replace("semel-secret", "hunter2");
    let error = ObjectStore::open(&url, super::support::clock())
        .await
        .expect_err("refused");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    let said = format!("{error} {}", cause.unwrap_or_default());
    assert!(said.contains("403"), "{said}");
    for secret in ["hunter2", "127.0.0.1", "Signature=", "idempotency"] {
        assert!(!said.contains(secret), "{said}");
    }
}
