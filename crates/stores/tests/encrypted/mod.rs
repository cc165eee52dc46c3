//! An encrypted store on a real server: what is written, what is refused, and how keys change (P46,
//! P47).
//!
//! Each test changes the stored record through the store without encryption, as somebody with
//! access to the server would.
#![allow(dead_code, reason = "each store's tests use what they need of it")]

pub(crate) mod data_keys;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::store::{Store, StoreAdmin};
use semel_core::{
    Answer, AnswerBody, Claim, ClaimTerms, Claimed, CrashPolicy, Fingerprint, Grant, Identity, Key,
    Namespace, Record, RecordError, Renewed, Restored, Secret, Settled, Settlement, StoreError,
    StoreErrorKind, Token,
};
use semel_stores::encrypted::{EncryptedStore, EncryptionKey, Keyring, SharedKeyring, WriteKey};

const ANSWER: &str = "the answer that nobody may read";
const CHECKPOINT: &str = "the checkpoint that nobody may read";

/// A key whose material follows from `material`.
pub(crate) fn key(id: u32, material: u8) -> EncryptionKey {
    EncryptionKey::new(id, &[material; 32]).expect("a key")
}

pub(crate) fn ring(keys: Vec<EncryptionKey>) -> SharedKeyring {
    SharedKeyring::new(Keyring::new(keys, WriteKey::Newest).expect("a ring"))
}

pub(crate) fn encrypted(store: &Arc<dyn StoreAdmin>, keys: Vec<EncryptionKey>) -> EncryptedStore {
    EncryptedStore::new(Arc::clone(store), ring(keys), false)
}

fn chance() -> u128 {
    semel::tokio_env().entropy.next_u128()
}

/// A claim of a key that nobody else has.
pub(crate) fn fresh() -> Claim {
    let namespace = Namespace::new("", "", "encrypted").expect("a namespace");
    let key = Key::parse(&format!("k-{:032x}", chance())).expect("a key");
    let (lease, retention) = (Duration::from_secs(60), Duration::from_secs(600));
    Claim {
        retry: false,
        identity: Identity::new(&Secret::none(), &namespace, &key),
        fingerprint: Fingerprint::builder(&Secret::none())
            .part(b"payload")
            .finish(),
        token: Token(chance()),
        terms: ClaimTerms::new(lease, retention, CrashPolicy::Takeover, 5).expect("terms"),
        secret_id: 0,
        hint: key.hint(),
        namespace,
    }
}

fn again(claim: &Claim) -> Claim {
    Claim {
        token: Token(chance()),
        ..claim.clone()
    }
}

fn answer() -> Settlement {
    Settlement::Complete(Arc::new(Answer {
        head: Bytes::from_static(b"201 created"),
        body: AnswerBody::Kept(Bytes::from_static(ANSWER.as_bytes())),
    }))
}

async fn won(store: &dyn StoreAdmin, claim: &Claim) -> Grant {
    match store.claim(claim).await.expect("an answer") {
        Claimed::Won(grant) => grant,
        other => panic!("won was expected: {other:?}"),
    }
}

async fn done(store: &dyn StoreAdmin, claim: &Claim) -> Grant {
    let grant = won(store, claim).await;
    let settled = store.settle(&grant, &answer()).await.expect("an answer");
    assert_eq!(settled, Settled::Done);
    grant
}

/// A record in doubt, with a checkpoint.
async fn doubted(store: &dyn StoreAdmin, claim: &Claim) {
    let grant = won(store, claim).await;
    let checkpoint = Bytes::from_static(CHECKPOINT.as_bytes());
    let renewed = store.renew(&grant, Some(&checkpoint)).await;
    assert_eq!(renewed.expect("an answer"), Renewed::Held);
    let settled = store.settle(&grant, &Settlement::Doubt).await;
    assert_eq!(settled.expect("an answer"), Settled::Done);
}

async fn stored(bare: &Arc<dyn StoreAdmin>, claim: &Claim) -> Record {
    let found = bare.read(&claim.identity).await.expect("an answer");
    found.expect("a record")
}

/// Puts a changed record in the place of the stored one.
async fn tamper(bare: &Arc<dyn StoreAdmin>, claim: &Claim, change: impl FnOnce(&mut Record)) {
    let mut record = stored(bare, claim).await;
    change(&mut record);
    assert!(bare.delete(&claim.identity).await.expect("an answer"));
    let restored = bare.restore(&claim.identity, &record).await;
    assert_eq!(restored.expect("an answer"), Restored::Written);
}

