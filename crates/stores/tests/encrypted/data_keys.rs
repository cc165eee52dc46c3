//! Data keys and erasure on a real server (P48, P49).
//!
//! Each test has tenants of its own, as the stores are shared.
#![allow(dead_code, reason = "each store's tests use what they need of it")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::claim::{Grant, Restored};
use semel_core::record::DataKeyId;
use semel_core::store::{Query, StoreAdmin};
use semel_core::{
    Claim, Claimed, DataSubject, Identity, Key, Namespace, Record, RecordError, Renewed, Secret,
    Settled, Store as _, StoreErrorKind,
};
use semel_stores::encrypted::{
    DATA_KEY_SCOPE, DataKeyUse, DataKeys, DataOwner, EncryptedStore, EncryptionKey,
};

use super::{ANSWER, CHECKPOINT, again, answer, by, cause, chance, done, doubted, fresh, has, key};
use super::{ring, stored, won};

/// A process with these keys, which uses data keys.
struct Node {
    store: EncryptedStore,
    data: DataKeys,
}

fn node(bare: &Arc<dyn StoreAdmin>, using: DataKeyUse, keys: Vec<EncryptionKey>) -> Node {
    node_with(bare, using, keys, Duration::from_secs(3600))
}

fn node_with(
    bare: &Arc<dyn StoreAdmin>,
    using: DataKeyUse,
    keys: Vec<EncryptionKey>,
    cache_time: Duration,
) -> Node {
    let keys = ring(keys);
    let data = DataKeys::new(Arc::clone(bare), keys.clone(), semel::tokio_env());
    let data = data.with_settings(using, cache_time, 0);
    let store = EncryptedStore::new(Arc::clone(bare), keys, true);
    Node {
        store: store.with_data_keys(data.clone()),
        data,
    }
}

/// A tenant of its own environment, so that the key for names is new too.
fn tenant() -> (String, String) {
    (
        format!("e-{:016x}", chance() >> 64),
        format!("t-{:016x}", chance() >> 64),
    )
}

fn subject(name: &str) -> DataSubject {
    DataSubject::new(name).expect("a subject")
}

fn of((environment, tenant): &(String, String), subject: Option<&str>) -> Claim {
    let namespace = Namespace::new(environment, tenant, "charge").expect("a namespace");
    let key = Key::parse(&format!("k-{:032x}", chance())).expect("a key");
    let claim = fresh();
    let terms = match subject {
        Some(name) => claim.terms.with_data_subject(self::subject(name)),
        None => claim.terms,
    };
    Claim {
        identity: Identity::new(&Secret::none(), &namespace, &key),
        namespace,
        hint: key.hint(),
        terms,
        ..claim
    }
}

fn owner<'a>((environment, tenant): &'a (String, String), subject: Option<&str>) -> DataOwner<'a> {
    DataOwner::new(environment, tenant).with_subject(subject.map(self::subject))
}

async fn replays(node: &Node, claim: &Claim) {
    match node.store.claim(&again(claim)).await {
        Ok(Claimed::Replay(replay)) => assert_eq!(Some(&replay.answer), answer().answer()),
        other => panic!("{other:?}"),
    }
}

/// Whether the claim is answered that its record was erased, without a change.
async fn is_erased(node: &Node, bare: &Arc<dyn StoreAdmin>, claim: &Claim) {
    let before = stored(bare, claim).await;
    let error = node.store.claim(&again(claim)).await.expect_err("erased");
    assert_eq!(error.kind, StoreErrorKind::Erased, "{error:?}");
    assert_eq!(error.code(), semel_core::Code::AnswerErased);
    assert_eq!(stored(bare, claim).await, before);
    let read = node.store.read(&claim.identity).await.expect("an answer");
    let read = read.expect("the record stays");
    assert_eq!(read.locked(), Some(RecordError::Erased));
    assert!(!has(&read.encode(), ANSWER) && !has(&read.encode(), CHECKPOINT));
}

