//! A queue in memory that keeps what is submitted, one job for a key, and gives nothing to workers.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use semel_core::BoxFuture;
use semel_jobs::{
    Counts, Error, Failed, Job, JobId, JobQuery, JobRef, JobState, LeaseOptions, LeaseToken, JobLease, NewJob, Page, Queue,
    Reaped, RequestId, SubmitOutcome,
};

type Called<'a, T> = BoxFuture<'a, Result<T, Error>>;

#[derive(Default)]
pub struct Kept(Mutex<Vec<NewJob>>);

impl Kept {
    pub fn len(&self) -> usize {
        self.0.lock().expect("no panic before").len()
    }

    pub fn job(&self, id: &str) -> NewJob {
        let id: JobId = id.parse().expect("an id");
        let at = usize::try_from(id.as_u128()).expect("a number");
        self.0.lock().expect("no panic before")[at].clone()
    }

    fn submit(&self, job: NewJob) -> SubmitOutcome {
        let mut jobs = self.0.lock().expect("no panic before");
        let same = |other: &NewJob| {
            let place = |job: &NewJob| (job.tenant.clone(), job.scope.clone().unwrap_or_else(|| job.kind.clone()));
            job.key.is_some() && other.key == job.key && place(other) == place(&job) && other.kind == job.kind
        };
        let found = jobs.iter().position(same);
        let number = found.unwrap_or(jobs.len()) as u128;
        let named = JobRef::new(JobId::from_u128(number), RequestId::from_u128(number));
        if found.is_some() {
            return SubmitOutcome::InProgress(named);
        }
        jobs.push(job);
        SubmitOutcome::Accepted(named)
    }
}

fn none<'a, T: Send + 'a>() -> Called<'a, T> {
    Box::pin(async { Err(Error::NotFound) })
}

impl Queue for Kept {
    fn enqueue(&self, jobs: Vec<NewJob>) -> BoxFuture<'_, Vec<Result<SubmitOutcome, Error>>> {
        Box::pin(async move { jobs.into_iter().map(|job| Ok(self.submit(job))).collect() })
    }

    fn lease<'a>(&'a self, _: &'a LeaseOptions) -> Called<'a, Vec<JobLease>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn heartbeat(&self, _: JobId, _: LeaseToken, _: Duration) -> Called<'_, ()> {
        none()
    }

    fn complete(&self, _: JobId, _: LeaseToken, _: Bytes) -> Called<'_, ()> {
        none()
    }

    fn fail<'a>(&'a self, _: JobId, _: LeaseToken, _: &'a Failed) -> Called<'a, JobState> {
        none()
    }

    fn look(&self, _: JobId) -> Called<'_, Option<Job>> {
        Box::pin(async { Ok(None) })
    }

    fn list<'a>(&'a self, _: &'a JobQuery) -> Called<'a, Page> {
        Box::pin(async { Ok(Page::default()) })
    }

    fn retry(&self, _: JobId) -> Called<'_, ()> {
        none()
    }

    fn reap(&self) -> Called<'_, Reaped> {
        Box::pin(async { Ok(Reaped::default()) })
    }

    fn counts(&self) -> Called<'_, Counts> {
        Box::pin(async { Ok(Counts::default()) })
    }

    fn name(&self) -> &'static str {
        "kept"
    }
}
