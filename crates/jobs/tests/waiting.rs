//! How often a worker that waits looks for jobs of other processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::clock::Sleep;
use semel_core::{BoxFuture, Clock, KeyRules, Tick, Timestamp};
use semel_jobs::{
    Error, Job, JobCounts, JobFailure, JobId, JobLease, JobPage, JobQuery, JobState, Jobs,
    LeaseOptions, LeaseToken, NewJob, Queue, ReapReport, SubmitOutcome,
};

/// A clock on which each sleep passes at once.
#[derive(Default)]
struct Jumping(AtomicU64);

impl Clock for Jumping {
    fn now(&self) -> Tick {
        Tick::new(Duration::from_micros(self.0.load(Ordering::SeqCst)))
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn sleep(&self, for_time: Duration) -> Sleep {
        let micros = u64::try_from(for_time.as_micros()).expect("a short time");
        self.0.fetch_add(micros, Ordering::SeqCst);
        Box::pin(std::future::ready(()))
    }
}

type Called<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// A queue without jobs, which remembers when it was asked for one.
struct Empty {
    clock: Arc<Jumping>,
    asked: Mutex<Vec<Duration>>,
    longest: Duration,
}

impl Queue for Empty {
    fn enqueue(&self, _: Vec<NewJob>) -> BoxFuture<'_, Vec<Result<SubmitOutcome, Error>>> {
        Box::pin(async { Vec::new() })
    }

    fn lease<'a>(&'a self, _: &'a LeaseOptions) -> Called<'a, Vec<JobLease>> {
        let now = self.clock.now().since(Tick::new(Duration::ZERO));
        self.asked.lock().push(now);
        Box::pin(async { Ok(Vec::new()) })
    }

    fn heartbeat(&self, _: JobId, _: LeaseToken, _: Duration) -> Called<'_, ()> {
        Box::pin(async { Err(Error::NotFound) })
    }

    fn complete(&self, _: JobId, _: LeaseToken, _: Bytes) -> Called<'_, ()> {
        Box::pin(async { Err(Error::NotFound) })
    }

    fn fail<'a>(&'a self, _: JobId, _: LeaseToken, _: &'a JobFailure) -> Called<'a, JobState> {
        Box::pin(async { Err(Error::NotFound) })
    }

    fn look(&self, _: JobId) -> Called<'_, Option<Job>> {
        Box::pin(async { Ok(None) })
    }

    fn list<'a>(&'a self, _: &'a JobQuery) -> Called<'a, JobPage> {
        Box::pin(async { Ok(JobPage::default()) })
    }

    fn retry(&self, _: JobId) -> Called<'_, ()> {
        Box::pin(async { Err(Error::NotFound) })
    }

    fn reap(&self) -> Called<'_, ReapReport> {
        Box::pin(async { Ok(ReapReport::default()) })
    }

    fn counts(&self) -> Called<'_, JobCounts> {
        Box::pin(async { Ok(JobCounts::default()) })
    }

    fn longest_pause(&self) -> Duration {
        self.longest
    }

    fn name(&self) -> &'static str {
        "empty"
    }
}

/// The times at which a worker that waits for a minute looks.
async fn looks(longest: Duration) -> Vec<Duration> {
    let clock = Arc::new(Jumping::default());
    let queue = Arc::new(Empty {
        clock: Arc::clone(&clock),
        asked: Mutex::default(),
        longest,
    });
    let jobs = Jobs::new(Arc::clone(&queue) as _, clock, KeyRules::default());
    let ask = LeaseOptions::new("w-1", &["charge"]);
    let leased = jobs.lease(&ask, Duration::from_secs(60)).await;
    assert!(leased.expect("an answer").is_empty());
    let asked = queue.asked.lock();
    asked.clone()
}

#[tokio::test]
async fn pauses_of_a_waiting_worker_grow_up_to_the_longest_of_the_queue() {
    let longest = Duration::from_secs(5);
    let looks = looks(longest).await;
    let pauses: Vec<Duration> = looks.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(pauses[0], Duration::from_millis(50));
    let (last, growing) = pauses.split_last().expect("pauses");
    assert!(growing.is_sorted() && *last <= longest, "{pauses:?}");
    assert_eq!(growing.last(), Some(&longest), "{pauses:?}");
    assert!((20..=25).contains(&looks.len()), "{looks:?}");
}

#[tokio::test]
async fn a_queue_that_is_cheap_to_ask_is_asked_every_second() {
    let looks = looks(Duration::from_secs(1)).await;
    assert!((60..=70).contains(&looks.len()), "{}", looks.len());
}
