//! Submits a task: creates the record, which names the task; then the task; then marks the record
//! as ready.

use object_store::path::Path;
use semel_core::Certainty;
use semel_stores::object::Version;

use super::file::{
    Phase, RecordFile, Status, TaskFile, input_hash, job_ref, key_hash, raw, read_time, task_id,
    time, write,
};
use super::{Inner, overtaken};
use crate::error::Error;
use crate::job::{JobAnswer, JobId, JobState, NewJob, SubmitOutcome};

/// How often a submission that was overtaken is tried again.
const TRIES: u32 = 12;

/// What a submission found in the bucket, and the record of its key.
pub(super) enum Placed {
    /// It has no key.
    Unkeyed(SubmitOutcome),
    /// The task is new.
    New(SubmitOutcome, RecordFile),
    /// The key was there, with the same input.
    Known(SubmitOutcome, RecordFile),
    /// The key was there, with another input than this one.
    Conflict {
        record: RecordFile,
        input_hash: String,
    },
}

/// The outcome of the creation of a record.
enum CreateOutcome {
    /// The record is new, and ours.
    New(RecordFile, Version),
    /// The record existed before.
    Known(RecordFile, Version),
    /// Neither is certain: read again.
    Neither,
}

impl Inner {
    pub(super) async fn submit(&self, job: &NewJob) -> Result<SubmitOutcome, Error> {
        let began = self.env.clock.now();
        let placed = self.place(job).await?;
        if let Some(reporter) = &self.reporter {
            reporter.report_submission(job, &placed, self.env.clock.now().since(began));
        }
        match placed {
            Placed::Unkeyed(outcome) | Placed::New(outcome, _) | Placed::Known(outcome, _) => {
                Ok(outcome)
            }
            Placed::Conflict { .. } => Err(Error::Conflict),
        }
    }

    async fn place(&self, job: &NewJob) -> Result<Placed, Error> {
        job.check()?;
        let id = JobId::new(self.env.clock.wall(), &*self.env.entropy);
        let Some(key) = &job.key else {
            if job.known_only {
                return Err(Error::Quota);
            }
            self.create_task(job, id, None).await?;
            return Ok(Placed::Unkeyed(SubmitOutcome::Accepted(job_ref(id))));
        };
        let scope = job.scope.as_ref().unwrap_or(&job.kind);
        let hash = key_hash(scope, key.as_str());
        let path = self.record_path(&job.tenant, scope, &hash);
        let input = input_hash(&job.params)?;
        if job.known_only && !self.is_known(&path, &hash, &job.tenant).await? {
            return Err(Error::Quota);
        }
        for tried in 0..TRIES {
            if tried > 1 {
                self.store.pause(tried).await;
            }
            match self.create_record(&path, job, id, (&hash, &input)).await? {
                CreateOutcome::Neither => {}
                CreateOutcome::New(record, version) => {
                    let outcome = self.finish(&path, job, record.clone(), &version).await?;
                    return Ok(Placed::New(outcome, record));
                }
                CreateOutcome::Known(record, version) => {
                    if record.input_hash != input || record.task_type != job.kind {
                        let input_hash = input;
                        return Ok(Placed::Conflict { record, input_hash });
                    }
                    // Its submitter is on the way, or vanished: the task has a name, so anybody may
                    // create it.
                    if record.status == Phase::Creating {
                        self.finish(&path, job, record.clone(), &version).await?;
                    }
                    let outcome = self.stands(&job.tenant, &record).await?;
                    return Ok(Placed::Known(outcome, record));
                }
            }
        }
        Err(overtaken())
    }

    async fn create_record(
        &self,
        path: &Path,
        job: &NewJob,
        id: JobId,
        (key_hash, input_hash): (&str, &str),
    ) -> Result<CreateOutcome, Error> {
        let now = self.store.server_time();
        let ttl = self.config.retention_of(job.retention)?;
        let record = RecordFile {
            key: job
                .key
                .as_ref()
                .map(|key| key.as_str().to_owned())
                .unwrap_or_default(),
            key_hash: format!("sha256:{key_hash}"),
            task_id: task_id(id),
            task_key: self.task_path(&job.tenant, id).to_string(),
            created_at: time(now),
            // One that may not begin yet is kept for as long after it may.
            expires_at: time(now.plus(job.delay).plus(ttl)),
            task_type: job.kind.clone(),
            input_hash: input_hash.to_owned(),
            status: Phase::Creating,
        };
        let bytes = write(&record)?;
        if let Some(version) = self.put(path, bytes.clone(), None).await? {
            return Ok(CreateOutcome::New(record, version));
        }
        let Some((found, version)) = self.store.get(path).await? else {
            return Ok(CreateOutcome::Neither);
        };
        let found = RecordFile::read(key_hash, &found)?;
        if found.task_id == record.task_id {
            return Ok(CreateOutcome::New(found, version)); // Written, and the reply was lost.
        }
        if self.is_valid(&job.tenant, &found).await? {
            return Ok(CreateOutcome::Known(found, version));
        }
        // Expired and still there: replaced, if it still is exactly that.
        let replaced = self.put(path, bytes, Some(&version)).await?;
        Ok(replaced.map_or(CreateOutcome::Neither, |version| {
            CreateOutcome::New(record, version)
        }))
    }