/// All records that a query finds. A page may be short, or empty, and still have a next one.
async fn listed(store: &dyn StoreAdmin, mut query: Query) -> Vec<(Identity, Record)> {
    let mut records = Vec::new();
    loop {
        let page = store.list(&query).await.expect("a page");
        records.extend(page.records);
        match page.next {
            Some(next) => query = query.with_after(next),
            None => return records,
        }
    }
}

async fn wrapped(bare: &Arc<dyn StoreAdmin>, place: &(String, String)) -> Vec<(Identity, Record)> {
    let query = Query::default().with_environment(place.0.clone());
    listed(&**bare, query.with_scope(DATA_KEY_SCOPE.to_owned())).await
}

/// One claim of each owner: two tenants, and subjects of both.
fn one_of_each(one: &(String, String), other: &(String, String)) -> [Claim; 5] {
    [
        of(one, None),
        of(one, Some("anna")),
        of(one, Some("ben")),
        of(other, None),
        of(other, Some("anna")),
    ]
}

async fn name_of(bare: &Arc<dyn StoreAdmin>, claim: &Claim) -> DataKeyId {
    let name = stored(bare, claim).await.data_key();
    name.expect("readable").expect("a data key")
}

/// Each tenant, and each subject where one is named, has a key of its own, which the fields name.
pub(crate) async fn each_owner_has_a_key(bare: Arc<dyn StoreAdmin>) {
    let (one, other) = (tenant(), tenant());
    let node = node(&bare, DataKeyUse::Subject, vec![key(1, 1)]);
    let claims = one_of_each(&one, &other);
    let mut names = Vec::new();
    for claim in &claims {
        let grant = done(&node.store, claim).await;
        // Sent again, it has the same bytes (P18).
        let resent = node.store.settle(&grant, &answer()).await;
        assert_eq!(resent.expect("an answer"), Settled::Done);
        replays(&node, claim).await;
        let packed = stored(&bare, claim).await.encode();
        assert!(!has(&packed, ANSWER) && !has(&packed, "201 created"));
        names.push(name_of(&bare, claim).await);
    }
    let same = of(&one, Some("anna"));
    done(&node.store, &same).await;
    assert_eq!(name_of(&bare, &same).await, names[1]);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), claims.len());
    // Nobody lists the records of keys among operations.
    let query = Query::default().with_environment(one.0.clone());
    let found = listed(&node.store, query).await;
    let scopes = found.iter().map(|(_, record)| record.namespace.scope());
    assert!(scopes.clone().all(|scope| scope == "charge"), "{scopes:?}");
}

/// A process that writes with its own keys finds data keys by the records, and one that knows no
/// data keys refuses by name. What was encrypted before there were data keys is read.
pub(crate) async fn a_reader_finds_data_keys(bare: Arc<dyn StoreAdmin>) {
    let (one, other) = (tenant(), tenant());
    let old = of(&one, None);
    done(&super::encrypted(&bare, vec![key(1, 1)]), &old).await;
    let writer = node(&bare, DataKeyUse::Subject, vec![key(1, 1)]);
    replays(&writer, &old).await;
    let reader = node(&bare, DataKeyUse::Off, vec![key(1, 1)]);
    for claim in &one_of_each(&one, &other) {
        done(&writer.store, claim).await;
        replays(&reader, claim).await;
        let without = super::encrypted(&bare, vec![key(1, 1)]);
        let error = without.claim(&again(claim)).await.expect_err("no data key");
        let id = name_of(&bare, claim).await.key_id();
        assert_eq!(cause(&error), by(RecordError::NoKey(id)));
    }
    let own = of(&one, Some("anna"));
    done(&reader.store, &own).await;
    assert_eq!(stored(&bare, &own).await.key_id(), Ok(Some(1)));
    replays(&writer, &own).await;
}

