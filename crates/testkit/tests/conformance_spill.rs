//! A store whose large bodies lie elsewhere keeps every rule, and promises no less where the
//! bodies' store fails.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use semel_conformance::clock::FakeClock;
use semel_conformance::{Spans, Subject};
use semel_core::{
    Answer, AnswerBody, BoxFuture, Certainty, Claim, ClaimTerms, Claimed, CrashPolicy, Digest,
    Fingerprint, Grant, Identity, Key, MemoryConfig, MemoryStore, Namespace, Secret, Settled,
    Settlement, Store as _, StoreAdmin, StoreError, StoreErrorKind, StoreResult, Token,
};
use semel_stores::compose::{BodyStore, Spill};
use semel_stores::encrypted::{EncryptedStore, EncryptionKey, Keyring, SharedKeyring, WriteKey};
use semel_testkit::faulty::{CallKind, Fault, FaultyStore};

/// Bodies in this process's memory, from which a test may take them, and which it may stop.
#[derive(Default)]
struct Shelf {
    bodies: Mutex<HashMap<(Identity, Digest), Bytes>>,
    is_down: AtomicBool,
    hangs: AtomicBool,
}

impl Shelf {
    async fn reached(&self) -> StoreResult<()> {
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.is_down.load(Ordering::Relaxed) {
            let (kind, certainty) = (StoreErrorKind::Unavailable, Certainty::Definite);
            return Err(StoreError::new(kind, certainty, "down"));
        }
        Ok(())
    }
}

impl BodyStore for Shelf {
    fn put<'a>(
        &'a self,
        identity: &'a Identity,
        digest: &'a Digest,
        body: Bytes,
    ) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            self.reached().await?;
            self.bodies.lock().insert((*identity, *digest), body);
            Ok(())
        })
    }

    fn get<'a>(
        &'a self,
        identity: &'a Identity,
        digest: &'a Digest,
    ) -> BoxFuture<'a, StoreResult<Option<Bytes>>> {
        Box::pin(async move {
            self.reached().await?;
            Ok(self.bodies.lock().get(&(*identity, *digest)).cloned())
        })
    }

    fn forget<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            self.reached().await?;
            self.bodies.lock().retain(|(of, _), _| of != identity);
            Ok(())
        })
    }
}

struct Shelved {
    clock: Arc<FakeClock>,
    records: MemoryStore,
    shelf: Arc<Shelf>,
}

impl Shelved {
    fn new() -> Self {
        let clock = Arc::new(FakeClock::new());
        let records = MemoryStore::new(MemoryConfig::default(), clock.clone());
        let shelf = Arc::default();
        Self {
            clock,
            records,
            shelf,
        }
    }

    /// Bodies of more than two bytes lie on the shelf: nearly all that the suite has.
    fn over(&self, records: MemoryStore) -> Spill {
        let shelf = Arc::clone(&self.shelf);
        Spill::new(Arc::new(records), shelf, 2, self.clock.clone())
    }

    fn spill(&self) -> Spill {
        self.over(self.records.clone())
    }

    fn shelved(&self) -> usize {
        self.shelf.bodies.lock().len()
    }

    /// Runs `key` to its end with this answer.
    async fn done(&self, key: &str, answer: &'static str) -> Claim {
        let claim = claim(key);
        let Ok(Claimed::Won(lease)) = self.spill().claim(&claim).await else {
            panic!("{key} is new");
        };
        let settlement = Settlement::Complete(Arc::new(Answer::from_body(answer)));
        let settled = self.spill().settle(&lease, &settlement).await;
        assert_eq!(settled.expect("an answer"), Settled::Done);
        claim
    }

    async fn replayed(&self, claim: &Claim) -> AnswerBody {
        match self.spill().claim(claim).await {
            Ok(Claimed::Replay(replay)) => replay.answer.body.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// As the record itself has it.
    async fn kept(&self, claim: &Claim) -> AnswerBody {
        let record = self.records.read(&claim.identity).await.expect("an answer");
        let answer = record.expect("a record").answer;
        answer.expect("an answer").body.clone()
    }
}

impl Subject for Shelved {
    fn store(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.spill())
    }

    fn another(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.spill())
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(time);
        Box::pin(tokio::task::yield_now())
    }

