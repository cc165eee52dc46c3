//! Two stores that keep the same records keep every rule together, and also while other nodes ask
//! only one of them.

mod both;

use std::sync::Arc;
use std::time::Duration;

use semel_conformance::{Spans, Subject};
use semel_core::{
    Answer, BoxFuture, Claim, ClaimTerms, Claimed, CrashPolicy, Fence, Fingerprint, Grant,
    Identity, Key, MemoryConfig, MemoryStore, Namespace, Record, Resolution, Resolved, Restored,
    Secret, Settled, Settlement, State, Store as _, StoreAdmin, Token,
};
use semel_stores::compose::Mirror;

use both::Both;

impl Both {
    /// As the neighbouring rollout has them.
    fn turned(&self) -> Mirror {
        Mirror::new(Arc::new(self.new.clone()), Arc::new(self.old.clone()))
    }
}

impl Subject for Both {
    fn store(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.mirror())
    }

    fn another(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.mirror())
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(time);
        Box::pin(tokio::task::yield_now())
    }

    fn spans(&self) -> Spans {
        Spans::FREE
    }

    fn tiny(&self) -> BoxFuture<'_, Option<Arc<dyn StoreAdmin>>> {
        Box::pin(async {
            let tiny = || {
                let config = MemoryConfig::default().with_capacity(3);
                Arc::new(MemoryStore::new(config, self.clock.clone())) as Arc<dyn StoreAdmin>
            };
            Some(Arc::new(Mirror::new(tiny(), tiny())) as Arc<dyn StoreAdmin>)
        })
    }
}

semel_conformance::conformance_tests!(mirror, async || Both::new());

const LEASE: Duration = Duration::from_secs(30);

fn claim(key: &str, token: u128, crash: CrashPolicy) -> Claim {
    let (secret, key) = (Secret::none(), Key::parse(key).expect("a key"));
    let namespace = Namespace::new("test", "acme", "charge").expect("a namespace");
    Claim {
        retry: false,
        identity: Identity::new(&secret, &namespace, &key),
        fingerprint: Fingerprint::builder(&secret).part(b"payload").finish(),
        token: Token(token),
        terms: ClaimTerms::new(LEASE, LEASE * 100, crash, 5).expect("terms"),
        secret_id: 0,
        namespace,
        hint: key.hint(),
    }
}

fn done(text: &'static str) -> Settlement {
    Settlement::Complete(Arc::new(Answer::from_body(text)))
}

fn won(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Won(grant) => grant,
        other => panic!("{other:?}"),
    }
}

fn replayed(claimed: &Claimed, text: &'static str) -> bool {
    matches!(claimed, Claimed::Replay(replay) if *replay.answer == Answer::from_body(text))
}

#[tokio::test]
async fn nodes_that_ask_only_one_of_them_never_win_beside_it() {
    let both = Both::new();
    let (first, second) = (
        claim("k", 1, CrashPolicy::Takeover),
        claim("k", 2, CrashPolicy::Takeover),
    );
    // A node of the rollout before, and one of the rollout after, find what the mirror claimed.
    let grant = won(both.mirror().claim(&first).await.unwrap());
    for store in [&both.old, &both.new] {
        assert!(matches!(
            store.claim(&second).await.unwrap(),
            Claimed::Busy(_)
        ));
    }
    assert!(matches!(
        both.turned().claim(&second).await.unwrap(),
        Claimed::Busy(_)
    ));
    assert_eq!(
        both.mirror().settle(&grant, &done("a")).await.unwrap(),
        Settled::Done
    );
    for store in [&both.old, &both.new] {
        assert!(replayed(&store.claim(&second).await.unwrap(), "a"));
    }

    // And the mirror finds what they claimed, whichever they ask.
    for (key, store) in [("l", &both.old), ("m", &both.new)] {
        let (first, second) = (
            claim(key, 1, CrashPolicy::Hold),
            claim(key, 2, CrashPolicy::Hold),
        );
        let grant = won(store.claim(&first).await.unwrap());
        for mirror in [both.mirror(), both.turned()] {
            assert!(matches!(
                mirror.claim(&second).await.unwrap(),
                Claimed::Busy(_)
            ));
        }
        store.settle(&grant, &done("b")).await.unwrap();
        for mirror in [both.mirror(), both.turned()] {
            assert!(replayed(&mirror.claim(&second).await.unwrap(), "b"));
        }
    }
}

