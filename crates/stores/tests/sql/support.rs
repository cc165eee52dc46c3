//! What the tests of the SQL stores share.
#![allow(dead_code, reason = "each store's tests use what they need of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use semel_core::diagnosis::Finding;
use semel_core::{
    Answer, Claim, ClaimTerms, Claimed, CrashPolicy, Fingerprint, Grant, Identity, Key, Namespace,
    Secret, Settled, Settlement, Store, StoreError, StoreErrorKind, Token,
};

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
    Claim {
        retry: false,
        identity: Identity::new(&Secret::none(), &namespace, &key),
        fingerprint: Fingerprint::builder(&Secret::none())
            .part(b"payload")
            .finish(),
        token: Token(semel::tokio_env().entropy.next_u128()),
        terms: terms(Duration::from_secs(30), Duration::from_secs(3600)),
        secret_id: 0,
        hint: key.hint(),
        namespace,
    }
}

/// A claim whose record lives for a second.
pub(crate) fn brief() -> Claim {
    let second = Duration::from_secs(1);
    Claim {
        terms: terms(second, second),
        ..fresh()
    }
}

pub(crate) fn terms(lease: Duration, retention: Duration) -> ClaimTerms {
    ClaimTerms::new(lease, retention, CrashPolicy::Takeover, 5).expect("terms")
}

/// The same claim, by another asker.
pub(crate) fn again(claim: &Claim) -> Claim {
    Claim {
        token: Token(claim.token.0 ^ 1),
        ..claim.clone()
    }
}

pub(crate) fn complete(text: &str) -> Settlement {
    Settlement::Complete(Arc::new(Answer::from_body(text.to_owned())))
}

pub(crate) async fn won(store: &impl Store, claim: &Claim) -> Grant {
    match store.claim(claim).await.expect("an answer") {
        Claimed::Won(grant) => grant,
        other => panic!("won was expected: {other:?}"),
    }
}

/// Claims and settles; answers whether that was acknowledged.
pub(crate) async fn done(store: &impl Store, claim: &Claim) -> bool {
    let Ok(Claimed::Won(grant)) = store.claim(claim).await else {
        return false;
    };
    matches!(
        store.settle(&grant, &complete("done")).await,
        Ok(Settled::Done)
    )
}

/// Runs operations on four tasks until told to stop; gives the claims that were acknowledged as
/// settled.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    tasks: Vec<tokio::task::JoinHandle<Vec<Claim>>>,
}

impl Load {
    pub(crate) fn on<S: Store + Clone>(store: &S) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicUsize::new(0));
        let task = |_| {
            let (store, stop, count) = (store.clone(), Arc::clone(&stop), Arc::clone(&count));
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    let claim = fresh();
                    if done(&store, &claim).await {
                        acknowledged.push(claim);
                        count.fetch_add(1, Ordering::SeqCst);
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
        let count = || self.count.load(Ordering::SeqCst);
        let goal = count() + wanted;
        while count() < goal {
            sleep(10).await;
        }
    }

    pub(crate) async fn stop(self) -> Vec<Claim> {
        self.stop.store(true, Ordering::SeqCst);
        let mut acknowledged = Vec::new();
        for task in self.tasks {
            acknowledged.extend(task.await.expect("no panic"));
        }
        acknowledged
    }
}

/// How many of `acknowledged` are not there any more.
pub(crate) async fn lost(store: &impl Store, acknowledged: &[Claim]) -> usize {
    let mut lost = 0;
    for claim in acknowledged {
        let found = store.read(&claim.identity).await.expect("an answer");
        let is_done = found.is_some_and(|record| record.state == semel_core::State::Completed);
        lost += usize::from(!is_done);
    }
    lost
}

/// What is said of a check.
pub(crate) fn finding<'a>(findings: &'a [Finding], check: &str) -> &'a Finding {
    let found = findings.iter().find(|finding| finding.check == check);
    found.unwrap_or_else(|| panic!("nothing about {check} in {findings:?}"))
}

/// What a refusal says.
pub(crate) fn refusal<T>(opened: Result<T, StoreError>) -> String {
    let Err(error) = opened else {
        panic!("it was taken although it isn't fit")
    };
    assert_eq!(error.kind, StoreErrorKind::Rejected, "{error:?}");
    let source = std::error::Error::source(&error);
    format!(
        "{error}: {}",
        source.map(ToString::to_string).unwrap_or_default()
    )
}

pub(crate) async fn sleep(millis: u64) {
    semel::tokio_env()
        .clock
        .sleep(Duration::from_millis(millis))
        .await;
}