/// A subject's checkpoints have its key, and an empty one tells it to a process that has only the
/// lease.
pub(crate) async fn a_checkpoint_tells_its_subject(bare: Arc<dyn StoreAdmin>) {
    let place = tenant();
    let make = || node(&bare, DataKeyUse::Subject, vec![key(1, 1)]);
    let (node, elsewhere) = (make(), make());
    let claim = of(&place, Some("anna"));
    doubted(&node.store, &claim).await;
    let name = name_of(&bare, &claim).await;
    match elsewhere.store.claim(&again(&claim)).await {
        Ok(Claimed::InDoubt(doubt)) => assert_eq!(doubt.checkpoint, CHECKPOINT.as_bytes()),
        other => panic!("{other:?}"),
    }
    let claim = of(&place, Some("anna"));
    let grant = won(&node.store, &claim).await;
    let marked = node.store.renew(&grant, Some(&Bytes::new())).await;
    assert_eq!(marked.expect("an answer"), Renewed::Held);
    let lease = grant.with_memo(Bytes::new());
    let settled = elsewhere.store.settle(&lease, &answer()).await;
    assert_eq!(settled.expect("an answer"), Settled::Done);
    assert_eq!(name_of(&bare, &claim).await, name);
    replays(&node, &claim).await;
}

/// Nodes that create the key of a tenant at once all get the same.
pub(crate) async fn nodes_at_once_create_one_key(bare: Arc<dyn StoreAdmin>) {
    for _ in 0..5 {
        let place = tenant();
        let racing = (0..8).map(|_| {
            let (bare, place) = (Arc::clone(&bare), place.clone());
            tokio::spawn(async move {
                let node = node(&bare, DataKeyUse::Subject, vec![key(1, 1)]);
                let claim = of(&place, Some("anna"));
                done(&node.store, &claim).await;
                claim
            })
        });
        let racing: Vec<_> = racing.collect();
        let reader = node(&bare, DataKeyUse::Off, vec![key(1, 1)]);
        let mut names = Vec::new();
        for task in racing {
            let claim = task.await.expect("a node");
            replays(&reader, &claim).await;
            names.push(stored(&bare, &claim).await.data_key());
        }
        names.dedup();
        assert_eq!(names.len(), 1, "{names:?}");
        // Of names, of the tenant, of the subject.
        assert_eq!(wrapped(&bare, &place).await.len(), 3);
    }
}

async fn erase(node: &Node, owner: &DataOwner<'_>) -> (u32, u32) {
    let erased = node.data.erase(owner).await.expect("an answer");
    assert!(!erased.digest.contains("anna") && erased.digest.len() == 32);
    let digest = node.data.digest(owner).await;
    assert_eq!(digest.expect("an answer"), erased.digest);
    (erased.destroyed, erased.before)
}

/// An erased subject is unreadable on every node that looks, and runs nothing again. Others are
/// untouched.
pub(crate) async fn erased_answers_are_unreadable(bare: Arc<dyn StoreAdmin>) {
    let (one, other) = (tenant(), tenant());
    let node = node(&bare, DataKeyUse::Subject, vec![key(1, 1)]);
    let [tenants, theirs, bens, others, namesake] = one_of_each(&one, &other);
    let doubtful = of(&one, Some("anna"));
    doubted(&node.store, &doubtful).await;
    for claim in [&tenants, &theirs, &bens, &others, &namesake] {
        done(&node.store, claim).await;
    }
    let anna = owner(&one, Some("anna"));
    assert_eq!(erase(&node, &anna).await, (1, 0));
    let later = self::node(&bare, DataKeyUse::Subject, vec![key(1, 1)]);
    for reader in [&node, &later] {
        is_erased(reader, &bare, &theirs).await;
        is_erased(reader, &bare, &doubtful).await;
        for claim in [&tenants, &bens, &others, &namesake] {
            replays(reader, claim).await;
        }
    }
    // A second erasure finds nothing left; new data gets a new key.
    assert_eq!(erase(&node, &anna).await, (0, 1));
    let new = of(&one, Some("anna"));
    done(&node.store, &new).await;
    replays(&later, &new).await;
    is_erased(&later, &bare, &theirs).await;
    // An operator can still end what is in doubt.
    let doubt = stored(&bare, &doubtful).await;
    let released = semel_core::Resolution::Release;
    let resolved = node
        .store
        .resolve(&doubtful.identity, doubt.fence, &released);
    let resolved = resolved.await.expect("an answer");
    assert_eq!(resolved, semel_core::Resolved::Done);
}