#[tokio::test]
async fn claim_refused_by_one_store_is_released_in_the_other() {
    let both = Both::new();
    let (first, second) = (
        claim("k", 1, CrashPolicy::Hold),
        claim("k", 2, CrashPolicy::Hold),
    );
    let grant = won(both.new.claim(&first).await.unwrap());
    assert!(matches!(
        both.mirror().claim(&second).await.unwrap(),
        Claimed::Busy(_)
    ));
    both.new.settle(&grant, &Settlement::Release).await.unwrap();
    // Under hold a lease left behind would be in doubt: nothing was left behind.
    both.clock.advance(LEASE * 2);
    won(both.mirror().claim(&second).await.unwrap());
}

#[tokio::test]
async fn an_owner_that_died_between_two_settlements_is_believed() {
    for crash in [CrashPolicy::Takeover, CrashPolicy::Hold] {
        let both = Both::new();
        let ask = claim("k", 1, crash);
        won(both.mirror().claim(&ask).await.unwrap());
        // It reached the old store, which is first, and not the new one.
        let fence = both.old.read(&ask.identity).await.unwrap().unwrap().fence;
        let mine = won(both.old.claim(&ask).await.unwrap()).with_fence(fence);
        both.old.settle(&mine, &done("a")).await.unwrap();
        both.clock.advance(LEASE * 2);
        // The next rollout asks the new one first: there the lease has lapsed.
        let other = claim("k", 2, crash);
        let told = both.turned().claim(&other).await.unwrap();
        assert!(replayed(&told, "a"), "{crash:?}: {told:?}");
        // From here on the new one knows by itself.
        let told = both.new.claim(&other).await.unwrap();
        assert!(replayed(&told, "a"), "{crash:?}: {told:?}");
    }
}

#[tokio::test]
async fn a_lease_that_comes_back_without_its_memo_is_as_good() {
    let both = Both::new();
    let ask = claim("k", 1, CrashPolicy::Hold);
    // The stores' fences differ: the new one has seen the key before.
    let earlier = claim("k", 9, CrashPolicy::Hold);
    let grant = won(both.new.claim(&earlier).await.unwrap());
    both.new.settle(&grant, &Settlement::Release).await.unwrap();
    let grant = won(both.mirror().claim(&ask).await.unwrap());
    let bare = grant.clone().with_memo(bytes::Bytes::new());
    assert_ne!(
        both.new.read(&ask.identity).await.unwrap().unwrap().fence,
        grant.fence
    );
    assert_eq!(
        both.mirror().settle(&bare, &done("a")).await.unwrap(),
        Settled::Done
    );
    for store in [&both.old, &both.new] {
        assert!(replayed(&store.claim(&earlier).await.unwrap(), "a"));
    }
}

#[tokio::test]
async fn a_doubt_is_one_in_both_and_is_resolved_in_both() {
    let both = Both::new();
    let (first, second) = (
        claim("k", 1, CrashPolicy::Hold),
        claim("k", 2, CrashPolicy::Hold),
    );
    // A node of the last rollout died: only the new store knows.
    won(both.new.claim(&first).await.unwrap());
    both.clock.advance(LEASE * 2);
    let Claimed::InDoubt(doubt) = both.mirror().claim(&second).await.unwrap() else {
        panic!("no doubt");
    };
    let end = Resolution::Complete(Arc::new(Answer::from_body("looked it up")));
    let resolved = both
        .mirror()
        .resolve(&first.identity, doubt.fence, &end)
        .await;
    assert_eq!(resolved.unwrap(), Resolved::Done);
    for store in [&both.old, &both.new] {
        assert!(replayed(
            &store.claim(&second).await.unwrap(),
            "looked it up"
        ));
    }
    let again = both.mirror().resolve(&first.identity, Fence(1), &end).await;
    assert_eq!(again.unwrap(), Resolved::NotInDoubt);
}

#[tokio::test]
async fn a_record_is_restored_in_both() {
    let both = Both::new();
    let ask = claim("k", 1, CrashPolicy::Hold);
    let grant = won(both.old.claim(&ask).await.unwrap());
    both.old.settle(&grant, &done("a")).await.unwrap();
    let record: Record = both.old.read(&ask.identity).await.unwrap().unwrap();
    let empty = Both::new();
    let restored = empty
        .mirror()
        .restore(&ask.identity, &record)
        .await
        .unwrap();
    assert_eq!(restored, Restored::Written);
    for store in [&empty.old, &empty.new] {
        let found = store.read(&ask.identity).await.unwrap().unwrap();
        assert_eq!(
            (found.state, found.created_at),
            (State::Completed, record.created_at)
        );
    }
}
