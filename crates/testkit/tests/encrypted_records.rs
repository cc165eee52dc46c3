//! Encrypted records in the hands of operators and copies: what has no key can still be ended, and
//! what two stores have encrypted is compared by what it says (P43, P46, P47).

use std::sync::Arc;
use std::time::Duration;

use semel_conformance::clock::{FakeClock, env};
use semel_core::engine::{Engine, OperatorOutcome, Unlock};
use semel_core::store::Query;
use semel_core::{
    Answer, AnswerBody, Claim, ClaimTerms, Claimed, CrashPolicy, Fingerprint, Grant, Identity, Key,
    MemoryConfig, MemoryStore, Namespace, Record, RecordError, Resolution, Restored, Secret,
    Settled, Settlement, State, Store as _, StoreAdmin, Token,
};
use semel_stores::compose::Mirror;
use semel_stores::compose::copy::{CopyMode, CopyOutcome, copy_record};
use semel_stores::encrypted::{EncryptedStore, EncryptionKey, Keyring, SharedKeyring, WriteKey};

const LEASE: Duration = Duration::from_secs(30);

fn ring(ids: &[u32]) -> Keyring {
    let keys = ids.iter().map(|id| {
        let material = [u8::try_from(*id).expect("a small id"); 32];
        EncryptionKey::new(*id, &material).expect("a key")
    });
    Keyring::new(keys.collect(), WriteKey::Newest).expect("a ring")
}

fn encrypted(store: &Arc<dyn StoreAdmin>, ids: &[u32]) -> Arc<dyn StoreAdmin> {
    Arc::new(EncryptedStore::new(
        Arc::clone(store),
        SharedKeyring::new(ring(ids)),
        true,
    ))
}

fn memory(clock: &FakeClock) -> Arc<dyn StoreAdmin> {
    Arc::new(MemoryStore::new(
        MemoryConfig::default(),
        Arc::new(clock.clone()),
    ))
}

