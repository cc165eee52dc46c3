//! Connections that break between a write and its reply: nobody knows, and sending again tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::{Failure, Semel};
use semel_core::store::{Store as _, StoreAdmin as _};
use semel_core::{
    Certainty, Claim, ClaimTerms, Claimed, CrashPolicy, Renewed, Settled, Settlement,
    StoreErrorKind,
};
use semel_testkit::private::RedisServer;
use semel_testkit::proxy::{Cut, Proxy, Way};

use crate::support::{again, clock, complete, open, scene};

pub(super) async fn proxied() -> (RedisServer, Proxy, String) {
    let server = RedisServer::start(&[]).await;
    let proxy = Proxy::to(server.address(), clock()).await.expect("a port");
    let url = format!("redis://{}", proxy.address());
    (server, proxy, url)
}

/// Every call, cut at every place: the error says *unknown*, and the same call again gives what it
/// would have.
#[tokio::test]
async fn what_is_cut_off_is_sent_again_and_gives_the_same() {
    let (server, proxy, url) = proxied().await;
    let (store, corner) = (open(&url).await, scene(server.url()).await);
    // Let the server know the scripts, so that one lot is one call.
    let warm = corner.won(&corner.fresh().unwrap()).await.unwrap();
    corner.held(&warm, None).await.unwrap();
    corner.settled(&warm, &complete("warm")).await.unwrap();
    for cut in [Cut::BeforeRequest, Cut::BeforeReply, Cut::InReply(2)] {
        let claim = corner.fresh().unwrap();
        proxy.cut(cut);
        let error = store.claim(&claim).await.expect_err("cut off");
        assert_eq!(
            (error.kind, error.certainty),
            (StoreErrorKind::Unavailable, Certainty::Unknown)
        );
        let landed = corner.read(&claim.identity).await.unwrap();
        assert_eq!(landed.is_some(), cut != Cut::BeforeRequest, "{cut:?}");
        let Claimed::Won(lease) = store.claim(&claim).await.unwrap() else {
            panic!("our own claim was lost to us after {cut:?}");
        };
        if let Some(landed) = landed {
            assert_eq!(
                (lease.fence, lease.attempt),
                (landed.fence, 1),
                "P6 after {cut:?}"
            );
        }

        proxy.cut(cut);
        store.renew(&lease, None).await.expect_err("cut off");
        assert_eq!(store.renew(&lease, None).await.unwrap(), Renewed::Held);

        proxy.cut(cut);
        let error = store
            .settle(&lease, &complete("once"))
            .await
            .expect_err("cut off");
        assert_eq!(error.certainty, Certainty::Unknown);
        assert_eq!(
            store.settle(&lease, &complete("once")).await.unwrap(),
            Settled::Done,
            "P18 after {cut:?}"
        );
        assert_eq!(
            store.settle(&lease, &complete("twice")).await.unwrap(),
            Settled::Lost
        );
        corner.replayed(&again(&claim)).await.unwrap();
    }
    assert_eq!(proxy.cuts(), 9);
}

/// No connection at all is another matter: nothing was sent, and that is known.
#[tokio::test]
async fn what_could_not_be_sent_changed_nothing() {
    let mut server = RedisServer::start(&[]).await;
    let corner = scene(server.url()).await;
    server.kill();
    let claim = corner.fresh().unwrap();
    // The first call may find out that the connection is gone only by using it.
    let _ = corner.store().claim(&claim).await.expect_err("no server");
    let error = corner.store().claim(&claim).await.expect_err("no server");
    assert_eq!(
        (error.kind, error.certainty),
        (StoreErrorKind::Unavailable, Certainty::Definite)
    );
    server.restart().await;
    corner.won(&claim).await.unwrap();
}

/// A server that is silent is given up on, and the next call has a connection of its own.
#[tokio::test]
async fn a_silent_server_is_given_up_on() {
    let (server, proxy, url) = proxied().await;
    let (store, corner) = (open(&url).await, scene(server.url()).await);
    let claim = corner.fresh().unwrap();
    proxy.hold(Way::Reply, true);
    let error = store.claim(&claim).await.expect_err("silence");
    assert_eq!(
        (error.kind, error.certainty),
        (StoreErrorKind::Unavailable, Certainty::Unknown)
    );
    let before = proxy.connections();
    proxy.hold(Way::Reply, false);
    assert!(matches!(
        store.claim(&claim).await.unwrap(),
        Claimed::Won(_)
    ));
    assert_eq!(proxy.connections(), before + 1);
}

