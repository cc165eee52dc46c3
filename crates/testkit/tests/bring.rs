//! A record that is brought from one store to another while requests go on (P43): what a late copy
//! left is mended.

mod both;

use std::sync::Arc;
use std::time::Duration;

use semel_core::{
    Answer, Claim, ClaimTerms, Claimed, CrashPolicy, Fingerprint, Grant, Key, Namespace, Record,
    Renewed, Secret, Settled, Settlement, Store as _, StoreAdmin as _, Token,
};
use semel_stores::compose::copy::{CopyMode, CopyOutcome, copy_record};
use semel_stores::encrypted::Keyring;

use both::Both;

const LEASE: Duration = Duration::from_secs(30);

impl Both {
    /// What the old store has.
    async fn listed(&self) -> Record {
        let found = self
            .old
            .read(&claim(1).identity)
            .await
            .expect("a store in memory");
        found.expect("a record")
    }

    async fn brought(&self, pass: CopyMode, record: &Record) -> CopyOutcome {
        let clocks = (
            self.old.now().await.expect("a store in memory"),
            self.new.now().await.expect("a store in memory"),
        );
        let identity = claim(1).identity;
        let keys = Keyring::empty();
        let became = copy_record(&self.new, pass, &identity, record, clocks, &keys).await;
        became.expect("a store in memory")
    }
}

fn claim(token: u128) -> Claim {
    let (secret, key) = (Secret::none(), Key::parse("the-key").expect("a key"));
    let namespace = Namespace::new("test", "acme", "charge").expect("a namespace");
    Claim {
        retry: false,
        identity: semel_core::Identity::new(&secret, &namespace, &key),
        fingerprint: Fingerprint::builder(&secret).part(b"payload").finish(),
        token: Token(token),
        terms: ClaimTerms::new(LEASE, LEASE * 100, CrashPolicy::Takeover, 2).expect("terms"),
        secret_id: 0,
        namespace,
        hint: key.hint(),
    }
}

fn won(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Won(grant) => grant,
        other => panic!("{other:?}"),
    }
}

fn done(text: &'static str) -> Settlement {
    Settlement::Complete(Arc::new(Answer::from_body(text)))
}

#[tokio::test]
async fn late_copy_gives_way_to_the_newer_record() {
    let stores = Both::new();
    won(stores.old.claim(&claim(1)).await.unwrap());
    stores.clock.advance(LEASE * 2);
    // Listed while it was lapsed; taken over and settled before the copy was written.
    let listed = stores.listed().await;
    let next = won(stores.old.claim(&claim(2)).await.unwrap());
    stores.old.settle(&next, &done("a")).await.unwrap();
    assert_eq!(
        stores.brought(CopyMode::Copying, &listed).await,
        CopyOutcome::Copied
    );

    let settled = stores.listed().await;
    assert_eq!(
        stores.brought(CopyMode::Comparing, &settled).await,
        CopyOutcome::Repaired
    );
    let told = stores.new.claim(&claim(3)).await.unwrap();
    assert!(matches!(told, Claimed::Replay(replay) if *replay.answer == Answer::from_body("a")));
    let found = stores.new.read(&claim(1).identity).await.unwrap();
    assert_eq!(found.expect("a record").expires_at(), settled.expires_at());
    assert_eq!(
        stores.brought(CopyMode::Comparing, &settled).await,
        CopyOutcome::Present
    );
}

#[tokio::test]
async fn what_somebody_runs_or_wrote_later_is_left_alone() {
    let stores = Both::new();
    let first = won(stores.old.claim(&claim(1)).await.unwrap());
    stores.old.settle(&first, &done("a")).await.unwrap();
    let settled = stores.listed().await;
    stores.clock.advance(LEASE);
    won(stores.new.claim(&claim(2)).await.unwrap());
    assert_eq!(
        stores.brought(CopyMode::Comparing, &settled).await,
        CopyOutcome::Running
    );
    stores.clock.advance(LEASE * 2);
    let before = stores.new.read(&claim(1).identity).await.unwrap();
    assert_eq!(
        stores.brought(CopyMode::Comparing, &settled).await,
        CopyOutcome::Conflict
    );
    assert_eq!(stores.new.read(&claim(1).identity).await.unwrap(), before);
}

