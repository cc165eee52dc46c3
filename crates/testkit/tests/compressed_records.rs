//! Compressed answers (P51): every rule holds, with processes of both settings on the same records.

use std::sync::Arc;
use std::time::Duration;

use semel_conformance::clock::FakeClock;
use semel_conformance::{MemorySubject, Spans, Subject};
use semel_core::{
    Answer, AnswerBody, BoxFuture, Claim, ClaimTerms, Claimed, CrashPolicy, Fingerprint, Grant,
    Identity, Key, MemoryConfig, MemoryStore, Namespace, Record, RecordError, Resolution, Resolved,
    Secret, Settled, Settlement, State, Store as _, StoreAdmin, StoreErrorKind, Token,
};
use semel_stores::compressed::CompressedStore;
use semel_stores::encrypted::{EncryptedStore, EncryptionKey, Keyring, SharedKeyring, WriteKey};

/// One process compresses, the other only reads.
struct Mixed(MemorySubject);

impl Subject for Mixed {
    fn store(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(CompressedStore::new(self.0.store(), true))
    }

    fn another(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(CompressedStore::new(self.0.another(), false))
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.0.pass(time)
    }

    fn spans(&self) -> Spans {
        self.0.spans()
    }

    fn tiny(&self) -> BoxFuture<'_, Option<Arc<dyn StoreAdmin>>> {
        Box::pin(async {
            let tiny = self.0.tiny().await?;
            Some(Arc::new(CompressedStore::new(tiny, true)) as Arc<dyn StoreAdmin>)
        })
    }
}

semel_conformance::conformance_tests!(compressed, async || Mixed(MemorySubject::new()));

/// The same records: as they are, and as processes with and without the setting see them.
struct Stores {
    bare: Arc<dyn StoreAdmin>,
    packing: CompressedStore,
    plain: CompressedStore,
}

fn stores() -> Stores {
    let clock = Arc::new(FakeClock::new());
    over(Arc::new(MemoryStore::new(MemoryConfig::default(), clock)))
}

fn over(bare: Arc<dyn StoreAdmin>) -> Stores {
    Stores {
        packing: CompressedStore::new(Arc::clone(&bare), true),
        plain: CompressedStore::new(Arc::clone(&bare), false),
        bare,
    }
}

fn claim(token: u128) -> Claim {
    let (secret, key) = (Secret::none(), Key::parse("k").expect("a key"));
    let namespace = Namespace::new("test", "acme", "charge").expect("a namespace");
    let lease = Duration::from_secs(30);
    Claim {
        retry: false,
        identity: Identity::new(&secret, &namespace, &key),
        fingerprint: Fingerprint::builder(&secret).part(b"payload").finish(),
        token: Token(token),
        terms: ClaimTerms::new(lease, lease * 100, CrashPolicy::Takeover, 2).expect("terms"),
        secret_id: 0,
        namespace,
        hint: key.hint(),
    }
}

fn answer(text: &str) -> Arc<Answer> {
    Arc::new(Answer {
        head: "head".into(),
        body: AnswerBody::Kept(text.repeat(400).into()),
    })
}

async fn won(store: &CompressedStore) -> Grant {
    match store.claim(&claim(1)).await.expect("an answer") {
        Claimed::Won(grant) => grant,
        other => panic!("expected a lease, got {other:?}"),
    }
}

async fn replayed(store: &CompressedStore) -> Arc<Answer> {
    match store.claim(&claim(2)).await.expect("an answer") {
        Claimed::Replay(replay) => replay.answer,
        other => panic!("expected a replay, got {other:?}"),
    }
}

async fn raw(stores: &Stores) -> Record {
    let found = stores.bare.read(&claim(1).identity).await;
    found.expect("an answer").expect("a record")
}

#[tokio::test]
async fn p51_every_process_replays_what_was_compressed() {
    let stores = stores();
    let (lease, answer) = (won(&stores.packing).await, answer("{\"a\":1}"));
    let how = Settlement::Complete(Arc::clone(&answer));
    let settled = stores.packing.settle(&lease, &how).await;
    assert_eq!(settled.expect("an answer"), Settled::Done);
    let packed = raw(&stores).await;
    assert!(packed.encode().len() < 300, "{}", packed.encode().len());
    let stored = packed.answer.expect("an answer");
    assert_ne!(stored, answer);
    for store in [&stores.packing, &stores.plain] {
        assert_eq!(replayed(store).await, answer);
        let read = store.read(&lease.identity).await.expect("an answer");
        assert_eq!(read.and_then(|record| record.answer), Some(answer.clone()));
        let page = store.list(&Default::default()).await.expect("a page");
        assert_eq!(page.records[0].1.answer, Some(answer.clone()));
    }
}

