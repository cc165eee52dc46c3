//! The two kinds of files.

use bytes::Bytes;
use semel_core::Timestamp;
use semel_core::hex::hex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::error::Error;
use crate::id::{as_uuid, of_uuid};
use crate::job::{Job, JobAnswer, JobId, JobRef, JobState, RequestId};
use crate::work::LeaseToken;

/// Whether the task of a record is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Phase {
    Creating,
    Ready,
}

/// `idempotency/{scope}/{key_hash}.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordFile {
    pub(super) key: String,
    pub(super) key_hash: String,
    pub(super) task_id: String,
    pub(super) task_key: String,
    pub(super) created_at: String,
    pub(super) expires_at: String,
    pub(super) task_type: String,
    pub(super) input_hash: String,
    pub(super) status: Phase,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Pending,
    Running,
    Completed,
    Failed,
}

impl From<Status> for JobState {
    fn from(status: Status) -> Self {
        match status {
            Status::Pending => Self::Queued,
            Status::Running => Self::Running,
            Status::Completed => Self::Done,
            Status::Failed => Self::Dead,
        }
    }
}

/// `tasks/{shard}/{task_id}.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TaskFile {
    pub(super) task_id: String,
    pub(super) task_type: String,
    pub(super) input: Box<RawValue>,
    pub(super) status: Status,
    pub(super) client: String,
    /// How the key begins.
    pub(super) key_hint: String,
    pub(super) priority: u8,
    pub(super) attempt: u16,
    pub(super) max_attempts: u16,
    pub(super) created_at: String,
    /// Pending: not before. Running: until. Ended: since. Microseconds since 1970 on the server's
    /// clock.
    pub(super) due_us: u64,
    pub(super) started_us: Option<u64>,
    /// After its end, the task is kept until then.
    pub(super) expires_at: String,
    pub(super) worker: Option<String>,
    /// Of the worker that has it, or had it last.
    pub(super) lease: Option<String>,
    pub(super) result: Option<Box<RawValue>>,
    pub(super) result_bytes: Option<u64>,
    pub(super) error: Option<String>,
    /// Makes no two states of a task the same bytes, and so the same tag.
    pub(super) revision: String,
}

impl RecordFile {
    /// The record of that key. Another's, or one that says nonsense, is damage: it is never taken
    /// for this one, nor for none.
    pub(super) fn read(key_hash: &str, bytes: &[u8]) -> Result<Self, Error> {
        let record: Self = read(bytes)?;
        record.id()?;
        read_time(&record.expires_at)?;
        let is_ours = record.key_hash.strip_prefix("sha256:") == Some(key_hash);
        is_ours.then_some(record).ok_or_else(unreadable)
    }

    pub(super) fn id(&self) -> Result<JobId, Error> {
        of_uuid(&self.task_id)
            .map(JobId::from_u128)
            .ok_or_else(unreadable)
    }
}

impl TaskFile {
    /// The task of that id, by the same rule.
    pub(super) fn read(id: JobId, bytes: &[u8]) -> Result<Self, Error> {
        let mut task: Self = read(bytes)?;
        read_time(&task.created_at)?;
        read_time(&task.expires_at)?;
        // No result is written as `null`, and the result `null` too; but what is done has one, or
        // says how long it was.
        let has_none = task.result.is_none() && task.result_bytes.is_none();
        if task.status == Status::Completed && has_none {
            task.result = Some(raw(b"null")?);
        }
        (task.id()? == id).then_some(task).ok_or_else(unreadable)
    }

    pub(super) fn id(&self) -> Result<JobId, Error> {
        of_uuid(&self.task_id)
            .map(JobId::from_u128)
            .ok_or_else(unreadable)
    }

    pub(super) fn is_leased_under(&self, lease: LeaseToken) -> bool {
        self.lease.as_deref() == Some(&token(lease))
    }