    fn spans(&self) -> Spans {
        Spans::FREE
    }

    fn tiny(&self) -> BoxFuture<'_, Option<Arc<dyn StoreAdmin>>> {
        let tiny = MemoryStore::new(MemoryConfig::default().with_capacity(3), self.clock.clone());
        let tiny = Arc::new(self.over(tiny)) as Arc<dyn StoreAdmin>;
        Box::pin(async { Some(tiny) })
    }
}

semel_conformance::conformance_tests!(spill, async || Shelved::new());

fn claim(key: &str) -> Claim {
    let (secret, key) = (Secret::none(), Key::parse(key).expect("a key"));
    let namespace = Namespace::new("test", "acme", "charge").expect("a namespace");
    let (lease, retention) = (Duration::from_secs(30), Duration::from_secs(3_000));
    Claim {
        retry: false,
        identity: Identity::new(&secret, &namespace, &key),
        fingerprint: Fingerprint::builder(&secret).part(b"payload").finish(),
        token: Token(7),
        terms: ClaimTerms::new(lease, retention, CrashPolicy::Takeover, 5).expect("terms"),
        secret_id: 0,
        namespace,
        hint: key.hint(),
    }
}

#[tokio::test]
async fn large_body_is_spilled_and_small_body_stays_in_the_record() {
    let shelved = Shelved::new();
    let (large, small) = (
        shelved.done("large", "large").await,
        shelved.done("small", "s").await,
    );
    assert!(matches!(
        shelved.kept(&large).await,
        AnswerBody::External { bytes: 5, .. }
    ));
    assert_eq!(shelved.kept(&small).await, AnswerBody::Kept("s".into()));
    assert_eq!(shelved.shelved(), 1);
    assert_eq!(
        shelved.replayed(&large).await,
        AnswerBody::Kept("large".into())
    );
    assert_eq!(shelved.replayed(&small).await, AnswerBody::Kept("s".into()));
}

#[tokio::test]
async fn unavailable_body_store_leaves_the_body_in_the_record() {
    let shelved = Shelved::new();
    shelved.shelf.is_down.store(true, Ordering::Relaxed);
    let claim = shelved.done("k", "large").await;
    assert_eq!(shelved.kept(&claim).await, AnswerBody::Kept("large".into()));
    assert_eq!(
        shelved.replayed(&claim).await,
        AnswerBody::Kept("large".into())
    );
}

#[tokio::test]
async fn hanging_body_store_is_bounded_by_the_call_limit() {
    let shelved = Shelved::new();
    shelved.shelf.hangs.store(true, Ordering::Relaxed);
    let clock = shelved.clock.clone();
    let passing = tokio::spawn(async move {
        for _ in 0..100 {
            tokio::task::yield_now().await;
            clock.advance(Duration::from_millis(40));
        }
    });
    let claim = shelved.done("k", "large").await;
    passing.await.expect("time passes");
    assert_eq!(shelved.kept(&claim).await, AnswerBody::Kept("large".into()));
}

#[tokio::test]
async fn a_body_that_does_not_come_frees_no_key() {
    let shelved = Shelved::new();
    let claim = shelved.done("k", "large").await;
    shelved.shelf.is_down.store(true, Ordering::Relaxed);
    let error = shelved.spill().claim(&claim).await.expect_err("no body");
    // The kind that lets nothing run, whatever the policy says of a store that is down (P35, P44),
    // and is worth asking again.
    assert_eq!(error.kind, StoreErrorKind::Body);
    shelved.shelf.is_down.store(false, Ordering::Relaxed);
    assert_eq!(
        shelved.replayed(&claim).await,
        AnswerBody::Kept("large".into())
    );
}

