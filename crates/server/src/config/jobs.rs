//! The settings of the job queue.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::{Size, Span, seconds};

/// The job queue, in the same PostgreSQL database or bucket as the records.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Jobs {
    /// Whether the queue is enabled. Its API is at `/mesh` on the main listener, for callers that
    /// `api.access` allows.
    pub enabled: bool,
    /// How long to keep a finished job and its result. Default: one day, or 30 days in a bucket.
    pub retention: Option<Span>,
    /// The longest retention that a submitter may ask for, and the retention of dead letters.
    pub max_retention: Span,
    /// The largest result to keep. Of a larger one, only the size is kept.
    pub max_result_bytes: Size,
    /// How often a job may be started, unless the submission sets it.
    #[schemars(range(min = 1, max = 1000))]
    pub max_attempts: u16,
    /// How long a job waits after its first failure. Each further failure doubles this, up to an
    /// hour.
    pub backoff: Span,
    /// How often to look for jobs whose worker has disappeared. In a bucket the pauses grow to ten
    /// times as long while no job runs.
    pub reap_every: Span,
    /// The maximum number of waiting jobs of one kind. Further submissions get 429. Unlimited if
    /// not set. Not available in a bucket.
    #[schemars(range(min = 1))]
    pub max_queued_per_kind: Option<u64>,
    /// The maximum number of unfinished jobs of one client (`client.node_id`). Further submissions
    /// get 429. Unlimited if not set. Not available in a bucket.
    #[schemars(range(min = 1))]
    pub max_unfinished_per_client: Option<u64>,
    /// The maximum number of jobs of one kind that run at the same time; others wait. Unlimited if
    /// not set. Not available in a bucket.
    #[schemars(range(min = 1))]
    pub max_running_per_kind: Option<u64>,
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            enabled: false,
            retention: None,
            max_retention: Span(Duration::from_secs(30 * 24 * 60 * 60)),
            max_result_bytes: Size(16 * 1024),
            max_attempts: 5,
            backoff: seconds(1),
            reap_every: seconds(1),
            max_queued_per_kind: None,
            max_unfinished_per_client: None,
            max_running_per_kind: None,
        }
    }
}