    pub(super) fn job(&self, tenant: &str) -> Result<Job, Error> {
        let id = self.id()?;
        let answer = match (&self.result, self.result_bytes) {
            (Some(result), _) => Some(JobAnswer::Kept(Bytes::from(result.get().to_owned()))),
            (None, Some(bytes)) => Some(JobAnswer::Omitted { bytes }),
            (None, None) => None,
        };
        Ok(Job {
            id,
            request_id: RequestId::from_u128(id.as_u128()),
            tenant: tenant.to_owned(),
            kind: self.task_type.clone(),
            client: self.client.clone(),
            hint: self.key_hint.clone(),
            state: self.status.into(),
            priority: self.priority,
            attempt: self.attempt,
            max_attempts: self.max_attempts,
            worker: self.worker.clone(),
            due_at: Timestamp::from_micros(self.due_us),
            created_at: read_time(&self.created_at)?,
            started_at: self.started_us.map(Timestamp::from_micros),
            params_bytes: self.input.get().len() as u64,
            answer,
            error: self.error.clone(),
        })
    }
}

pub(super) fn job_ref(id: JobId) -> JobRef {
    JobRef {
        id,
        request_id: RequestId::from_u128(id.as_u128()),
    }
}

/// A lease token as it is written. A digest: whoever can read the bucket can't act for a worker.
pub(super) fn token(lease: LeaseToken) -> String {
    hex(&Sha256::digest(lease.0.to_be_bytes()))
}

/// `sha256(scope:key)`
pub(super) fn key_hash(scope: &str, key: &str) -> String {
    hex(&Sha256::digest(format!("{scope}:{key}")))
}

/// Of the canonical form of the input: member order and white space don't count.
pub(super) fn input_hash(input: &[u8]) -> Result<String, Error> {
    let canonical = semel_core::canonicalize(input);
    let canonical = canonical.map_err(|error| Error::Params(error.to_string()))?;
    Ok(format!("sha256:{}", hex(&Sha256::digest(canonical))))
}

/// The shards of the tasks.
pub(super) const SHARDS: [&str; 16] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f",
];

/// By the last digit, which is random.
pub(super) fn shard(id: JobId) -> &'static str {
    SHARDS[usize::try_from(id.as_u128() & 0xf).unwrap_or(0)]
}

/// To the second, as the layout has it.
pub(super) fn time(at: Timestamp) -> String {
    let seconds = i64::try_from(at.as_micros() / 1_000_000).unwrap_or(0);
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    at.format(&Rfc3339).unwrap_or_default()
}

pub(super) fn read_time(text: &str) -> Result<Timestamp, Error> {
    let at = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| unreadable())?;
    let micros = u64::try_from(at.unix_timestamp_nanos() / 1000);
    micros.map(Timestamp::from_micros).map_err(|_| unreadable())
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|_| unreadable())
}

pub(super) fn write(file: &impl Serialize) -> Result<Bytes, Error> {
    let written = serde_json::to_vec(file);
    Ok(written
        .map_err(|error| Error::Params(error.to_string()))?
        .into())
}

pub(super) fn raw(text: &[u8]) -> Result<Box<RawValue>, Error> {
    serde_json::from_slice(text).map_err(|error| Error::Params(error.to_string()))
}

pub(super) fn task_id(id: JobId) -> String {
    as_uuid(id.as_u128())
}

