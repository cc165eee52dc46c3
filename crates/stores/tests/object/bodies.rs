//! Large answers of Redis's records, in a real bucket.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::TryStreamExt as _;
use semel::core::{AnswerBody, Identity, Key, Namespace, Secret};
use semel::{CacheConfig, EngineConfig, Error, Policy, Semel, StoreDown};
use semel_stores::object::ObjectBodies;
use semel_testkit::http_proxy::{HttpFault, HttpProxy};

use super::support::{chance, clock, open, own_url, proxy, through, variable};

const ABOVE: usize = 10_000;

/// A node of a service that keeps records in Redis and large bodies in a bucket. A store that is
/// down stops nothing.
struct Node {
    semel: Semel,
    runs: Arc<AtomicUsize>,
}

impl Node {
    async fn new(environment: &str, bucket: &str) -> Self {
        let policy = Policy::default().with_store_down(StoreDown::Open);
        // Every replay is the store's.
        let config = EngineConfig::default().with_cache(CacheConfig::default().with_max_bytes(0));
        let semel = Semel::builder()
            .environment(environment)
            .policy(policy)
            .engine_config(config)
            .body_store(bucket, ABOVE)
            .open(&variable("SEMEL_TEST_REDIS_URL"))
            .await;
        Self {
            semel: semel.expect("both can be reached"),
            runs: Arc::default(),
        }
    }

    /// A report of so many characters.
    async fn report(&self, key: &str, length: usize) -> Result<(String, bool), Error> {
        let runs = Arc::clone(&self.runs);
        let operation = self.semel.operation("report").key(key).payload(&length);
        let answer = operation.run(move |_| async move {
            runs.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(format!("{:x}", chance()).repeat(length / 16))
        });
        let answer = answer.await?;
        Ok((answer.value, answer.replayed))
    }

    /// The record of `k`, as Redis has it.
    async fn record(&self) -> (Identity, AnswerBody) {
        let namespace = Namespace::new(self.semel.environment(), "", "report");
        let key = Key::parse("k").expect("a key");
        let identity = Identity::new(&Secret::none(), &namespace.expect("a namespace"), &key);
        let redis = semel::open_store(&variable("SEMEL_TEST_REDIS_URL")).await;
        let record = redis.expect("Redis").read(&identity).await;
        let record = record.expect("an answer").expect("a record");
        (identity, record.answer.expect("an answer").body.clone())
    }
}

fn environment() -> String {
    format!("bodies-{:032x}", chance())
}

/// How many bodies of a key the bucket has.
async fn shelved(bucket: &str, identity: &Identity) -> usize {
    let folder = ObjectBodies::open(bucket, clock()).await.expect("a bucket");
    let folder = folder.folder_of(identity);
    let objects = open(bucket).await.client().list(Some(&folder));
    objects.try_collect::<Vec<_>>().await.expect("a list").len()
}

#[tokio::test]
async fn a_large_answer_lies_in_the_bucket_and_every_node_replays_it() {
    let (environment, bucket) = (environment(), own_url());
    let (one, other) = (
        Node::new(&environment, &bucket).await,
        Node::new(&environment, &bucket).await,
    );
    let (first, _) = one.report("k", 200_000).await.expect("it runs");
    let (again, replayed) = other.report("k", 200_000).await.expect("it is known");
    assert!(replayed && first == again);
    let (identity, kept) = one.record().await;
    assert!(
        matches!(kept, AnswerBody::External { bytes, .. } if bytes > 100_000),
        "{kept:?}"
    );
    assert_eq!(shelved(&bucket, &identity).await, 1);
    // Erased is erased in both places.
    assert!(one.semel.store().delete(&identity).await.expect("deleted"));
    assert_eq!(shelved(&bucket, &identity).await, 0);
}

#[tokio::test]
async fn a_bucket_that_takes_nothing_leaves_answers_with_their_records() {
    let (environment, bucket, proxy) = (environment(), own_url(), proxy().await);
    let node = Node::new(&environment, &through(&proxy, &bucket)).await;
    proxy.next("PUT", HttpFault::Refused(503));
    let (first, _) = node.report("k", 50_000).await.expect("it runs");
    assert_eq!(proxy.armed(), 0);
    let (identity, kept) = node.record().await;
    assert!(matches!(kept, AnswerBody::Kept(_)), "{kept:?}");
    assert_eq!(shelved(&bucket, &identity).await, 0);
    let (again, replayed) = node.report("k", 50_000).await.expect("it is known");
    assert!(replayed && first == again);
}

/// Refuses a read, and the reads that are sent again for it.
fn refuse_reads(proxy: &HttpProxy) {
    for _ in 0..3 {
        proxy.next("GET", HttpFault::Refused(503));
    }
}

#[tokio::test]
async fn a_bucket_that_gives_nothing_runs_nothing_twice() {
    let (bucket, proxy) = (own_url(), proxy().await);
    let node = Node::new(&environment(), &through(&proxy, &bucket)).await;
    let (first, _) = node.report("k", 50_000).await.expect("it runs");
    refuse_reads(&proxy);
    // The policy lets requests run while the store is down. It isn't.
    let problem = node.report("k", 50_000).await.expect_err("no body");
    assert!(problem.is_retryable(), "{problem}");
    assert!(problem.to_string().contains("answered before"), "{problem}");
    assert_eq!(proxy.armed(), 0);
    let (again, replayed) = node.report("k", 50_000).await.expect("it is known");
    assert!(replayed && first == again);
    assert_eq!(node.runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn lost_body_is_reported_as_not_kept_and_nothing_runs() {
    let bucket = own_url();
    let node = Node::new(&environment(), &bucket).await;
    node.report("k", 50_000).await.expect("it runs");
    let (identity, _) = node.record().await;
    let bodies = ObjectBodies::open(&bucket, clock())
        .await
        .expect("a bucket");
    semel_stores::compose::BodyStore::forget(&bodies, &identity)
        .await
        .expect("forgotten");
    let told = node.report("k", 50_000).await;
    assert!(
        matches!(told, Err(Error::NotKept { bytes }) if bytes > 10_000),
        "{told:?}"
    );
    assert_eq!(node.runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_at_start() {
    let nobody = format!("http://127.0.0.1:{}", semel_testkit::private::free_port());
    let bucket = own_url().replace(&variable("SEMEL_TEST_S3_ENDPOINT"), &nobody);
    let opened = Semel::builder()
        .body_store(&bucket, ABOVE)
        .open("memory://")
        .await;
    let told = opened.expect_err("nobody is there").to_string();
    assert!(told.contains("the body store can't be used"), "{told}");
}