#[tokio::test]
async fn p51_a_settlement_sent_again_under_another_setting_is_recognised() {
    for packs_first in [true, false] {
        let stores = stores();
        let both = [&stores.packing, &stores.plain];
        let [first, second] = if packs_first {
            both
        } else {
            [both[1], both[0]]
        };
        let lease = won(first).await;
        let how = Settlement::Fail(answer("declined"));
        for store in [first, second, first] {
            let settled = store.settle(&lease, &how).await;
            assert_eq!(settled.expect("an answer"), Settled::Done);
        }
        for other in [
            Settlement::Fail(answer("accepted")),
            Settlement::Complete(answer("declined")),
        ] {
            let settled = second.settle(&lease, &other).await;
            assert_eq!(settled.expect("an answer"), Settled::Lost);
        }
    }
}

#[tokio::test]
async fn p51_a_resolution_too() {
    let stores = stores();
    let lease = won(&stores.packing).await;
    let doubted = stores.packing.settle(&lease, &Settlement::Doubt).await;
    assert_eq!(doubted.expect("an answer"), Settled::Done);
    let how = Resolution::Complete(answer("found"));
    for store in [&stores.packing, &stores.plain] {
        let resolved = store.resolve(&lease.identity, lease.fence, &how).await;
        assert_eq!(resolved.expect("an answer"), Resolved::Done);
    }
    let other = Resolution::Complete(answer("lost"));
    let resolved = stores.plain.resolve(&lease.identity, lease.fence, &other);
    assert_eq!(resolved.await.expect("an answer"), Resolved::NotInDoubt);
    assert_eq!(raw(&stores).await.state, State::Completed);
    assert_eq!(replayed(&stores.plain).await, answer("found"));
}

#[tokio::test]
async fn p51_compressed_before_it_is_encrypted() {
    let clock = Arc::new(FakeClock::new());
    let bare: Arc<dyn StoreAdmin> = Arc::new(MemoryStore::new(MemoryConfig::default(), clock));
    let key = EncryptionKey::new(1, &[7; 32]).expect("a key");
    let ring = Keyring::new(vec![key], WriteKey::Newest).expect("a ring");
    let keys = SharedKeyring::new(ring);
    let sealed = EncryptedStore::new(Arc::clone(&bare), keys, true);
    let stores = over(Arc::new(sealed));
    let (lease, answer) = (won(&stores.packing).await, answer("secret"));
    let how = Settlement::Complete(Arc::clone(&answer));
    for store in [&stores.packing, &stores.plain] {
        let settled = store.settle(&lease, &how).await;
        assert_eq!(settled.expect("an answer"), Settled::Done);
        assert_eq!(replayed(store).await, answer);
    }
    let found = bare.read(&lease.identity).await.expect("an answer");
    let packed = found.expect("a record").encode();
    assert!(packed.len() < 400, "{}", packed.len());
    for plain in [&b"secret"[..], b"packed", b"head"] {
        assert!(!packed.windows(plain.len()).any(|bytes| bytes == plain));
    }
}

#[tokio::test]
async fn p51_a_damaged_answer_is_told_and_can_be_reset() {
    let stores = stores();
    let lease = won(&stores.packing).await;
    let damaged = Answer {
        head: b"\xf5packed\x01\xff\xff\xff\xffhead"[..].into(),
        body: AnswerBody::Kept(b"\xf5abc"[..].into()),
    };
    let how = Settlement::Complete(damaged.into());
    let settled = stores.bare.settle(&lease, &how);
    assert_eq!(settled.await.expect("an answer"), Settled::Done);
    let error = stores.plain.claim(&claim(2)).await.expect_err("damaged");
    assert_eq!(error.kind, StoreErrorKind::Record);
    let shown = stores.plain.read(&lease.identity).await.expect("an answer");
    let reason = shown.expect("a record").locked();
    assert!(matches!(reason, Some(RecordError::Malformed(_))));
    assert!(
        stores
            .plain
            .delete(&lease.identity)
            .await
            .expect("an answer")
    );
}
