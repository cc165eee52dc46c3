//! The settings of the queue of jobs.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tree::seconds;
use super::units::{Size, Span};

/// The queue of jobs, beside the records in PostgreSQL or in a bucket.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Jobs {
    /// Whether there is one: `/mesh` on the main listener is its own then, for whom `api.access` lets in.
    pub enabled: bool,
    /// How long an answer is kept after its job has ended, and the job itself. A day where not set, 30 days in a bucket.
    pub retention: Option<Span>,
    /// The longest that a submitter may ask for, and how long dead letters are kept.
    pub max_retention: Span,
    /// The largest result that is kept; of a longer one it is remembered how long it was.
    pub max_result_bytes: Size,
    /// How often a job may be started, unless it says otherwise.
    #[schemars(range(min = 1, max = 1000))]
    pub max_attempts: u16,
    /// How long a job waits after its first failure; twice as long after each further one, up to an hour.
    pub backoff: Span,
    /// How often to look for jobs whose workers have vanished.
    pub reap_every: Span,
    /// The most jobs of one kind that wait; past it new ones are refused with 429. Any number where not set. Not in a bucket.
    #[schemars(range(min = 1))]
    pub max_queued_per_kind: Option<u64>,
    /// The most unfinished jobs of one client (`client.node_id`); past it new ones are refused with 429. Any number where not set. Not in a bucket.
    #[schemars(range(min = 1))]
    pub max_unfinished_per_client: Option<u64>,
    /// The most jobs of one kind that run at once; past it they wait. Any number where not set. Not in a bucket.
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
