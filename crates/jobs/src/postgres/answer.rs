//! A job's answer in the record of its key: JSON, under a head that names the job.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::id::as_uuid;
use crate::job::{JobRef, RequestId};

/// The head of a record's answer: the job that it belongs to.
#[derive(Serialize, Deserialize)]
struct AnswerHead {
    job_id: String,
    request_id: String,
}

pub(super) fn head(job: JobRef) -> Bytes {
    let head = AnswerHead {
        job_id: job.id.to_string(),
        request_id: as_uuid(job.request_id.as_u128()),
    };
    serde_json::to_vec(&head).unwrap_or_default().into()
}

/// Which job a record's answer is of.
pub(super) fn job_of(head: &[u8]) -> Option<JobRef> {
    let head: AnswerHead = serde_json::from_slice(head).ok()?;
    let request = head.request_id.replace('-', "");
    Some(JobRef {
        id: head.job_id.parse().ok()?,
        request_id: RequestId::from_u128(u128::from_str_radix(&request, 16).ok()?),
    })
}

pub(super) fn check_json(text: &[u8]) -> Result<(), Error> {
    let read = serde_json::from_slice::<&serde_json::value::RawValue>(text);
    read.map(drop)
        .map_err(|error| Error::Params(error.to_string()))
}
