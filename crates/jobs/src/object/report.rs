//! Reports submissions and ends to the observer of an engine: a bucket decides by itself, so the
//! engine sees none of these requests.

use std::time::Duration;

use semel_core::claim::Mismatch;
use semel_core::engine::Engine;
use semel_core::event::{BusyReason, Ending, Event, Step};
use semel_core::{Code, Fence, Fingerprint, Identity, Key, KeyHint, Namespace, State, Timestamp};

use super::file::{RecordFile, Status, TaskFile, read_time};
use super::submit::Placed;
use crate::job::{NewJob, SubmitOutcome};

pub(super) struct Reporter {
    engine: Engine,
    environment: String,
}

impl Reporter {
    pub(super) fn new(engine: &Engine, environment: &str) -> Self {
        Self {
            engine: engine.clone(),
            environment: environment.to_owned(),
        }
    }

    /// Reports a submission with a key.
    pub(super) fn report_submission(&self, job: &NewJob, placed: &Placed, took: Duration) {
        let (step, how, input_hash) = match placed {
            Placed::Unkeyed(_) => return,
            Placed::New(_, record) => {
                (claimed(record, took), Ending::HandedOut, &record.input_hash)
            }
            Placed::Known(outcome, record) => {
                let (step, how) = known(outcome, record);
                (step, how, &record.input_hash)
            }
            Placed::Conflict { record, input_hash } => {
                let original = Mismatch {
                    fingerprint: self.fingerprint(&record.task_type, &record.input_hash),
                    requested_at: Some(created_at(record)),
                };
                let asked = self.fingerprint(&job.kind, input_hash);
                let step = Step::Mismatched { asked, original };
                (step, Ending::Problem(Code::Conflict), input_hash)
            }
        };
        let Some(key) = &job.key else { return };
        let fingerprint = self.fingerprint(&job.kind, input_hash);
        self.report(job, key, step);
        let answered = Step::Answered {
            how,
            fingerprint,
            took,
        };
        self.report(job, key, answered);
        if let Placed::New(outcome, _) = placed {
            let job_id = outcome.job().id.as_u128();
            self.report(job, key, Step::JobSubmitted { job: job_id });
        }
    }

    fn report(&self, job: &NewJob, key: &Key, step: Step) {
        let scope = job.scope.as_deref().unwrap_or(&job.kind);
        let Some(namespace) = self.namespace(&job.tenant, scope) else {
            return;
        };
        let identity = Identity::new(self.engine.secret(), &namespace, key);
        let event = Event::new(&namespace, key.hint(), identity, step);
        let actor = (!job.client.is_empty()).then_some(job.client.as_str());
        let event = event.with_actor(actor).with_operation(job.kind.as_str());
        self.engine.report_event(&event);
    }

    /// Reports the end of a task with a key. The task knows neither the key nor its scope, so the
    /// event has the task's type as its scope, and no key.
    pub(super) fn report_end(&self, tenant: &str, task: &TaskFile) {
        let state = match task.status {
            Status::Completed => State::Completed,
            Status::Failed => State::Failed,
            Status::Pending | Status::Running => return,
        };
        let namespace = self.namespace(tenant, &task.task_type);
        let (false, Some(namespace)) = (task.key_hint.is_empty(), namespace) else {
            return;
        };
        let bytes = task.result.as_ref().map_or(0, |result| result.get().len());
        let step = Step::Settled {
            state,
            fence: read_time(&task.created_at).map_or(Fence(0), fence_at),
            bytes: bytes as u64,
        };
        let nobody = Identity::from_bytes([0; 32]);
        let event = Event::new(&namespace, KeyHint::default(), nobody, step);
        let client = Some(task.client.as_str()).filter(|client| !client.is_empty());
        let event = event.with_actor(client);
        self.engine
            .report_event(&event.with_operation(task.task_type.as_str()));
    }

    /// As that of a queue in PostgreSQL, so that both are in the same metrics.
    fn namespace(&self, tenant: &str, scope: &str) -> Option<Namespace> {
        Namespace::new(&self.environment, tenant, &format!("job:{scope}")).ok()
    }

    /// A keyed digest of a task's input, because the one in the record has no key.
    fn fingerprint(&self, kind: &str, input_hash: &str) -> Fingerprint {
        Fingerprint::builder(self.engine.secret())
            .part(kind.as_bytes())
            .part(input_hash.as_bytes())
            .finish()
    }
}

/// A bucket has no fences; the time of the submission stands in.
fn fence_at(time: Timestamp) -> Fence {
    Fence(time.as_micros())
}

fn created_at(record: &RecordFile) -> Timestamp {
    read_time(&record.created_at).unwrap_or(Timestamp::from_micros(0))
}

fn claimed(record: &RecordFile, took: Duration) -> Step {
    let expires = read_time(&record.expires_at).unwrap_or(created_at(record));
    Step::Claimed {
        fence: fence_at(created_at(record)),
        attempt: 1,
        took,
        retention: expires.since(created_at(record)),
    }
}

fn known(outcome: &SubmitOutcome, record: &RecordFile) -> (Step, Ending) {
    let state = match outcome {
        SubmitOutcome::Completed(..) => State::Completed,
        SubmitOutcome::Failed(..) => State::Failed,
        SubmitOutcome::Accepted(_) | SubmitOutcome::InProgress(_) => {
            let (waited, limit) = (Duration::ZERO, Duration::ZERO);
            let why = BusyReason::Policy;
            let busy = Step::Busy { why, waited, limit };
            return (busy, Ending::Problem(Code::InFlight));
        }
    };
    let (number, requested_at) = (None, created_at(record));
    let replayed = Step::Replayed {
        state,
        local: false,
        number,
        requested_at,
    };
    let how = Ending::Replayed {
        number,
        requested_at,
    };
    (replayed, how)
}
