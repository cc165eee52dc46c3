//! What SQLite may answer: an effect that ran is settled in the end, and runs once.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use semel::{Failure, Semel};
use semel_core::StoreErrorKind;
use semel_core::event::{Event, Observer, Step, StoreCall};
use sqlx::Connection as _;
use tokio::sync::oneshot;

use crate::support::sleep;
use crate::{Place, raw};

/// Why settlements failed.
#[derive(Default)]
struct Failures(Mutex<Vec<StoreErrorKind>>);

impl Observer for Failures {
    fn observe(&self, event: &Event<'_>) {
        if let Step::StoreFailed {
            call: StoreCall::Settle,
            kind,
            ..
        } = event.step
        {
            self.0.lock().push(kind);
        }
    }
}

impl Failures {
    /// Until there are so many.
    async fn are(&self, wanted: usize) {
        while self.0.lock().len() < wanted {
            sleep(10).await;
        }
    }
}

/// All handles that this process may have.
fn take_all_handles() -> Vec<File> {
    let limit = getrlimit(Resource::Nofile);
    let few = Rlimit {
        current: Some(256),
        ..limit
    };
    setrlimit(Resource::Nofile, few).expect("a lower limit");
    all_handles().collect()
}

/// Those that are free now.
fn all_handles() -> impl Iterator<Item = File> {
    std::iter::from_fn(|| File::open("/dev/null").ok())
}

/// While another process has the lock the connection is given up, and without handles there is no
/// other: `BUSY`, then `CANTOPEN`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a process of its own, which cargo-nextest gives to each test"]
async fn a_process_short_of_file_handles_settles_when_it_has_some() {
    let place = Place::new();
    let failures = Arc::new(Failures::default());
    let semel = Semel::builder().observer(failures.clone());
    let url = format!("{}?busy_ms=20", place.url());
    let semel = semel.open(&url).await.expect("a file");
    let runs = Arc::new(AtomicU32::new(0));
    let (tell, told) = oneshot::channel();
    let owner = tokio::spawn({
        let (path, runs) = (place.path(), Arc::clone(&runs));
        let call = semel.operation("charge").key("a-key").payload(&1);
        call.run(async move |_| {
            let mut other = raw(&path).await;
            let lock = sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await;
            lock.expect("nobody else has it");
            drop(tell.send((other, take_all_handles())));
            Ok::<_, Failure>(runs.fetch_add(1, Ordering::SeqCst))
        })
    });
    let (other, mut handles) = told.await.expect("the effect runs");
    // Those too that the store gives back with its connection.
    while failures.0.lock().len() < 6 {
        handles.extend(all_handles());
        sleep(1).await;
    }
    drop(handles);
    failures.are(7).await;
    other.close().await.expect("a connection");
    let answer = owner.await.expect("no panic").expect("settled in the end");
    assert_eq!((answer.value, answer.replayed), (0, false));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let kinds = failures.0.lock().clone();
    let passing = |kind: &StoreErrorKind| *kind == StoreErrorKind::Unavailable;
    assert!(kinds.iter().all(passing), "{kinds:?}");
    let again = semel.operation("charge").key("a-key").payload(&1);
    let again = again.run(async |_| Ok::<_, Failure>(7)).await;
    assert!(again.expect("a replay").replayed);
}
