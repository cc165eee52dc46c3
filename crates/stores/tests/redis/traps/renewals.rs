//! A renewal and a takeover that meet: one of them is told that it has the lease, never both (I1,
//! I5).

use std::sync::Arc;
use std::time::Duration;

use semel_conformance::clock::FakeClock;
use semel_core::store::Store as _;
use semel_core::{Claim, ClaimTerms, Claimed, CrashPolicy, Grant, Renewed};
use semel_stores::redis::RedisStore;
use semel_testkit::private::RedisServer;

use crate::interceptor::{Interceptor, is_look, is_swap};
use crate::support::{again, clock, key_of, open, scene};

/// So long that no machine is slow enough to let it lapse by itself.
const LEASE: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(3600);
/// Below a minute, the server gives the record its times.
const BRIEF: Duration = Duration::from_secs(59);

/// An owner at a store whose idea of the server's time is behind its record's, and another caller.
struct Meeting {
    server: RedisServer,
    owner: RedisStore,
    lease: Grant,
    other: RedisStore,
    way: Interceptor,
    claim: Claim,
}

impl Meeting {
    async fn start(retention: Duration) -> Self {
        let server = RedisServer::start(&[]).await;
        let (ahead, behind) = (FakeClock::new(), FakeClock::new());
        let winner = open_with(&ahead, &server).await;
        let owner = open_with(&behind, &server).await;
        ahead.advance(LONG);
        let terms = ClaimTerms::new(LEASE, retention, CrashPolicy::Takeover, 5).expect("terms");
        let claim = scene(server.url()).await.fresh_on(terms).expect("a claim");
        // Won through one process, renewed through another.
        let Claimed::Won(lease) = winner.claim(&claim).await.expect("an answer") else {
            panic!("a fresh key is won");
        };
        let way = Interceptor::to(server.address()).await;
        let other = open(&way.url()).await;
        Self {
            server,
            owner,
            lease,
            other,
            way,
            claim,
        }
    }

    /// Makes the record look as if it had been written so long ago.
    fn age(&self, retention: Duration, age: Duration) {
        let left = (retention - age).as_millis().to_string();
        let key = key_of(&self.claim.identity);
        assert_eq!(self.server.ask(&["PEXPIRE", &key, &left]), "1");
    }
}

async fn open_with(clock: &FakeClock, server: &RedisServer) -> RedisStore {
    let opened = RedisStore::open(&server.url(), Arc::new(clock.clone())).await;
    opened.expect("a server")
}

/// The other caller has seen the lease lapsed and is about to take over when the renewal arrives.
async fn a_late_renewal_keeps_the_lease_or_loses_it(retention: Duration) {
    let meeting = Meeting::start(retention).await;
    meeting.age(retention, LEASE + Duration::from_secs(1));
    let held = meeting.way.hold(is_swap);
    let (other, claim) = (meeting.other.clone(), again(&meeting.claim));
    let takeover = tokio::spawn(async move { other.claim(&claim).await });
    held.has_come().await;
    let renewed = meeting.owner.renew(&meeting.lease, None).await;
    let renewed = renewed.expect("an answer");
    assert_eq!(renewed, Renewed::Held, "nobody has taken over yet");
    held.let_go();
    let claimed = takeover.await.expect("no panic").expect("an answer");
    assert!(matches!(claimed, Claimed::Busy(_)), "{claimed:?}");
    assert_eq!(
        meeting
            .owner
            .renew(&meeting.lease, None)
            .await
            .expect("an answer"),
        Renewed::Held
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_and_a_takeover_do_not_both_succeed() {
    a_late_renewal_keeps_the_lease_or_loses_it(LONG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_and_a_takeover_of_a_brief_record_do_not_both_succeed() {
    a_late_renewal_keeps_the_lease_or_loses_it(BRIEF).await;
}

/// The checkpoint looked at the record in the moment in which it was written, and arrives when
/// another caller has seen the lease lapsed.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_and_a_takeover_do_not_both_succeed() {
    let meeting = Meeting::start(LONG).await;
    let way = Interceptor::to(meeting.server.address()).await;
    let owner = open(&way.url()).await;
    // As new as it gets, for however long the look takes.
    let key = key_of(&meeting.claim.identity);
    let left = (LONG + LEASE).as_millis().to_string();
    assert_eq!(meeting.server.ask(&["PEXPIRE", &key, &left]), "1");
    let late = way.hold(is_swap);
    let lease = meeting.lease.clone();
    let checkpoint = tokio::spawn(async move { owner.renew(&lease, Some(&"half".into())).await });
    late.has_come().await;
    meeting.age(LONG, LEASE + Duration::from_secs(1));
    let held = meeting.way.hold(is_swap);
    let (other, claim) = (meeting.other.clone(), again(&meeting.claim));
    let takeover = tokio::spawn(async move { other.claim(&claim).await });
    held.has_come().await;
    late.let_go();
    assert_eq!(checkpoint.await.unwrap().unwrap(), Renewed::Held);
    held.let_go();
    let claimed = takeover.await.unwrap().unwrap();
    assert!(matches!(claimed, Claimed::Busy(_)), "{claimed:?}");
}

/// A record that is there for each claim and gone at each look is claimed so often, and not for
/// ever (P4).
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_comes_and_goes_ends_the_claim_as_busy() {
    const MANY: usize = 1_000;
    let meeting = Meeting::start(LONG).await;
    meeting.way.answer(MANY, is_look, "$-1");
    let claim = again(&meeting.claim);
    let used_up = async {
        while meeting.way.answers_left() > 0 {
            clock().sleep(Duration::from_millis(10)).await;
        }
    };
    let claimed = tokio::select! {
        claimed = meeting.other.claim(&claim) => claimed.unwrap(),
        () = used_up => panic!("the claim goes on after {MANY} looks"),
    };
    assert!(matches!(claimed, Claimed::Busy(_)), "{claimed:?}");
}