    /// Whether there is a valid record: then a submission adds nothing to the queue.
    async fn is_known(&self, path: &Path, key_hash: &str, tenant: &str) -> Result<bool, Error> {
        match self.store.get(path).await? {
            Some((found, _)) => {
                let found = RecordFile::read(key_hash, &found)?;
                self.is_valid(tenant, &found).await
            }
            None => Ok(false),
        }
    }

    /// Whether a record has not expired, or its task is still to be done.
    async fn is_valid(&self, tenant: &str, record: &RecordFile) -> Result<bool, Error> {
        let expired = read_time(&record.expires_at)?.plus(self.store.clock_margin());
        Ok(self.store.server_time() < expired || self.is_unfinished(tenant, record).await?)
    }

    /// Whether the task of a record is still to be done: a backlog may be longer than the time that
    /// a key is kept.
    async fn is_unfinished(&self, tenant: &str, record: &RecordFile) -> Result<bool, Error> {
        let id = record.id()?;
        let Some((bytes, _)) = self.store.get(&self.task_path(tenant, id)).await? else {
            return Ok(false);
        };
        Ok(!JobState::from(TaskFile::read(id, &bytes)?.status).has_ended())
    }

    /// `None` also if the outcome of the write is unknown: read again.
    async fn put(
        &self,
        path: &Path,
        bytes: bytes::Bytes,
        instead_of: Option<&Version>,
    ) -> Result<Option<Version>, Error> {
        match self.store.put(path, bytes, instead_of).await {
            Err(error) if error.certainty == Certainty::Unknown => Ok(None),
            other => Ok(other?),
        }
    }

    /// Creates the task that a record names, unless it is there, and says so in the record.
    async fn finish(
        &self,
        path: &Path,
        job: &NewJob,
        record: RecordFile,
        version: &Version,
    ) -> Result<SubmitOutcome, Error> {
        let id = record.id()?;
        self.create_task(job, id, Some(&record)).await?;
        let ready = RecordFile {
            status: Phase::Ready,
            ..record
        };
        // If that write lost, another submission did it. If its outcome is unknown, the next
        // submission does it.
        self.put(path, write(&ready)?, Some(version)).await?;
        Ok(SubmitOutcome::Accepted(job_ref(id)))
    }

    async fn create_task(
        &self,
        job: &NewJob,
        id: JobId,
        record: Option<&RecordFile>,
    ) -> Result<(), Error> {
        let now = self.store.server_time();
        let ttl = self.config.retention_of(job.retention)?;
        let hint = job.key.as_ref().map(|key| key.hint().as_str().to_owned());
        let task = TaskFile {
            task_id: task_id(id),
            task_type: job.kind.clone(),
            input: raw(&job.params)?,
            status: Status::Pending,
            client: job.client.clone(),
            key_hint: hint.unwrap_or_default(),
            priority: job.priority,
            attempt: 0,
            max_attempts: job.max_attempts.unwrap_or(self.config.max_attempts),
            created_at: record.map_or_else(|| time(now), |record| record.created_at.clone()),
            due_us: now.plus(job.delay).as_micros(),
            started_us: None,
            expires_at: record.map_or_else(
                || time(now.plus(job.delay).plus(ttl)),
                |record| record.expires_at.clone(),
            ),
            worker: None,
            lease: None,
            result: None,
            result_bytes: None,
            error: None,
            revision: String::new(),
        };
        let (path, bytes) = (self.task_path(&job.tenant, id), write(&task)?);
        let mut tried = 0;
        loop {
            match self.store.put(&path, bytes.clone(), None).await {
                Ok(Some(_)) => return Ok(()),
                // It is there, or the server could not tell (409).
                Ok(None) if self.store.get(&path).await?.is_some() => return Ok(()),
                Ok(None) if tried == TRIES => return Err(overtaken()),
                Err(error) if tried == TRIES || !error.is_transient() => return Err(error.into()),
                Ok(None) | Err(_) => {}
            }
            tried += 1;
            self.store.pause(tried).await;
        }
    }

    /// What a submitter is told of a task that was submitted before.
    async fn stands(&self, tenant: &str, record: &RecordFile) -> Result<SubmitOutcome, Error> {
        let id = record.id()?;
        let found = self.store.get(&self.task_path(tenant, id)).await?;
        let (bytes, _) = found.ok_or(Error::NotFound)?;
        let task = TaskFile::read(id, &bytes)?;
        let job = job_ref(id);
        Ok(match task.status {
            Status::Pending | Status::Running => SubmitOutcome::InProgress(job),
            Status::Failed => SubmitOutcome::Failed(job, task.error.unwrap_or_default()),
            Status::Completed => {
                let answer = match task.result {
                    Some(result) => JobAnswer::Kept(bytes::Bytes::from(result.get().to_owned())),
                    None => JobAnswer::Omitted {
                        bytes: task.result_bytes.unwrap_or(0),
                    },
                };
                SubmitOutcome::Completed(job, answer)
            }
        })
    }
}