#[tokio::test]
async fn lost_or_changed_body_is_never_replayed() {
    let shelved = Shelved::new();
    let (lost, changed) = (
        shelved.done("a", "large").await,
        shelved.done("b", "large").await,
    );
    for ((identity, _), body) in shelved.shelf.bodies.lock().iter_mut() {
        if *identity == changed.identity {
            *body = Bytes::from_static(b"larGe");
        }
    }
    let gone = |(of, _): &(Identity, Digest), _: &mut Bytes| *of != lost.identity;
    shelved.shelf.bodies.lock().retain(gone);
    for claim in [&lost, &changed] {
        assert_eq!(
            shelved.replayed(claim).await,
            AnswerBody::Omitted { bytes: 5 }
        );
    }
}

#[tokio::test]
async fn what_is_deleted_is_deleted_there_too() {
    let shelved = Shelved::new();
    let (erased, other) = (
        shelved.done("a", "large").await,
        shelved.done("b", "large").await,
    );
    assert!(
        shelved
            .spill()
            .delete(&erased.identity)
            .await
            .expect("deleted")
    );
    assert_eq!(shelved.shelved(), 1);
    assert_eq!(
        shelved.replayed(&other).await,
        AnswerBody::Kept("large".into())
    );
}

/// The reply to a settlement is lost, and the shelf goes down, or comes back, before it is sent
/// again.
#[tokio::test]
async fn repeated_settlement_is_done_wherever_its_body_is() {
    for down_at_first in [false, true] {
        let shelved = Shelved::new();
        let Ok(Claimed::Won(lease)) = shelved.spill().claim(&claim("k")).await else {
            panic!("it is new");
        };
        let settlement = Settlement::Complete(Arc::new(Answer::from_body("large")));
        for down in [down_at_first, !down_at_first] {
            shelved.shelf.is_down.store(down, Ordering::Relaxed);
            // A node each: what one knows of the shelf is not known to the other.
            let settled = shelved.spill().settle(&lease, &settlement).await;
            assert_eq!(settled.expect("an answer"), Settled::Done);
        }
        let other = Settlement::Complete(Arc::new(Answer::from_body("another")));
        let settled = shelved.spill().settle(&lease, &other).await;
        assert_eq!(settled.expect("an answer"), Settled::Lost);
        shelved.shelf.is_down.store(false, Ordering::Relaxed);
        assert_eq!(
            shelved.replayed(&claim("k")).await,
            AnswerBody::Kept("large".into())
        );
    }
}