/// The erasure of a tenant reaches its subjects with one key, and nobody else's.
pub(crate) async fn erasing_a_tenant_reaches_its_subjects(bare: Arc<dyn StoreAdmin>) {
    let (one, other) = (tenant(), tenant());
    let node = node(&bare, DataKeyUse::Subject, vec![key(1, 1)]);
    let claims = one_of_each(&one, &other);
    for claim in &claims {
        done(&node.store, claim).await;
    }
    assert_eq!(erase(&node, &owner(&one, None)).await, (1, 0));
    let later = self::node(&bare, DataKeyUse::Subject, vec![key(1, 1)]);
    for reader in [&node, &later] {
        for claim in &claims[..3] {
            is_erased(reader, &bare, claim).await;
        }
        for claim in &claims[3..] {
            replays(reader, claim).await;
        }
    }
    let new = of(&one, Some("ben"));
    done(&later.store, &new).await;
    replays(&node, &new).await;
    is_erased(&node, &bare, &claims[2]).await;
}

/// A node that has the key in memory drops it within its cache time.
pub(crate) async fn a_cached_key_is_dropped(bare: Arc<dyn StoreAdmin>) {
    let place = tenant();
    let keys = || vec![key(1, 1)];
    let caching = node(&bare, DataKeyUse::Tenant, keys());
    let looking = node_with(&bare, DataKeyUse::Tenant, keys(), Duration::ZERO);
    let claim = of(&place, None);
    done(&caching.store, &claim).await;
    replays(&looking, &claim).await;
    let eraser = node(&bare, DataKeyUse::Tenant, keys());
    eraser
        .data
        .erase(&owner(&place, None))
        .await
        .expect("an answer");
    replays(&caching, &claim).await;
    is_erased(&looking, &bare, &claim).await;
    // A run that began before the erasure ends, and what it leaves has the new key.
    let claim = of(&place, None);
    let grant = won(&looking.store, &claim).await;
    eraser
        .data
        .erase(&owner(&place, None))
        .await
        .expect("an answer");
    let settled = looking.store.settle(&grant, &answer()).await;
    assert_eq!(settled.expect("an answer"), Settled::Done);
    replays(&looking, &claim).await;
}

/// The record of a data key.
async fn key_record(
    bare: &Arc<dyn StoreAdmin>,
    place: &(String, String),
    name: DataKeyId,
) -> (Identity, Record) {
    let hex = semel_core::hex::hex(name.as_bytes());
    let keys = wrapped(bare, place).await;
    let mut found = keys
        .into_iter()
        .filter(|(_, key)| hex.starts_with(key.hint.as_str()));
    found.next().expect("a key")
}

/// Puts `forged` in the place of a wrapped key.
async fn forge(bare: &Arc<dyn StoreAdmin>, (identity, record): &(Identity, Record), forged: Bytes) {
    let grant = Grant::from_record(*identity, record);
    let renewed = bare.renew(&grant, Some(&forged)).await;
    assert_eq!(renewed.expect("an answer"), Renewed::Held);
}

