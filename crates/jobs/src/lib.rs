//! Jobs that are submitted many times, enqueued once, and answered the same every time.
//!
//! ```no_run
//! # async fn example(jobs: semel_jobs::Jobs) -> Result<(), Box<dyn std::error::Error>> {
//! use semel_jobs::SubmitOutcome;
//!
//! let submitted = jobs
//!     .submit("charge_customer", &serde_json::json!({"order": "ORD-123"}))
//!     .idempotency_key("charge-ORD-123")
//!     .await?;
//! match submitted {
//!     SubmitOutcome::Accepted(job) => println!("{} is new", job.id),
//!     SubmitOutcome::InProgress(job) => println!("{} waits or runs", job.id),
//!     SubmitOutcome::Completed(job, answer) => println!("{} is done: {answer:?}", job.id),
//!     SubmitOutcome::Failed(job, error) => println!("{} failed for good: {error}", job.id),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A job is an effect that runs elsewhere: its submission claims the key, the worker's completion
//! settles it. So a key's record says where its job stands, and everything that is true of records
//! is true of jobs (`docs/jobs.md`).
//!
//! | feature | brings |
//! |---|---|
//! | `postgres` | `PostgresQueue`: the job and the record of its key are written by one statement |
//! | `object` | `ObjectQueue`: no server but a bucket |
//! | `nats` | `nats::Submitter`: a JetStream stream as the queue, with duplicates found in front of it |
//! | `tower` | `tower::OnceLayer`: for workers that are tower services, such as those of `apalis` |

#![cfg_attr(
    not(all(feature = "object", feature = "postgres")),
    allow(dead_code, reason = "each kind of queue uses a part")
)]

mod end_watch;
mod error;
mod id;
mod job;
mod jobs;
mod queue;
mod work;

#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "object")]
pub mod object;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "tower")]
pub mod tower;

pub use error::Error;
pub use job::{
    Job, JobAnswer, JobId, JobRef, JobState, MAX_PARAMS_BYTES, MAX_PRIORITY, NewJob, RequestId,
    SubmitOutcome,
};
pub use jobs::{Jobs, SubmitRequest};
pub use queue::{
    JobCounts, JobFailure, JobPage, JobQuery, Queue, QueueConfig, QueueLimits, ReapReport,
};
pub use work::{JobLease, LeaseOptions, LeaseToken, MAX_KINDS, MAX_LEASED};

/// What the guide shows compiles.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../../../docs/jobs.md")]
struct Guide;