/// As its user meets it: the engine sends again by itself, and the effect runs once.
#[tokio::test(flavor = "multi_thread")]
async fn an_effect_runs_once_however_its_calls_are_cut() {
    let (_server, proxy, url) = proxied().await;
    let semel = Semel::open(&url).await.unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let call = |key: String| {
        let (semel, runs) = (semel.clone(), Arc::clone(&runs));
        let effect = |_| async move { Ok::<_, Failure>(runs.fetch_add(1, Ordering::SeqCst)) };
        async move {
            semel
                .operation("charge")
                .key(&key)
                .payload(&1)
                .run(effect)
                .await
        }
    };
    call("warm".to_owned()).await.unwrap();
    let mut number = 0;
    for cut in [
        Cut::BeforeRequest,
        Cut::BeforeReply,
        Cut::InReply(1),
        Cut::AfterReply,
    ] {
        // Of the claim, and of the settlement after it.
        for lots in [0, 1] {
            number += 1;
            let key = format!("k-{number}");
            proxy.cut_after(lots, cut);
            let answer = call(key.clone()).await.unwrap();
            assert_eq!(
                (answer.value, answer.replayed),
                (number, false),
                "{cut:?} {lots}"
            );
            assert_eq!(call(key).await.unwrap().value, number);
        }
    }
    assert_eq!(runs.load(Ordering::SeqCst), number + 1);
}

/// A claim that was held up in flight arrives when a later lease has come, gone and expired: its
/// fence is larger all the same (P22), where their records live for less than a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_arrives_late_has_the_larger_fence() {
    let (server, proxy, url) = proxied().await;
    let (store, other) = (open(&url).await, open(&server.url()).await);
    let corner = scene(server.url()).await;
    let brief = Duration::from_millis(40);
    let terms = |span| ClaimTerms::new(span, span, CrashPolicy::Takeover, 5).unwrap();
    let early = Claim {
        terms: terms(Duration::from_secs(10)),
        ..corner.fresh().unwrap()
    };
    let later = Claim {
        terms: terms(brief),
        ..again(&early)
    };
    proxy.hold(Way::Request, true);
    let held_up = tokio::spawn(async move { store.claim(&early).await });
    // Long enough to be in flight.
    clock().sleep(Duration::from_millis(100)).await;
    let Claimed::Won(first) = other.claim(&later).await.unwrap() else {
        panic!("a fresh key is won");
    };
    clock().sleep(brief * 2).await;
    proxy.hold(Way::Request, false);
    let Claimed::Won(second) = held_up.await.unwrap().unwrap() else {
        panic!("the record has expired");
    };
    assert!(second.fence > first.fence, "{second:?} after {first:?}");
    // What the owner has in hand is what the server has.
    assert_eq!(other.renew(&second, None).await.unwrap(), Renewed::Held);
}

/// The store's first question for the server's time was under way for long, so its estimate is
/// ahead of the server. The fences that it gives to brief records must not be: the next one, after
/// expiry, is the server's own (P22).
#[tokio::test(flavor = "multi_thread")]
async fn an_estimate_that_is_ahead_does_not_reach_the_fences_of_brief_records() {
    const DELAY: Duration = Duration::from_millis(400);
    const BRIEF: Duration = Duration::from_millis(60);
    const RETAINED: Duration = Duration::from_millis(120);
    let (server, proxy, url) = proxied().await;
    proxy.delay(Way::Request, DELAY);
    let store = open(&url).await;
    proxy.delay(Way::Request, Duration::ZERO);
    let corner = scene(server.url()).await;
    let terms = ClaimTerms::new(BRIEF, RETAINED, CrashPolicy::Takeover, 5).unwrap();
    let claim = |claim: Claim| Claim { terms, ..claim };
    let won = async |claim: &Claim| match store.claim(claim).await.unwrap() {
        Claimed::Won(lease) => lease,
        other => panic!("{other:?}"),
    };

    // A release, a renewal and a checkpoint each write a time; a deletion leaves one behind.
    for way in ["release", "renew", "checkpoint", "delete"] {
        let first = claim(corner.fresh().unwrap());
        let lease = won(&first).await;
        match way {
            "release" => assert_eq!(
                store.settle(&lease, &Settlement::Release).await.unwrap(),
                Settled::Done
            ),
            "delete" => {
                store.settle(&lease, &complete("gone")).await.unwrap();
                store.delete(&first.identity).await.unwrap();
            }
            _ => {
                let checkpoint = (way == "checkpoint").then(|| "half".into());
                let renewed = store.renew(&lease, checkpoint.as_ref()).await.unwrap();
                assert_eq!(renewed, Renewed::Held);
                // The lease lapses, and the record stays.
                clock().sleep(BRIEF + Duration::from_millis(5)).await;
            }
        }
        let second = won(&again(&first)).await;
        assert!(second.fence > lease.fence, "{way}");
        clock().sleep(RETAINED + Duration::from_millis(10)).await;
        let third = won(&again(&first)).await;
        assert!(
            third.fence > second.fence,
            "{way}: {third:?} after {second:?}"
        );
    }
}