fn cause(error: &StoreError) -> Option<String> {
    std::error::Error::source(error).map(ToString::to_string)
}

/// What a refusal for this reason says.
fn by(why: RecordError) -> Option<String> {
    Some(why.to_string())
}

/// A claim that is refused by name, and changes nothing.
async fn refused(
    store: &EncryptedStore,
    bare: &Arc<dyn StoreAdmin>,
    claim: &Claim,
) -> Option<String> {
    let before = stored(bare, claim).await;
    let error = match store.claim(&again(claim)).await {
        Err(error) => error,
        Ok(answer) => panic!("it was answered: {answer:?}"),
    };
    assert_eq!(error.kind, StoreErrorKind::Record, "{error:?}");
    assert_eq!(stored(bare, claim).await, before);
    // An operator sees the record without its content, for the same reason, and nobody else uses
    // it.
    let read = store.read(&claim.identity).await.expect("an answer");
    let read = read.expect("a record");
    let reason = read.locked().map(|reason| reason.to_string());
    assert_eq!(reason, cause(&error));
    assert!(!has(&read.encode(), ANSWER) && !has(&read.encode(), CHECKPOINT));
    read.into_readable().expect_err("unreadable");
    reason
}

fn has(haystack: &[u8], needle: &str) -> bool {
    let needle = needle.as_bytes();
    haystack.windows(needle.len()).any(|part| part == needle)
}

/// What is read is what was written, and nothing of it is in the store.
pub(crate) async fn a_round_trip_leaves_nothing_readable(bare: Arc<dyn StoreAdmin>) {
    let store = encrypted(&bare, vec![key(1, 1)]);
    let claim = fresh();
    let grant = done(&store, &claim).await;
    match Store::claim(&store, &again(&claim)).await {
        Ok(Claimed::Replay(replay)) => assert_eq!(Some(&replay.answer), answer().answer()),
        other => panic!("{other:?}"),
    }
    // Sent again, it has the same bytes (P18).
    let resent = Store::settle(&store, &grant, &answer()).await;
    assert_eq!(resent.expect("an answer"), Settled::Done);
    let record = stored(&bare, &claim).await;
    assert_eq!(record.key_id(), Ok(Some(1)));
    let packed = record.encode();
    assert_eq!(packed[0], semel_core::record::ENCRYPTED_VERSION);
    assert!(!has(&packed, ANSWER) && !has(&packed, "201 created"));

    let claim = fresh();
    doubted(&store, &claim).await;
    match Store::claim(&store, &again(&claim)).await {
        Ok(Claimed::InDoubt(doubt)) => assert_eq!(doubt.checkpoint, CHECKPOINT.as_bytes()),
        other => panic!("{other:?}"),
    }
    let record = stored(&bare, &claim).await;
    assert_eq!(record.key_id(), Ok(Some(1)));
    assert!(!has(&record.encode(), CHECKPOINT));
}

/// One bit of anything that is encrypted.
pub(crate) async fn a_flipped_bit_is_refused(bare: Arc<dyn StoreAdmin>) {
    let store = encrypted(&bare, vec![key(1, 1)]);
    let flip = |bytes: &Bytes, at: usize| {
        let mut bytes = bytes.to_vec();
        let at = bytes.len() - 1 - at;
        bytes[at] ^= 1;
        Bytes::from(bytes)
    };
    for at in [0, 20] {
        let claim = fresh();
        done(&store, &claim).await;
        tamper(&bare, &claim, |record| {
            let answer = record.answer.clone().expect("an answer");
            let (head, body) = (flip(&answer.head, at), answer.body.clone());
            record.answer = Some(Arc::new(Answer { head, body }));
        })
        .await;
        let why = refused(&store, &bare, &claim).await;
        assert_eq!(why, by(RecordError::NotAuthentic));
        let claim = fresh();
        done(&store, &claim).await;
        tamper(&bare, &claim, |record| {
            let answer = record.answer.clone().expect("an answer");
            let AnswerBody::Kept(body) = &answer.body else {
                panic!("kept in the record");
            };
            let (head, body) = (answer.head.clone(), AnswerBody::Kept(flip(body, at)));
            record.answer = Some(Arc::new(Answer { head, body }));
        })
        .await;
        let why = refused(&store, &bare, &claim).await;
        assert_eq!(why, by(RecordError::NotAuthentic));
        let claim = fresh();
        doubted(&store, &claim).await;
        tamper(&bare, &claim, |record| {
            record.checkpoint = flip(&record.checkpoint, at);
        })
        .await;
        let why = refused(&store, &bare, &claim).await;
        assert_eq!(why, by(RecordError::NotAuthentic));
    }
}