/// A wrapped key in another's place, one that was changed, and one that nobody has wrapped.
pub(crate) async fn a_forged_data_key_is_refused(bare: Arc<dyn StoreAdmin>) {
    let place = tenant();
    let make = || node(&bare, DataKeyUse::Subject, vec![key(1, 1)]);
    let (one, other) = (of(&place, Some("anna")), of(&place, Some("ben")));
    done(&make().store, &one).await;
    done(&make().store, &other).await;
    let original = key_record(&bare, &place, name_of(&bare, &one).await).await;
    let foreign = name_of(&bare, &other).await;
    let another = key_record(&bare, &place, foreign).await;
    let flip = |at: usize| {
        let mut wrapped = original.1.checkpoint.to_vec();
        let at = wrapped.len() - 1 - at;
        wrapped[at] ^= 1;
        Bytes::from(wrapped)
    };
    let not_wrapped = Bytes::from_static(b"thirty-two bytes without a wrap.");
    for forged in [another.1.checkpoint.clone(), flip(0), flip(20), not_wrapped] {
        forge(&bare, &original, forged).await;
        let later = make();
        let before = stored(&bare, &one).await;
        let error = later.store.claim(&again(&one)).await.expect_err("forged");
        assert_eq!(cause(&error), by(RecordError::NotAuthentic), "{error:?}");
        assert_eq!(stored(&bare, &one).await, before);
        replays(&later, &other).await;
        // What is new gets another key.
        let new = of(&place, Some("anna"));
        done(&later.store, &new).await;
        replays(&later, &new).await;
    }
    // The erasure finds all of them.
    assert_eq!(erase(&make(), &owner(&place, Some("anna"))).await, (2, 0));
}

/// A key that is gone without an erasure is a key that is not there.
pub(crate) async fn a_lost_data_key_is_named(bare: Arc<dyn StoreAdmin>) {
    let place = tenant();
    let make = || node(&bare, DataKeyUse::Tenant, vec![key(1, 1)]);
    let claim = of(&place, None);
    done(&make().store, &claim).await;
    let name = name_of(&bare, &claim).await;
    let (identity, _) = key_record(&bare, &place, name).await;
    assert!(bare.delete(&identity).await.expect("an answer"));
    let error = make().store.claim(&again(&claim)).await.expect_err("gone");
    assert_eq!(cause(&error), by(RecordError::NoKey(name.key_id())));
}

/// A new key of the process wraps the data keys again; the old one is then not needed. A pass that
/// was interrupted goes on.
pub(crate) async fn data_keys_are_wrapped_again(bare: Arc<dyn StoreAdmin>) {
    let place = tenant();
    let second = (place.0.clone(), format!("t-{:016x}", chance() >> 64));
    let old = node(&bare, DataKeyUse::Subject, vec![key(1, 1)]);
    let claims = [
        of(&place, None),
        of(&place, Some("anna")),
        of(&second, None),
    ];
    for claim in &claims {
        done(&old.store, claim).await;
    }
    let both = || vec![key(1, 1), key(2, 2)];
    // Half-way: of three keys that the process wraps, the first pass does one.
    let stopped = node(&Limited::new(&bare, 1), DataKeyUse::Subject, both());
    let interrupted = stopped.data.rewrap(&place.0, |_| {}).await;
    interrupted.expect_err("interrupted");
    let node = node(&bare, DataKeyUse::Subject, both());
    for (rewrapped, current) in [(2, 2), (0, 4)] {
        let counts = node.data.rewrap(&place.0, |_| {}).await.expect("an answer");
        assert_eq!((counts.seen, counts.unreadable), (4, 0));
        assert_eq!((counts.rewrapped, counts.current), (rewrapped, current));
    }
    let newest = self::node(&bare, DataKeyUse::Subject, vec![key(2, 2)]);
    for claim in &claims {
        replays(&newest, claim).await;
    }
}