/// The shelf gets an encrypted body. One that is gone is told as not kept (P44), by a node that has
/// the shelf.
#[tokio::test]
async fn encrypted_bodies_lie_on_the_shelf() {
    let shelved = Shelved::new();
    let key = EncryptionKey::new(1, &[7; 32]).expect("a key");
    let ring = Keyring::new(vec![key], WriteKey::Newest).expect("a ring");
    let keys = SharedKeyring::new(ring);
    let over = |store: Arc<dyn StoreAdmin>| EncryptedStore::new(store, keys.clone(), true);
    let store = over(Arc::new(shelved.spill())).with_body_store();
    let claim = claim("k");
    let Ok(Claimed::Won(lease)) = store.claim(&claim).await else {
        panic!("the key is new");
    };
    let settlement = Settlement::Complete(Arc::new(Answer::from_body("a large answer")));
    let settled = store.settle(&lease, &settlement).await;
    assert_eq!(settled.expect("an answer"), Settled::Done);
    let told = async || match store.claim(&claim).await {
        Ok(Claimed::Replay(replay)) => replay.answer.body.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(told().await, AnswerBody::Kept("a large answer".into()));
    let kept = shelved
        .shelf
        .bodies
        .lock()
        .values()
        .cloned()
        .collect::<Vec<_>>();
    let is_plain = |body: &Bytes| body.windows(5).any(|part| part == b"large");
    assert!(kept.len() == 1 && !kept.iter().any(is_plain), "{kept:?}");
    shelved.shelf.bodies.lock().clear();
    assert_eq!(told().await, AnswerBody::Omitted { bytes: 14 });
    // Without a shelf, nobody but a forger takes a body out of its record.
    over(Arc::new(shelved.records.clone()))
        .claim(&claim)
        .await
        .expect_err("a body that is not there");
}

#[tokio::test]
async fn deletion_of_bodies_alone_is_reported_as_uncertain() {
    let shelved = Shelved::new();
    let claim = shelved.done("k", "a large answer").await;
    let records = FaultyStore::sound(Arc::new(shelved.records.clone()), shelved.clock.clone());
    records.next(CallKind::Delete, Fault::Refuse);
    let shelf = Arc::clone(&shelved.shelf);
    let spill = Spill::new(Arc::new(records), shelf, 2, shelved.clock.clone());
    let error = spill.delete(&claim.identity).await.unwrap_err();
    assert_eq!(error.certainty, Certainty::Unknown);
    assert_eq!(shelved.shelved(), 0);
}

/// Bodies on a shelf, with a settlement right after the next time that bodies are forgotten.
struct Between {
    shelf: Arc<Shelf>,
    then: Mutex<Option<(Spill, Grant, Settlement)>>,
}

impl BodyStore for Between {
    fn put<'a>(
        &'a self,
        identity: &'a Identity,
        digest: &'a Digest,
        body: Bytes,
    ) -> BoxFuture<'a, StoreResult<()>> {
        self.shelf.put(identity, digest, body)
    }

    fn get<'a>(
        &'a self,
        identity: &'a Identity,
        digest: &'a Digest,
    ) -> BoxFuture<'a, StoreResult<Option<Bytes>>> {
        self.shelf.get(identity, digest)
    }

    fn forget<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            self.shelf.forget(identity).await?;
            let then = self.then.lock().take();
            if let Some((spill, lease, settlement)) = then {
                let settled = spill.settle(&lease, &settlement).await?;
                assert_eq!(settled, Settled::Done);
            }
            Ok(())
        })
    }
}

#[tokio::test]
async fn settlement_during_a_deletion_leaves_no_body() {
    let shelved = Shelved::new();
    let claim = claim("k");
    let Ok(Claimed::Won(lease)) = shelved.spill().claim(&claim).await else {
        panic!("it is new");
    };
    let settlement = Settlement::Complete(Arc::new(Answer::from_body("a large answer")));
    let between = Between {
        shelf: Arc::clone(&shelved.shelf),
        then: Mutex::new(Some((shelved.spill(), lease, settlement))),
    };
    let records = Arc::new(shelved.records.clone());
    let spill = Spill::new(records, Arc::new(between), 2, shelved.clock.clone());
    assert!(spill.delete(&claim.identity).await.expect("deleted"));
    let left = shelved.spill().read(&claim.identity).await;
    assert!(left.expect("an answer").is_none(), "the record is gone");
    assert_eq!(shelved.shelved(), 0);
}

#[tokio::test]
async fn a_deletion_takes_no_body_of_the_keys_next_life() {
    let shelved = Shelved::new();
    let claim = shelved.done("k", "a large answer").await;
    let records = FaultyStore::sound(Arc::new(shelved.records.clone()), shelved.clock.clone());
    // The record is gone at once; whoever deletes it learns that late.
    records.next(CallKind::Delete, Fault::DelayReply(Duration::from_secs(1)));
    let shelf = Arc::clone(&shelved.shelf);
    let spill = Spill::new(Arc::new(records), shelf, 2, shelved.clock.clone());
    let deletes = tokio::spawn(async move { spill.delete(&claim.identity).await });
    while shelved.shelved() > 0 || shelved.clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    let next = shelved.done("k", "another large answer").await;
    shelved.clock.advance(Duration::from_secs(1));
    assert!(deletes.await.expect("no panic").expect("deleted"));
    let kept = AnswerBody::Kept("another large answer".into());
    assert_eq!(shelved.replayed(&next).await, kept);
}