/// An answer or a checkpoint of another key, an answer in another state.
pub(crate) async fn a_moved_field_is_refused(bare: Arc<dyn StoreAdmin>) {
    let store = encrypted(&bare, vec![key(1, 1)]);
    let (one, other) = (fresh(), fresh());
    done(&store, &one).await;
    done(&store, &other).await;
    let foreign = stored(&bare, &other).await.answer;
    tamper(&bare, &one, |record| record.answer = foreign).await;
    assert_eq!(
        refused(&store, &bare, &one).await,
        by(RecordError::NotAuthentic)
    );
    tamper(&bare, &other, |record| {
        record.state = semel_core::State::Failed;
    })
    .await;
    assert_eq!(
        refused(&store, &bare, &other).await,
        by(RecordError::NotAuthentic)
    );
    let (one, other) = (fresh(), fresh());
    doubted(&store, &one).await;
    doubted(&store, &other).await;
    let foreign = stored(&bare, &other).await.checkpoint;
    tamper(&bare, &one, |record| record.checkpoint = foreign).await;
    assert_eq!(
        refused(&store, &bare, &one).await,
        by(RecordError::NotAuthentic)
    );
}

/// The answer of an earlier run of the same key.
pub(crate) async fn an_old_answer_is_refused(bare: Arc<dyn StoreAdmin>) {
    let store = encrypted(&bare, vec![key(1, 1)]);
    let claim = fresh();
    done(&store, &claim).await;
    let old = stored(&bare, &claim).await.answer;
    assert!(bare.delete(&claim.identity).await.expect("an answer"));
    done(&store, &again(&claim)).await;
    tamper(&bare, &claim, |record| record.answer = old).await;
    assert_eq!(
        refused(&store, &bare, &claim).await,
        by(RecordError::NotAuthentic)
    );
}

/// A process with other keys, with another key of the same id, and with none.
pub(crate) async fn a_wrong_key_is_refused(bare: Arc<dyn StoreAdmin>) {
    let store = encrypted(&bare, vec![key(1, 1)]);
    let (settled, doubtful) = (fresh(), fresh());
    done(&store, &settled).await;
    doubted(&store, &doubtful).await;
    for claim in [&settled, &doubtful] {
        let other = encrypted(&bare, vec![key(2, 2)]);
        assert_eq!(
            refused(&other, &bare, claim).await,
            by(RecordError::NoKey(1))
        );
        let same_id = encrypted(&bare, vec![key(1, 9)]);
        assert_eq!(
            refused(&same_id, &bare, claim).await,
            by(RecordError::NotAuthentic)
        );
        let error = bare.claim(&again(claim)).await.expect_err("encrypted");
        assert_eq!(cause(&error), by(RecordError::NoKey(1)));
    }
}

/// A lapsed lease whose checkpoint can't be read is not taken over (P46).
pub(crate) async fn nobody_takes_over_without_the_key(bare: Arc<dyn StoreAdmin>) {
    let store = encrypted(&bare, vec![key(1, 1)]);
    let claim = fresh();
    let grant = won(&store, &claim).await;
    let checkpoint = Bytes::from_static(CHECKPOINT.as_bytes());
    let renewed = Store::renew(&store, &grant, Some(&checkpoint)).await;
    assert_eq!(renewed.expect("an answer"), Renewed::Held);
    // It lapsed long ago, on every server's clock.
    tamper(&bare, &claim, |record| {
        record.lease = Duration::from_millis(10);
        let ago = record.written_at.as_micros() - 60_000_000;
        record.written_at = semel_core::Timestamp::from_micros(ago);
    })
    .await;
    let other = encrypted(&bare, vec![key(2, 2)]);
    assert_eq!(
        refused(&other, &bare, &claim).await,
        by(RecordError::NoKey(1))
    );
    let next = won(&store, &again(&claim)).await;
    assert_eq!(next.attempt, 2);
    assert_eq!(next.checkpoint, CHECKPOINT.as_bytes());
}

