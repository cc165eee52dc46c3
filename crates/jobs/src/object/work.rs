//! Heartbeats and ends of tasks, each by replacing exactly the version that was read
//! (compare-and-swap).

use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use semel_core::{Certainty, StoreErrorKind};
use semel_stores::object::Version;

use super::file::{Status, TaskFile, raw, write};
use super::{Inner, overtaken};
use crate::error::Error;
use crate::id::of_uuid;
use crate::job::{JobId, JobState, MAX_ERROR_BYTES};
use crate::queue::JobFailure;
use crate::work::{LeaseToken, check_span};

/// How many times a change that lost its compare-and-swap is retried.
pub(super) const TRIES: u32 = 8;

/// Names in a page.
pub(super) const PAGE: usize = 1000;

/// A task as it was read.
pub(super) struct TaskSnapshot {
    pub(super) path: Path,
    pub(super) task: TaskFile,
    pub(super) version: Version,
}

/// What lies at a path.
pub(super) enum TaskEntry {
    Task(Box<TaskSnapshot>),
    /// Something that can't be read as the task of its place.
    Damaged,
    Nothing,
}

impl Inner {
    pub(super) async fn read(&self, path: &Path) -> Result<Option<TaskSnapshot>, Error> {
        // What has no task's name is somebody else's, and no task.
        let Some(id) = id_of(path) else {
            return Ok(None);
        };
        let Some((bytes, version)) = self.store.get(path).await? else {
            return Ok(None);
        };
        Ok(Some(TaskSnapshot {
            path: path.clone(),
            task: TaskFile::read(id, &bytes)?,
            version,
        }))
    }

    /// The same for who goes through all of them: one that is damaged stops nobody.
    pub(super) async fn found(&self, path: &Path) -> Result<TaskEntry, Error> {
        match self.read(path).await {
            Ok(seen) => Ok(seen.map_or(TaskEntry::Nothing, |seen| TaskEntry::Task(Box::new(seen)))),
            Err(Error::Store(error)) if error.kind == StoreErrorKind::Record => {
                Ok(TaskEntry::Damaged)
            }
            Err(error) => Err(error),
        }
    }

    /// Puts a task in the place of exactly this version; answers whether it is there now.
    pub(super) async fn replace(
        &self,
        path: &Path,
        task: &mut TaskFile,
        version: &Version,
    ) -> Result<bool, Error> {
        task.revision = format!("{:032x}", self.env.entropy.next_u128());
        match self.store.put(path, write(task)?, Some(version)).await {
            Ok(written) => Ok(written.is_some()),
            // It may be there: its revision tells.
            Err(error) if error.certainty == Certainty::Unknown => {
                let found = self.read(path).await?;
                Ok(found.is_some_and(|seen| seen.task.revision == task.revision))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Changes a task of this worker, and retries after a lost compare-and-swap. `change` returns
    /// `None` if the task is already in the wanted state.
    async fn change(
        &self,
        id: JobId,
        lease: LeaseToken,
        change: impl Fn(&mut TaskFile) -> Result<Option<JobState>, Error>,
    ) -> Result<JobState, Error> {
        let path = self.find(id).await?.ok_or(Error::NotFound)?;
        for tried in 0..TRIES {
            let mut seen = self.read(&path).await?.ok_or(Error::NotFound)?;
            if !seen.task.is_leased_under(lease) {
                return Err(Error::LeaseLost);
            }
            let Some(state) = change(&mut seen.task)? else {
                return Ok(seen.task.status.into());
            };
            if self.replace(&path, &mut seen.task, &seen.version).await? {
                self.report_end(&path, &seen.task);
                return Ok(state);
            }
            self.store.pause(tried).await;
        }
        // It is this worker's still, and one of the writes may have come through.
        Err(overtaken())
    }

    /// Reports the end of a task that has ended.
    pub(super) fn report_end(&self, path: &Path, task: &TaskFile) {
        if let Some(reporter) = &self.reporter {
            reporter.report_end(&self.tenant_in(path), task);
        }
    }

    pub(super) async fn heartbeat(
        &self,
        id: JobId,
        lease: LeaseToken,
        span: Duration,
    ) -> Result<(), Error> {
        check_span(span)?;
        let until = self.store.server_time().plus(span).as_micros();
        let kept = self.change(id, lease, |task| {
            if !is_held(task) {
                return Err(Error::LeaseLost);
            }
            task.status = Status::Running;
            task.due_us = until;
            Ok(Some(JobState::Running))
        });
        kept.await.map(drop)
    }

    pub(super) async fn complete(
        &self,
        id: JobId,
        lease: LeaseToken,
        answer: Bytes,
    ) -> Result<(), Error> {
        let result = raw(&answer)?;
        let most = self.config.max_answer_bytes;
        let done = self.change(id, lease, |task| {
            match task.status {
                Status::Completed => return Ok(None),
                Status::Failed => return Err(Error::LeaseLost),
                Status::Pending | Status::Running => {}
            }
            task.status = Status::Completed;
            task.due_us = self.store.server_time().as_micros();
            if answer.len() > most {
                task.result_bytes = Some(answer.len() as u64);
            } else {
                task.result = Some(result.clone());
            }
            Ok(Some(JobState::Done))
        });
        done.await.map(drop)
    }

    pub(super) async fn fail(
        &self,
        id: JobId,
        lease: LeaseToken,
        failed: &JobFailure,
    ) -> Result<JobState, Error> {
        let failing = self.change(id, lease, |task| {
            match task.status {
                Status::Failed => return Ok(None),
                Status::Pending if task.worker.is_none() => return Ok(None),
                Status::Completed => return Err(Error::LeaseLost),
                Status::Pending | Status::Running => {}
            }
            let error: String = failed.error.chars().take(MAX_ERROR_BYTES / 4).collect();
            task.error = Some(error);
            task.worker = None;
            if failed.retryable && task.attempt < task.max_attempts {
                let pause = failed
                    .delay
                    .unwrap_or_else(|| self.config.pause_after(task.attempt));
                let pause = pause.min(crate::job::MAX_DELAY);
                task.status = Status::Pending;
                task.due_us = self.store.server_time().plus(pause).as_micros();
                return Ok(Some(JobState::Queued));
            }
            task.status = Status::Failed;
            task.due_us = self.store.server_time().as_micros();
            Ok(Some(JobState::Dead))
        });
        failing.await
    }
}

/// Whether a task is its worker's: it runs, or was taken back and given to nobody yet.
fn is_held(task: &TaskFile) -> bool {
    match task.status {
        Status::Running => true,
        Status::Pending => task.worker.is_some(),
        Status::Completed | Status::Failed => false,
    }
}

/// Which task lies there.
pub(super) fn id_of(path: &Path) -> Option<JobId> {
    let name = path.filename()?.strip_suffix(".json")?;
    of_uuid(name).map(JobId::from_u128)
}
