//! The quota of a tenant's jobs: what they keep in the store.

use std::sync::Arc;

use bytes::Bytes;
use semel_jobs::{Error, Job, JobState, LeaseToken, NewJob, SubmitOutcome};

use super::JobsState;
use crate::web::{Caller, TenantQuota};

/// The quota of a job, and what the job counts there.
struct JobQuota {
    quota: Arc<dyn TenantQuota>,
    keys: u64,
    bytes: u64,
}

impl JobQuota {
    /// Counts a job that may be new. Without room, only an earlier job is returned.
    fn count(caller: &Caller, job: &mut NewJob) -> Option<Self> {
        let quota = caller.quota(&job.tenant)?;
        job.known_only = quota.room() == 0;
        let (keys, bytes) = match job.known_only {
            true => (0, 0),
            false => (1, job.params.len() as u64),
        };
        quota.add(keys, bytes);
        Some(Self { quota, keys, bytes })
    }

    /// Takes back what is not kept.
    fn correct(&self, answer: &Result<SubmitOutcome, Error>) {
        match answer {
            Ok(SubmitOutcome::Accepted(_)) => {}
            _ => self.quota.remove(self.keys, self.bytes),
        }
        if let Err(Error::Quota) = answer {
            self.quota.count_refusal();
        }
    }
}

impl JobsState {
    /// Submits jobs within the quotas of their tenants. They are counted first, because they may be
    /// accepted after their caller has left.
    pub(super) async fn submit_within_quota(
        &self,
        caller: &Caller,
        mut jobs: Vec<NewJob>,
    ) -> Vec<Result<SubmitOutcome, Error>> {
        let quotas = jobs.iter_mut().map(|job| JobQuota::count(caller, job));
        let quotas: Vec<Option<JobQuota>> = quotas.collect();
        let answers = self.jobs.submit_all(jobs).await;
        for (quota, answer) in quotas.iter().zip(&answers) {
            if let Some(quota) = quota {
                quota.correct(answer);
            }
        }
        answers
    }

    /// Completes a job, and counts its result.
    pub(super) async fn complete_and_count(
        &self,
        caller: &Caller,
        job: &Job,
        lease: LeaseToken,
        result: Bytes,
    ) -> Result<(), Error> {
        // A larger result is not kept, and one that is sent again is counted.
        let bytes = match result.len() {
            length if length <= self.max_result_bytes && job.state != JobState::Done => {
                length as u64
            }
            _ => 0,
        };
        let quota = caller.quota(&job.tenant);
        if let Some(quota) = &quota {
            quota.add(0, bytes);
        }
        let done = self.jobs.queue().complete(job.id, lease, result).await;
        if let (Some(quota), Err(_)) = (&quota, &done) {
            quota.remove(0, bytes);
        }
        done
    }
}