/// Writes with the newest key, reads with all, and recognises what an older key wrote (P18).
pub(crate) async fn keys_rotate(bare: Arc<dyn StoreAdmin>) {
    let keys = ring(vec![key(1, 1)]);
    let store = EncryptedStore::new(Arc::clone(&bare), keys.clone(), false);
    let old = fresh();
    let grant = done(&store, &old).await;
    let both = || Keyring::new(vec![key(1, 1), key(2, 2)], WriteKey::Newest);
    keys.replace(both().expect("a ring"));
    let resent = store.settle(&grant, &answer()).await;
    assert_eq!(resent.expect("an answer"), Settled::Done);
    let different = Settlement::Complete(Arc::new(Answer::from_body("another")));
    let lost = store.settle(&grant, &different).await;
    assert_eq!(lost.expect("an answer"), Settled::Lost);
    let new = fresh();
    done(&store, &new).await;
    assert_eq!(stored(&bare, &new).await.key_id(), Ok(Some(2)));
    for claim in [&old, &new] {
        let replayed = store.claim(&again(claim)).await;
        assert!(matches!(replayed, Ok(Claimed::Replay(_))), "{replayed:?}");
    }
    let newest = encrypted(&bare, vec![key(2, 2)]);
    assert_eq!(
        refused(&newest, &bare, &old).await,
        by(RecordError::NoKey(1))
    );
    let replayed = newest.claim(&again(&new)).await;
    assert!(matches!(replayed, Ok(Claimed::Replay(_))), "{replayed:?}");
}

/// Plain records are read, unless only encrypted ones are accepted.
pub(crate) async fn plain_records_are_read_or_refused(bare: Arc<dyn StoreAdmin>) {
    let claim = fresh();
    done(&*bare, &claim).await;
    let replayed = encrypted(&bare, vec![key(1, 1)])
        .claim(&again(&claim))
        .await;
    assert!(matches!(replayed, Ok(Claimed::Replay(_))), "{replayed:?}");
    let strict = EncryptedStore::new(Arc::clone(&bare), ring(vec![key(1, 1)]), true);
    assert_eq!(
        refused(&strict, &bare, &claim).await,
        by(RecordError::Plain)
    );
}

/// One test for each, on the store that `$store` opens. `$store` gives the store, and what has to
/// live as long.
macro_rules! encrypted_tests {
    ($store:expr) => {
        $crate::encrypted::encrypted_tests! { $store =>
            a_round_trip_leaves_nothing_readable,
            a_flipped_bit_is_refused,
            a_moved_field_is_refused,
            an_old_answer_is_refused,
            a_wrong_key_is_refused,
            nobody_takes_over_without_the_key,
            keys_rotate,
            plain_records_are_read_or_refused,
            data_keys::each_owner_has_a_key,
            data_keys::a_reader_finds_data_keys,
            data_keys::a_checkpoint_tells_its_subject,
            data_keys::nodes_at_once_create_one_key,
            data_keys::erased_answers_are_unreadable,
            data_keys::erasing_a_tenant_reaches_its_subjects,
            data_keys::a_cached_key_is_dropped,
            data_keys::a_forged_data_key_is_refused,
            data_keys::a_lost_data_key_is_named,
            data_keys::data_keys_are_wrapped_again,
            data_keys::an_old_backup_undoes_no_erasure,
            data_keys::an_interrupted_erasure_goes_on,
        }
    };
    ($store:expr => $($($module:ident)::+),+ $(,)?) => {
        $(
            $crate::encrypted::encrypted_tests! { @one $store, $($module)::+ }
        )+
    };
    (@one $store:expr, $name:ident) => {
        $crate::encrypted::encrypted_tests! { @test $store, $name, $crate::encrypted::$name }
    };
    (@one $store:expr, $module:ident::$name:ident) => {
        $crate::encrypted::encrypted_tests! { @test $store, $name, $crate::encrypted::$module::$name }
    };
    (@test $store:expr, $name:ident, $test:path) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let (store, _place) = $store.await;
            $test(std::sync::Arc::new(store)).await;
        }
    };
}
pub(crate) use encrypted_tests;