fn claim(name: &str, token: u128) -> Claim {
    let (secret, key) = (Secret::none(), Key::parse(name).expect("a key"));
    let namespace = Namespace::new("test", "acme", "charge").expect("a namespace");
    Claim {
        retry: false,
        identity: Identity::new(&secret, &namespace, &key),
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

async fn run(store: &dyn StoreAdmin, name: &str, settlement: Option<Settlement>) -> Grant {
    let grant = won(store.claim(&claim(name, 1)).await.expect("an answer"));
    let checkpoint = bytes::Bytes::from_static(b"half");
    store
        .renew(&grant, Some(&checkpoint))
        .await
        .expect("an answer");
    if let Some(settlement) = settlement {
        let settled = store.settle(&grant, &settlement).await;
        assert_eq!(settled.expect("an answer"), Settled::Done);
    }
    grant
}

async fn found(store: &dyn StoreAdmin, name: &str) -> Record {
    let found = store.read(&claim(name, 1).identity).await;
    found.expect("an answer").expect("a record")
}

/// The engine of a node that has lost key 1.
fn engine(store: &Arc<dyn StoreAdmin>) -> Engine {
    Engine::new(Arc::new(Arc::clone(store)), env(&FakeClock::new(), 1))
}

#[tokio::test]
async fn records_without_their_key_are_listed_and_say_so() {
    let bare = memory(&FakeClock::new());
    run(&*encrypted(&bare, &[1]), "doubt", Some(Settlement::Doubt)).await;
    run(&*encrypted(&bare, &[1]), "done", Some(done("a"))).await;
    run(&*encrypted(&bare, &[2]), "ours", Some(done("b"))).await;
    let page = encrypted(&bare, &[2]).list(&Query::default()).await;
    let page = page.expect("a page");
    assert_eq!(page.unreadable, 0);
    let locked = page.records.iter().map(|(_, record)| record.locked());
    let locked = locked.collect::<Vec<_>>();
    let missing = Some(RecordError::NoKey(1));
    assert_eq!(locked.iter().filter(|one| **one == missing).count(), 2);
    assert_eq!(locked.iter().filter(|one| one.is_none()).count(), 1);
    for (_, record) in page
        .records
        .into_iter()
        .filter(|(_, record)| record.locked().is_some())
    {
        // Neither decrypted nor encrypted content is shown, and none of it is written anywhere.
        assert!(record.checkpoint.len() < 24 && record.into_readable().is_err());
    }
}

#[tokio::test]
async fn records_without_their_key_are_resolved_unlocked_and_reset() {
    let bare = memory(&FakeClock::new());
    let lost = encrypted(&bare, &[1]);
    let doubt = run(&*lost, "doubt", Some(Settlement::Doubt)).await;
    let held = run(&*lost, "held", None).await;
    let old = run(&*lost, "done", Some(done("a"))).await;
    let store = encrypted(&bare, &[2]);
    let engine = engine(&store);
    // Nobody is answered from such a record (P46).
    engine.read(&doubt.identity).await.expect_err("no key");
    let seen = engine.inspect(&doubt.identity).await.expect("an answer");
    assert_eq!(
        seen.expect("a record").locked(),
        Some(RecordError::NoKey(1))
    );

    let answer = Resolution::Complete(Arc::new(Answer::from_body("resolved")));
    let resolved = engine.resolve(&doubt.identity, doubt.fence, &answer).await;
    assert!(
        matches!(resolved, Ok(OperatorOutcome::Done { .. })),
        "{resolved:?}"
    );
    let told = store.claim(&claim("doubt", 2)).await.expect("an answer");
    assert!(
        matches!(told, Claimed::Replay(replay) if replay.answer.body == AnswerBody::Kept("resolved".into()))
    );

    let unlocked = engine
        .unlock(&held.identity, held.fence, Unlock::Doubt)
        .await;
    assert!(
        matches!(unlocked, Ok(OperatorOutcome::Done { .. })),
        "{unlocked:?}"
    );
    assert_eq!(found(&*bare, "held").await.state, State::InDoubt);

    let reset = engine.reset(&store, &old.identity, old.fence).await;
    assert!(
        matches!(reset, Ok(OperatorOutcome::Done { .. })),
        "{reset:?}"
    );
    won(store.claim(&claim("done", 3)).await.expect("an answer"));
}

/// Two stores that a fleet writes to at once.
struct Pair {
    old: Arc<dyn StoreAdmin>,
    new: Arc<dyn StoreAdmin>,
}

impl Pair {
    fn new() -> Self {
        let clock = FakeClock::new();
        Self {
            old: memory(&clock),
            new: memory(&clock),
        }
    }

    async fn copied(&self, name: &str, keys: &Keyring) -> CopyOutcome {
        let record = found(&*self.old, name).await;
        let clocks = (
            self.old.now().await.expect("a time"),
            self.new.now().await.expect("a time"),
        );
        let identity = claim(name, 1).identity;
        let mode = CopyMode::Comparing;
        let outcome = copy_record(&*self.new, mode, &identity, &record, clocks, keys).await;
        outcome.expect("an answer")
    }

    /// Lets the fences of a key in one store run ahead of the other's, and of the clock.
    async fn advance_fence(store: &Arc<dyn StoreAdmin>, name: &str) {
        for token in 90..93 {
            let grant = won(store.claim(&claim(name, token)).await.expect("an answer"));
            let released = store.settle(&grant, &Settlement::Release).await;
            assert_eq!(released.expect("an answer"), Settled::Done);
        }
    }
}

#[tokio::test]
async fn what_both_stores_have_encrypted_is_compared_by_its_text() {
    let pair = Pair::new();
    Pair::advance_fence(&pair.new, "k").await;
    let both = Mirror::new(encrypted(&pair.old, &[1]), encrypted(&pair.new, &[1]));
    run(&both, "k", Some(done("a"))).await;
    assert_ne!(
        found(&*pair.old, "k").await.answer,
        found(&*pair.new, "k").await.answer,
        "encrypted under fences of their own"
    );
    assert_eq!(pair.copied("k", &ring(&[1])).await, CopyOutcome::Present);
    assert_eq!(pair.copied("k", &ring(&[2])).await, CopyOutcome::Unreadable);
    // Another answer is still a conflict.
    let other = encrypted(&pair.new, &[1]);
    assert!(
        pair.new
            .delete(&claim("k", 1).identity)
            .await
            .expect("an answer")
    );
    run(&*other, "k", Some(done("b"))).await;
    assert_eq!(pair.copied("k", &ring(&[1])).await, CopyOutcome::Conflict);
}

/// The owner settled in the first store and crashed before it settled in the second, whose fence is
/// smaller.
#[tokio::test]
async fn an_answer_settled_in_the_target_can_be_read_there() {
    let pair = Pair::new();
    Pair::advance_fence(&pair.old, "k").await;
    let (old, new) = (encrypted(&pair.old, &[1]), encrypted(&pair.new, &[1]));
    run(&*new, "k", None).await;
    run(&*old, "k", Some(done("a"))).await;
    let (settled, open) = (found(&*pair.old, "k").await, found(&*pair.new, "k").await);
    assert!(settled.fence > open.fence, "{settled:?} {open:?}");
    assert_eq!(pair.copied("k", &ring(&[2])).await, CopyOutcome::Unreadable);
    assert_eq!(found(&*pair.new, "k").await, open);
    assert_eq!(pair.copied("k", &ring(&[1])).await, CopyOutcome::Repaired);
    let told = new.claim(&claim("k", 2)).await.expect("readable");
    assert!(matches!(told, Claimed::Replay(replay) if *replay.answer == Answer::from_body("a")));
    assert_eq!(pair.copied("k", &ring(&[1])).await, CopyOutcome::Present);
}

/// Somebody who can write the store adds or changes records that have no encrypted field.
#[tokio::test]
async fn forged_and_stripped_answers_are_refused() {
    let clock = FakeClock::new();
    let bare = memory(&clock);
    let store = encrypted(&bare, &[1]);
    for body in [
        AnswerBody::Omitted { bytes: 5 },
        AnswerBody::Kept(bytes::Bytes::new()),
        AnswerBody::External {
            bytes: 5,
            digest: [7; 32],
        },
    ] {
        let identity = claim("k", 1).identity;
        bare.delete(&identity).await.expect("an answer");
        run(&*store, "k", Some(done("a"))).await;
        let genuine = found(&*bare, "k").await;
        let sealed = genuine.answer.clone().expect("an answer");
        for (head, reason) in [
            (bytes::Bytes::new(), RecordError::Plain),
            (sealed.head.clone(), RecordError::NotAuthentic),
        ] {
            let body = body.clone();
            let forged = Record {
                answer: Some(Arc::new(Answer { head, body })),
                ..genuine.clone()
            };
            assert!(bare.delete(&identity).await.expect("an answer"));
            let written = bare.restore(&identity, &forged).await.expect("an answer");
            assert_eq!(written, Restored::Written);
            store.claim(&claim("k", 2)).await.expect_err("forged");
            assert_eq!(found(&*store, "k").await.locked(), Some(reason));
        }
    }
}