pub(super) fn unreadable() -> Error {
    Error::Store(semel_core::StoreError::new(
        semel_core::StoreErrorKind::Record,
        semel_core::Certainty::Definite,
        "an object that this version can't read",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_layout() {
        // printf 'charge_customer:charge-ORD-123' | sha256sum
        assert_eq!(
            key_hash("charge_customer", "charge-ORD-123"),
            "c16719dc40dc60cc79d7a0dbe8e090c1b2a0efd6fdc45629311f0c2c5ce5782c"
        );
        let one = input_hash(br#"{"b": 1, "a": [1.0, 2]}"#).unwrap();
        assert_eq!(one, input_hash(br#"{"a":[1,2],"b":1}"#).unwrap());
        assert_ne!(one, input_hash(br#"{"a":[1,2],"b":2}"#).unwrap());
    }

    const TASK: &str = r#"{"task_id":"01900000-0000-7000-8000-000000000001","task_type":"charge","input":{"n":1},"status":"pending","client":"","key_hint":"k-1","priority":5,"attempt":0,"max_attempts":5,"created_at":"2026-01-27T12:00:00Z","due_us":1,"started_us":null,"expires_at":"2026-02-26T12:00:00Z","worker":null,"lease":null,"result":null,"result_bytes":null,"error":null,"revision":""}"#;

    #[test]
    fn damaged_or_foreign_task_file_is_rejected() {
        let id = JobId::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001);
        assert_eq!(
            TaskFile::read(id, TASK.as_bytes()).unwrap().id().unwrap(),
            id
        );
        let other = JobId::from_u128(id.as_u128() + 1);
        assert!(TaskFile::read(other, TASK.as_bytes()).is_err());
        for (was, is) in [
            ("01900000-0000", "+1900000-0000"),
            ("01900000-0000", "0190000000-00"),
            ("2026-01-27T12", "yesterday"),
            ("2026-02-26T12", "0001-02-26T12"),
            ("\"pending\"", "\"gone\""),
        ] {
            let damaged = TASK.replacen(was, is, 1);
            assert!(TaskFile::read(id, damaged.as_bytes()).is_err(), "{is}");
        }
        for end in 0..TASK.len() {
            assert!(
                TaskFile::read(id, &TASK.as_bytes()[..end]).is_err(),
                "{end}"
            );
        }
    }

    #[test]
    fn null_result_belongs_to_completed_tasks_only() {
        let id = JobId::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001);
        let answer = |task: &str| {
            let task = TaskFile::read(id, task.as_bytes()).unwrap();
            task.job("").unwrap().answer
        };
        let done = TASK.replace("\"pending\"", "\"completed\"");
        let null = Some(JobAnswer::Kept(Bytes::from_static(b"null")));
        assert_eq!(answer(&done), null);
        assert_eq!(answer(&done.replace("\"result\":null,", "")), null);
        let long = done.replace("\"result_bytes\":null", "\"result_bytes\":70000");
        assert_eq!(answer(&long), Some(JobAnswer::Omitted { bytes: 70_000 }));
        for status in ["pending", "running", "failed"] {
            let task = TASK.replace("pending", status);
            assert_eq!(answer(&task), None, "{status}");
            assert_eq!(answer(&task.replace("\"result\":null,", "")), None);
        }
    }

    #[test]
    fn a_record_at_another_keys_place_is_refused() {
        let hash = key_hash("charge", "k-1");
        let record = format!(
            r#"{{"key":"k-1","key_hash":"sha256:{hash}","task_id":"01900000-0000-7000-8000-000000000001","task_key":"t","created_at":"2026-01-27T12:00:00Z","expires_at":"2026-02-26T12:00:00Z","task_type":"charge","input_hash":"sha256:0","status":"ready"}}"#
        );
        assert!(RecordFile::read(&hash, record.as_bytes()).is_ok());
        let other = key_hash("charge", "k-2");
        assert!(RecordFile::read(&other, record.as_bytes()).is_err());
        let never = record.replace("2026-02-26T12:00:00Z", "soon");
        assert!(RecordFile::read(&hash, never.as_bytes()).is_err());
    }

    #[test]
    fn times_are_to_the_second_and_can_be_read_back() {
        let at = Timestamp::from_micros(1_769_515_200_000_000);
        assert_eq!(time(at), "2026-01-27T12:00:00Z");
        assert_eq!(read_time("2026-01-27T12:00:00Z").unwrap(), at);
        assert!(read_time("yesterday").is_err());
    }
}