#[tokio::test]
async fn reused_key_after_expiry_is_no_conflict() {
    for last in ["a", "b"] {
        let stores = Both::new();
        let first = won(stores.old.claim(&claim(1)).await.unwrap());
        stores.old.settle(&first, &done("a")).await.unwrap();
        let listed = stores.listed().await;
        stores.clock.advance(LEASE * 100);
        let anew = won(stores.new.claim(&claim(2)).await.unwrap());
        assert_eq!(
            stores.brought(CopyMode::Comparing, &listed).await,
            CopyOutcome::Present
        );
        stores.new.settle(&anew, &done(last)).await.unwrap();
        assert_eq!(
            stores.brought(CopyMode::Comparing, &listed).await,
            CopyOutcome::Present
        );
    }
}

/// A claim that came to the new store late: a node of the old one had taken over meanwhile.
#[tokio::test]
async fn copy_waits_for_a_lease_of_the_new_store() {
    let stores = Both::new();
    won(stores.old.claim(&claim(1)).await.unwrap());
    stores.clock.advance(LEASE * 2);
    won(stores.new.claim(&claim(1)).await.unwrap());
    let next = won(stores.old.claim(&claim(2)).await.unwrap());
    stores.old.settle(&next, &done("a")).await.unwrap();
    let settled = stores.listed().await;
    assert_eq!(
        stores.brought(CopyMode::Copying, &settled).await,
        CopyOutcome::Running
    );
    stores.clock.advance(LEASE * 2);
    assert_eq!(
        stores.brought(CopyMode::Comparing, &settled).await,
        CopyOutcome::Repaired
    );
}

/// Given back in the old store, done by another there; given back in the new one only then.
#[tokio::test]
async fn a_record_that_was_given_back_late_is_no_conflict() {
    let stores = Both::new();
    let lease = won(stores.new.claim(&claim(1)).await.unwrap());
    let next = won(stores.old.claim(&claim(2)).await.unwrap());
    stores.old.settle(&next, &done("a")).await.unwrap();
    let settled = stores.listed().await;
    stores.clock.advance(LEASE / 10);
    let released = stores.new.settle(&lease, &Settlement::Release).await;
    assert_eq!(released.unwrap(), Settled::Done);
    assert_eq!(
        stores.brought(CopyMode::Comparing, &settled).await,
        CopyOutcome::Repaired
    );
    let told = stores.new.claim(&claim(3)).await.unwrap();
    assert!(matches!(told, Claimed::Replay(_)), "{told:?}");
}

/// Its owner may be about to renew it, in one store and then in the other.
#[tokio::test]
async fn a_lease_that_both_stores_know_is_left_to_its_owner() {
    let stores = Both::new();
    won(stores.old.claim(&claim(1)).await.unwrap());
    stores.clock.advance(LEASE * 2);
    // The second attempt claims both: in the new store it is the first.
    let second = won(stores.mirror().claim(&claim(2)).await.unwrap());
    stores.clock.advance(LEASE * 2);
    let listed = stores.listed().await;
    let before = stores.new.read(&claim(1).identity).await.unwrap();
    assert_eq!(
        stores.brought(CopyMode::Comparing, &listed).await,
        CopyOutcome::Present
    );
    assert_eq!(stores.new.read(&claim(1).identity).await.unwrap(), before);
    let renewed = stores.mirror().renew(&second, None).await.unwrap();
    assert_eq!(renewed, Renewed::Held);
}

#[tokio::test]
async fn earlier_lease_is_renewed_when_the_second_store_grants_it() {
    let stores = Both::new();
    won(stores.old.claim(&claim(8)).await.unwrap());
    stores.clock.advance(LEASE / 2);
    won(stores.new.claim(&claim(9)).await.unwrap());
    stores.clock.advance(LEASE / 2);
    // Lapsed in the old store, and taken over there; the new one is busy for half a lease more.
    let told = stores.mirror().claim(&claim(1)).await.unwrap();
    assert!(matches!(told, Claimed::Busy(_)), "{told:?}");
    stores.clock.advance(LEASE * 9 / 10);
    // The same request asks again, and counts its lease from here.
    won(stores.mirror().claim(&claim(1)).await.unwrap());
    stores.clock.advance(LEASE * 8 / 10);
    // So a node that has only the old store must not win beside it.
    let told = stores.old.claim(&claim(2)).await.unwrap();
    assert!(matches!(told, Claimed::Busy(_)), "{told:?}");
}