/// A wrapped key from a backup undoes no erasure once its key of the process is gone.
pub(crate) async fn an_old_backup_undoes_no_erasure(bare: Arc<dyn StoreAdmin>) {
    let place = tenant();
    let node = node(&bare, DataKeyUse::Tenant, vec![key(1, 1)]);
    let claim = of(&place, None);
    done(&node.store, &claim).await;
    let backup = wrapped(&bare, &place).await;
    let both = self::node(&bare, DataKeyUse::Tenant, vec![key(1, 1), key(2, 2)]);
    both.data.rewrap(&place.0, |_| {}).await.expect("an answer");
    assert_eq!(erase(&both, &owner(&place, None)).await, (1, 0));
    for (identity, record) in &backup {
        bare.delete(identity).await.expect("an answer");
        let restored = bare.restore(identity, record).await.expect("an answer");
        assert_eq!(restored, Restored::Written);
    }
    let later = self::node(&bare, DataKeyUse::Tenant, vec![key(2, 2)]);
    let error = later.store.claim(&again(&claim)).await.expect_err("no key");
    assert_eq!(error.kind, StoreErrorKind::Record);
    assert_eq!(cause(&error), by(RecordError::NoKey(1)));
    let counts = later.data.rewrap(&place.0, |_| {}).await;
    assert_eq!(counts.expect("an answer").unreadable, 2);
}

/// An erasure of a subject with several keys that is interrupted goes on.
pub(crate) async fn an_interrupted_erasure_goes_on(bare: Arc<dyn StoreAdmin>) {
    let place = tenant();
    let node = node(&bare, DataKeyUse::Subject, vec![key(1, 1)]);
    let mut claims = Vec::new();
    for _ in 0..3 {
        let claim = of(&place, Some("anna"));
        done(&node.store, &claim).await;
        let record = key_record(&bare, &place, name_of(&bare, &claim).await).await;
        claims.push(claim);
        // The key is changed, so that the next run gets another one.
        forge(&bare, &record, Bytes::from_static(b"spoilt")).await;
        node.data.forget();
    }
    let limited = Limited::new(&bare, 1);
    let stopped = self::node(&limited, DataKeyUse::Subject, vec![key(1, 1)]);
    let interrupted = stopped.data.erase(&owner(&place, Some("anna"))).await;
    interrupted.expect_err("interrupted");
    // The write that it was allowed may have been cut off on its way.
    let (destroyed, before) = erase(&node, &owner(&place, Some("anna"))).await;
    assert_eq!(destroyed + before, 3);
    assert!(destroyed >= 2, "interrupted after one");
    let later = self::node(&bare, DataKeyUse::Subject, vec![key(1, 1)]);
    for claim in &claims {
        is_erased(&later, &bare, claim).await;
    }
}

/// A store that takes a number of writes to records, then fails, as if its process were killed.
struct Limited {
    store: Arc<dyn StoreAdmin>,
    left: std::sync::atomic::AtomicUsize,
}

impl Limited {
    #[expect(clippy::new_ret_no_self, reason = "it is used as a store only")]
    fn new(store: &Arc<dyn StoreAdmin>, writes: usize) -> Arc<dyn StoreAdmin> {
        Arc::new(Self {
            store: Arc::clone(store),
            left: writes.into(),
        })
    }

    fn take(&self) -> semel_core::StoreResult<()> {
        use std::sync::atomic::Ordering::SeqCst;
        let left = self
            .left
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        left.map(|_| ()).map_err(|_| semel_core::StoreError::full())
    }

    async fn renew_one(
        &self,
        lease: &Grant,
        checkpoint: Option<&Bytes>,
    ) -> semel_core::StoreResult<Renewed> {
        self.take()?;
        self.store.renew(lease, checkpoint).await
    }

    async fn settle_one(
        &self,
        lease: &Grant,
        how: &semel_core::Settlement,
    ) -> semel_core::StoreResult<Settled> {
        self.take()?;
        self.store.settle(lease, how).await
    }
}

impl semel_core::Store for Limited {
    semel_core::forward_store!(|self| async => renew: renew_one, settle: settle_one);
    semel_core::forward_store!(|self| self.store => claim, resolve, read, watch, capabilities);
}

impl StoreAdmin for Limited {
    semel_core::forward_store!(|self| self.store => list, delete, restore, sweep, expired, now, stats, connections, diagnose);
}
