//! What the tests with servers of their own share.

use std::sync::Arc;
use std::time::Duration;

use semel_core::{
    Answer, Claim, Claimed, CrashPolicy, Fingerprint, Grant, Identity, Key, Namespace, Secret,
    Settled, Settlement, Store, StoreResult, Terms, Token,
};
use semel_stores::postgres::PostgresStore;

pub(crate) async fn open(url: &str) -> PostgresStore {
    try_open(url).await.expect("a server that is fit")
}

pub(crate) async fn try_open(url: &str) -> StoreResult<PostgresStore> {
    PostgresStore::open(url, semel::tokio_env().clock).await
}

/// A claim of a key that nobody else has.
pub(crate) fn fresh() -> Claim {
    of(&format!(
        "k-{:032x}",
        semel::tokio_env().entropy.next_u128()
    ))
}

/// A claim of `key`, by a new asker.
pub(crate) fn of(key: &str) -> Claim {
    let namespace = Namespace::new("", "", "traps").expect("a namespace");
    let key = Key::parse(key).expect("a key");
    let (lease, retention) = (Duration::from_secs(30), Duration::from_secs(3600));
    let terms = Terms::new(lease, retention, CrashPolicy::Takeover, 5).expect("terms");
    Claim {
        retry: false,
        identity: Identity::of(&Secret::none(), &namespace, &key),
        fingerprint: Fingerprint::builder(&Secret::none())
            .part(b"payload")
            .finish(),
        token: Token(semel::tokio_env().entropy.next_u128()),
        terms,
        secret_id: 0,
        hint: key.hint(),
        namespace,
    }
}

pub(crate) fn complete(text: &str) -> Settlement {
    Settlement::Complete(Arc::new(Answer::of(text.to_owned())))
}

pub(crate) async fn won(store: &impl Store, claim: &Claim) -> Grant {
    match store.claim(claim).await.expect("an answer") {
        Claimed::Won(grant) => grant,
        other => panic!("won was expected: {other:?}"),
    }
}

/// Claims and settles; answers whether that was acknowledged.
pub(crate) async fn done(store: &PostgresStore, claim: &Claim) -> bool {
    let Ok(Claimed::Won(grant)) = store.claim(claim).await else {
        return false;
    };
    matches!(
        store.settle(&grant, &complete("done")).await,
        Ok(Settled::Done)
    )
}

/// Runs operations on four tasks until told to stop; gives the claims that were acknowledged as settled.
pub(crate) struct Load {
    stop: Arc<std::sync::atomic::AtomicBool>,
    count: Arc<std::sync::atomic::AtomicUsize>,
    tasks: Vec<tokio::task::JoinHandle<Vec<Claim>>>,
}

impl Load {
    pub(crate) fn on(store: &PostgresStore) -> Self {
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let task = |_| {
            let (store, stop, count) = (store.clone(), Arc::clone(&stop), Arc::clone(&count));
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                    let claim = fresh();
                    if done(&store, &claim).await {
                        acknowledged.push(claim);
                        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    }
                }
                acknowledged
            })
        };
        let tasks = (0..4).map(task).collect();
        Self { stop, count, tasks }
    }

    /// Until so many more are acknowledged, however long a busy machine takes for them.
    pub(crate) async fn more(&self, wanted: usize) {
        let count = || self.count.load(std::sync::atomic::Ordering::SeqCst);
        let goal = count() + wanted;
        while count() < goal {
            sleep(10).await;
        }
    }

    pub(crate) async fn stop(self) -> Vec<Claim> {
        self.stop.store(true, std::sync::atomic::Ordering::SeqCst);
        let mut acknowledged = Vec::new();
        for task in self.tasks {
            acknowledged.extend(task.await.expect("no panic"));
        }
        acknowledged
    }
}

/// How many of `acknowledged` are not there any more.
pub(crate) async fn lost(store: &PostgresStore, acknowledged: &[Claim]) -> usize {
    let mut lost = 0;
    for claim in acknowledged {
        let found = store.read(&claim.identity).await.expect("an answer");
        let is_done = found.is_some_and(|record| record.state == semel_core::State::Completed);
        lost += usize::from(!is_done);
    }
    lost
}

pub(crate) async fn sleep(millis: u64) {
    semel::tokio_env()
        .clock
        .sleep(Duration::from_millis(millis))
        .await;
}
