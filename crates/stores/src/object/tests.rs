//! Listing and sweeping if there are too many objects for a test on a server: on the library's
//! objects in memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;
use semel_core::store::{Cursor, Query, StoreAdmin as _};
use semel_core::{
    Answer, Claim, ClaimTerms, Claimed, CrashPolicy, Entropy as _, Fingerprint, Grant, Identity,
    Key, Namespace, Secret, Settlement, Store as _, Token, env::SystemEntropy,
};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// A bucket that passed the trial at start.
fn bucket() -> ObjectStore {
    let time = Arc::new(ServerTime::new(semel::tokio_env().clock));
    let inner = Inner {
        link: Link::new(Arc::new(InMemory::new()), time, 64),
        cloud: Cloud::S3,
        root: Path::from(DEFAULT_PREFIX),
        margin: MIN_CLOCK_MARGIN,
        fitness: Fitness { deletes: true },
        sweeper: Sweeper::new(true),
        counted: admin::CachedCount::default(),
        canaries: super::canary::Canaries::default(),
        renewed: Renewals::new(RENEWALS),
    };
    ObjectStore {
        inner: Arc::new(inner),
    }
}

/// The server says that an hour has passed.
fn pass_an_hour(store: &ObjectStore) {
    let time = &store.inner.link.time;
    let clock = time.clock();
    time.observe(clock.wall().plus(HOUR), clock.now(), clock.now());
}

/// Claims a new key.
async fn claimed(store: &ObjectStore, retention: Duration) -> Grant {
    let namespace = Namespace::new("", "", "many").unwrap();
    let key = Key::parse(&format!("k-{:032x}", SystemEntropy.next_u128())).unwrap();
    let lease = Duration::from_secs(1);
    let claim = Claim {
        retry: false,
        identity: Identity::new(&Secret::none(), &namespace, &key),
        fingerprint: Fingerprint::builder(&Secret::none()).finish(),
        token: Token(SystemEntropy.next_u128()),
        terms: ClaimTerms::new(lease, retention, CrashPolicy::Takeover, 5).unwrap(),
        secret_id: 0,
        hint: key.hint(),
        namespace,
    };
    match store.claim(&claim).await.unwrap() {
        Claimed::Won(grant) => grant,
        other => panic!("won was expected: {other:?}"),
    }
}

async fn many(store: &ObjectStore, count: usize, retention: Duration) -> Vec<Identity> {
    let mut identities = Vec::new();
    for _ in 0..count {
        identities.push(claimed(store, retention).await.identity);
    }
    identities
}

/// Every record, page by page, and how many pages there were.
async fn all(store: &ObjectStore, limit: usize) -> (Vec<Identity>, usize) {
    let (mut found, mut pages) = (Vec::new(), 0);
    let mut query = Query::default().with_limit(limit);
    loop {
        let page = store.list(&query).await.unwrap();
        pages += 1;
        found.extend(page.records.into_iter().map(|(identity, _)| identity));
        query.after = page.next;
        if query.after.is_none() {
            return (found, pages);
        }
    }
}

fn sorted(mut identities: Vec<Identity>) -> Vec<Identity> {
    identities.sort_unstable();
    identities
}

/// A page may end at any object, and the listing goes on from there (P29).
#[tokio::test]
async fn a_listing_goes_on_past_thousands_of_others_objects() {
    let store = bucket();
    let mine = sorted(many(&store, 200, HOUR).await);
    // As bodies and jobs have them: between the records and beside them.
    for number in 0..9_000 {
        let path = Path::from(format!("{DEFAULT_PREFIX}/bodies/{number:064x}"));
        store.client().put(&path, "body".into()).await.unwrap();
        let path = Path::from(format!("{DEFAULT_PREFIX}/7f/a note, {number}.json"));
        store.client().put(&path, "{}".into()).await.unwrap();
    }
    for limit in [0, 7] {
        let (found, pages) = all(&store, limit).await;
        assert_eq!(sorted(found), mine, "with {limit} to a page");
        assert!(pages > 4, "{pages} pages");
    }
}

#[tokio::test]
async fn a_cursor_leads_nowhere_but_below_the_root() {
    let store = bucket();
    for text in ["/", "//", "/../x", "/a//b", "x/y", &"A".repeat(32)] {
        let query = Query::default().with_after(Cursor(text.to_owned()));
        assert!(store.list(&query).await.is_err(), "{text}");
    }
}

/// Another store's records may lie below this one's: `s3://bucket/a` and `s3://bucket/a/b`.
#[tokio::test]
async fn what_only_has_the_name_of_a_record_is_none() {
    let store = bucket();
    let mine = many(&store, 1, Duration::from_secs(1)).await;
    let path = store.path_of(&mine[0]);
    let found = store.client().get(&path).await.unwrap();
    let record = found.bytes().await.unwrap();
    let name = path.filename().unwrap();
    let others = [
        format!("{DEFAULT_PREFIX}/b/{}/{name}", &name[..2]),
        format!("{DEFAULT_PREFIX}/backup/{name}"),
        format!("{DEFAULT_PREFIX}/{name}"),
    ]
    .map(Path::from);
    for other in &others {
        let put = store.client().put(other, record.clone().into());
        put.await.unwrap();
    }
    assert_eq!(all(&store, 0).await.0, mine);
    assert_eq!(store.stats().await.unwrap().records, 1);
    pass_an_hour(&store);
    assert_eq!(store.sweep(10).await.unwrap(), 1);
    for other in &others {
        assert!(store.client().head(other).await.is_ok());
    }
}

/// 16 records of 16 MiB would be read at once, and a thousand held.
#[tokio::test]
async fn a_page_of_large_records_is_short() {
    let store = bucket();
    let body = Bytes::from(vec![b'x'; 8 << 20]);
    let settlement = Settlement::Complete(Arc::new(Answer::from_body(body)));
    let mut mine = Vec::new();
    for _ in 0..6 {
        let lease = claimed(&store, HOUR).await;
        store.settle(&lease, &settlement).await.unwrap();
        mine.push(lease.identity);
    }
    let page = store.list(&Query::default()).await.unwrap();
    assert_eq!(page.records.len(), 4);
    assert_eq!(sorted(all(&store, 0).await.0), sorted(mine));
}

/// `most` is of what is removed, not of what is looked at.
#[tokio::test]
async fn a_sweep_goes_on_past_what_is_live() {
    let store = bucket();
    many(&store, 400, 2 * HOUR).await;
    many(&store, 3, Duration::from_secs(1)).await;
    pass_an_hour(&store);
    let mut removed = 0;
    for _ in 0..3 {
        removed += store.sweep(1).await.unwrap();
    }
    assert_eq!(removed, 3);
    assert_eq!(store.expired(10).await.unwrap(), 0);
    assert_eq!(store.stats().await.unwrap().records, 400);
}

/// Each look has its price, and the background sweeps every five minutes.
#[tokio::test]
async fn a_sweep_looks_at_a_stretch_and_the_next_one_goes_on() {
    let store = bucket();
    many(&store, 10_100, Duration::from_secs(1)).await;
    pass_an_hour(&store);
    assert_eq!(store.sweep(usize::MAX).await.unwrap(), 10_000);
    assert_eq!(store.sweep(usize::MAX).await.unwrap(), 100);
    assert_eq!(store.sweep(usize::MAX).await.unwrap(), 0);
}
