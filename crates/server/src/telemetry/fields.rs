//! Which fields every event has, in the log and in the audit trail, and where other documents'
//! fields are found. `docs/event-fields.md` is generated from this table.

/// The fields of every log line about a request. Those that are not known are left out.
pub const LOG_FIELDS: &[&str] = &[
    "component",
    "event",
    "scope",
    "tenant",
    "key",
    "actor",
    "operation",
];

/// The members of every audit entry besides `detail`. Those that are not known are left out.
pub const AUDIT_FIELDS: &[&str] = &[
    "event_id",
    "time",
    "type",
    "code",
    "environment",
    "tenant",
    "scope",
    "operation",
    "id",
    "key_prefix",
    "actor",
    "chain",
];

/// The further fields of one event. No field of an event is missing here.
#[derive(Clone, Copy, Debug)]
pub struct EventFields {
    /// The value of `event` in the log and of `type` in the audit trail.
    pub event: &'static str,
    /// The further fields of its log line; `None` if it has no line.
    pub log: Option<&'static [&'static str]>,
    /// The members of `detail` in its audit entry; `None` if it has no entry.
    pub audit: Option<&'static [&'static str]>,
}

const fn both(
    event: &'static str,
    log: &'static [&'static str],
    audit: &'static [&'static str],
) -> EventFields {
    EventFields {
        event,
        log: Some(log),
        audit: Some(audit),
    }
}

const fn logged(event: &'static str, log: &'static [&'static str]) -> EventFields {
    EventFields {
        event,
        log: Some(log),
        audit: None,
    }
}

const fn audited(event: &'static str, audit: &'static [&'static str]) -> EventFields {
    EventFields {
        event,
        log: None,
        audit: Some(audit),
    }
}

/// Every event of the engine.
#[rustfmt::skip]
pub const EVENTS: &[EventFields] = &[
    audited("idempotency.key.created", &["fence", "attempt", "took_ms", "ttl_ms", "expires_at"]),
    audited("idempotency.takeover", &["fence", "attempt", "took_ms", "ttl_ms", "expires_at"]),
    logged("idempotency.lock.abandoned", &["attempt", "fence"]),
    logged("idempotency.processed", &["response_size_bytes", "duration_ms"]),
    logged("idempotency.handed_out", &["duration_ms"]),
    logged("idempotency.answered", &["outcome", "duration_ms"]),
    both("idempotency.replay", &["replay_count", "original_timestamp", "duration_ms"],
        &["state", "local", "replay_number", "original_time", "since_original_ms"]),
    both("idempotency.conflict", &["conflict_type", "original_hash", "current_hash", "original_timestamp"],
        &["conflict", "original_hash", "current_hash", "original_time"]),
    both("idempotency.held", &["original_hash", "current_hash", "original_timestamp"],
        &["original_hash", "current_hash", "original_time"]),
    logged("idempotency.lock.attempt", &["queue_position"]),
    both("idempotency.lock.contention", &["wait_time_ms", "queue_depth"], &["waited_ms", "queue_depth"]),
    logged("idempotency.lock.timeout", &["wait_time_ms", "timeout_ms"]),
    both("idempotency.busy", &["why"], &["state", "why", "waited_ms", "timeout_ms"]),
    both("idempotency.key.expired", &["reason", "records"], &["reason", "records"]),
    audited("idempotency.lease.renewed", &["fence"]),
    both("idempotency.lease.lost", &["fence"], &["fence"]),
    audited("idempotency.settled", &["state", "fence", "response_bytes"]),
    both("idempotency.unrecorded", &["fence"], &["fence"]),
    both("idempotency.in_doubt", &["fence"], &["fence"]),
    audited("idempotency.recovered", &["fence", "known"]),
    both("idempotency.verified", &["found", "attempts", "evidence", "fence"],
        &["fence", "found", "attempts", "evidence"]),
    both("idempotency.resolved", &["state", "fence"], &["state", "fence"]),
    both("idempotency.unlocked", &["state", "fence"], &["state", "fence"]),
    audited("idempotency.reset", &[]),
    both("idempotency.cache.oversized", &["response_size_bytes", "max_size_bytes"], &["bytes", "most"]),
    audited("job.submitted", &["job_id"]),
    both("idempotency.observed", &["would"], &["would"]),
    both("idempotency.refused", &["code"], &["code"]),
    both("idempotency.failed_open", &[], &[]),
    logged("idempotency.cache.lookup", &["store_call", "backend", "result", "storage_duration_ms"]),
    logged("idempotency.storage.slow", &["store_call", "backend", "duration_ms", "threshold_ms"]),
    logged("idempotency.storage.error", &["store_call", "backend", "error", "changed"]),
    audited("store.failed", &["call", "kind", "changed"]),
    audited("store.breaker", &["state", "failures", "threshold"]),
    logged("idempotency.circuit_breaker.opened", &["backend", "failure_count", "threshold"]),
    logged("idempotency.circuit_breaker.half_open", &["backend"]),
    logged("idempotency.circuit_breaker.closed", &["backend"]),
    logged("idempotency.circuit_breaker.rejected", &["backend"]),
];

/// Where a field of another document is found.
#[derive(Clone, Copy, Debug)]
pub struct FieldMapping {
    /// The event in the document.
    pub event: &'static str,
    /// The field in the document.
    pub theirs: &'static str,
    /// The field of our log line of the same name, if the document has it there.
    pub log: Option<&'static str>,
    /// The member of our audit entry, if the document has it there.
    pub audit: Option<(&'static str, &'static str)>,
    /// How the two differ; why, where there is no field.
    pub how: &'static str,
}

const fn in_log(
    event: &'static str,
    theirs: &'static str,
    ours: &'static str,
    how: &'static str,
) -> FieldMapping {
    FieldMapping {
        event,
        theirs,
        log: Some(ours),
        audit: None,
        how,
    }
}

const fn in_audit(
    event: &'static str,
    theirs: &'static str,
    ours: (&'static str, &'static str),
    how: &'static str,
) -> FieldMapping {
    FieldMapping {
        event,
        theirs,
        log: None,
        audit: Some(ours),
        how,
    }
}

const fn absent(event: &'static str, theirs: &'static str, why: &'static str) -> FieldMapping {
    FieldMapping {
        event,
        theirs,
        log: None,
        audit: None,
        how: why,
    }
}

const CREATED: &str = "idempotency.key.created";
const REPLAY: &str = "idempotency.replay";
const CONFLICT: &str = "idempotency.conflict";
const EXPIRED: &str = "idempotency.key.expired";
const CONTENTION: &str = "idempotency.lock.contention";
const BUSY: &str = "idempotency.busy";
const EVERY: &str = "every event";

/// The fields of two related documents: the intake contract (log and audit) and the job queue
/// (audit).
#[rustfmt::skip]
pub const FIELD_MAPPINGS: &[FieldMapping] = &[
    in_log(EVERY, "component", "component", ""),
    in_log(EVERY, "event", "event", ""),
    in_log(EVERY, "intakeId", "scope", ""),
    in_log(EVERY, "idempotencyKey", "key", "the first characters, at most 8 and at most half, and four bytes of the hash"),
    in_log(EVERY, "operation", "operation", "`operation` of the route, the name of the tool, or the kind of the job"),
    in_log(EVERY, "actor", "actor", "one name, without a type: the principal, the job's client, or what the caller of the API says"),
    absent(EVERY, "submissionId", "Semel doesn't know the ids of the service behind it; `key` connects the lines"),
    in_log("idempotency.lock.attempt", "queuePosition", "queue_position", "of this process"),
    absent("idempotency.lock.attempt", "attemptNumber", "a caller waits once, without attempts"),
    in_log("idempotency.cache.lookup", "result", "result", "`miss`, `hit`, `in_progress`, `mismatch` or `in_doubt`"),
    in_log("idempotency.cache.lookup", "storage_duration_ms", "storage_duration_ms", ""),
    in_log(REPLAY, "original_timestamp", "original_timestamp", ""),
    in_log(REPLAY, "replay_count", "replay_count", "replays of this run's answer by this process, as long as it remembers the key"),
    in_log(REPLAY, "duration_ms", "duration_ms", ""),
    in_log("idempotency.processed", "duration_ms", "duration_ms", ""),
    in_log("idempotency.processed", "response_size_bytes", "response_size_bytes", "of what is kept: head and body"),
    in_log(EXPIRED, "reason", "reason", "one line for all records that a sweep removed; Redis removes records by itself, without a line"),
    absent(EXPIRED, "ttl_ms", "one sweep removes records of different retentions; the line has their number, `records`"),
    in_log(CONTENTION, "wait_time_ms", "wait_time_ms", ""),
    in_log(CONTENTION, "queue_depth", "queue_depth", "when the wait began, of this process"),
    in_log("idempotency.circuit_breaker.opened", "failure_count", "failure_count", ""),
    in_log("idempotency.circuit_breaker.opened", "threshold", "threshold", ""),
    in_log("idempotency.circuit_breaker.opened", "backend", "backend", "the errors have `idempotency.storage.error` lines"),
    in_log("idempotency.storage.slow", "operation", "store_call", ""),
    in_log("idempotency.storage.slow", "backend", "backend", ""),
    in_log("idempotency.storage.slow", "duration_ms", "duration_ms", ""),
    in_log("idempotency.storage.slow", "threshold_ms", "threshold_ms", ""),
    absent("idempotency.storage.slow", "p99_baseline_ms", "`semel:store_call_seconds:p99_5m` of Prometheus: a process alone knows only its own calls"),
    absent("idempotency.lock.abandoned", "lock_holder", "an owner is known by its fence, not by its host; the line has the new `fence`"),
    absent("idempotency.lock.abandoned", "lock_age_ms", "a store answers a takeover without the times of the lapsed lease"),
    in_log(CONFLICT, "conflict_type", "conflict_type", ""),
    in_log(CONFLICT, "original_hash", "original_hash", "four bytes of the keyed fingerprint"),
    in_log(CONFLICT, "current_hash", "current_hash", "the same"),
    in_log(CONFLICT, "original_timestamp", "original_timestamp", "left out where this process runs the first request itself and did not ask the store"),
    in_log("idempotency.storage.error", "operation", "store_call", ""),
    in_log("idempotency.storage.error", "backend", "backend", ""),
    in_log("idempotency.storage.error", "error", "error", "the kind of error; messages of servers may contain secrets"),
    in_log("idempotency.lock.timeout", "wait_time_ms", "wait_time_ms", ""),
    in_log("idempotency.lock.timeout", "timeout_ms", "timeout_ms", ""),
    in_log("idempotency.cache.oversized", "response_size_bytes", "response_size_bytes", ""),
    in_log("idempotency.cache.oversized", "max_size_bytes", "max_size_bytes", ""),
    in_audit(EVERY, "eventId", ("", "event_id"), ""),
    in_audit(EVERY, "eventType", ("", "type"), ""),
    in_audit(EVERY, "timestamp", ("", "time"), ""),
    in_audit(EVERY, "actor", ("", "actor"), "one name, without a type"),
    in_audit(EVERY, "metadata.intakeId", ("", "scope"), ""),
    in_audit(EVERY, "metadata.operation", ("", "operation"), ""),
    in_audit(EVERY, "metadata.idempotencyKey", ("", "id"), "the hash; `key_prefix` has the first characters"),
    in_audit(CREATED, "metadata.ttl_ms", (CREATED, "ttl_ms"), ""),
    in_audit(CREATED, "metadata.expiresAt", (CREATED, "expires_at"), "if the record isn't written again; each write prolongs it"),
    in_audit(REPLAY, "metadata.replayCount", (REPLAY, "replay_number"), "as in the log"),
    in_audit(REPLAY, "metadata.originalTimestamp", (REPLAY, "original_time"), ""),
    in_audit(REPLAY, "metadata.timeSinceOriginal_ms", (REPLAY, "since_original_ms"), ""),
    in_audit(CONFLICT, "metadata.conflictType", (CONFLICT, "conflict"), ""),
    in_audit(CONFLICT, "metadata.originalRequestHash", (CONFLICT, "original_hash"), "four bytes of the keyed fingerprint"),
    in_audit(CONFLICT, "metadata.conflictingRequestHash", (CONFLICT, "current_hash"), "the same"),
    in_audit(CONFLICT, "metadata.originalTimestamp", (CONFLICT, "original_time"), "as in the log"),
    absent(CONFLICT, "metadata.originalActor", "`actor` of the `idempotency.key.created` entry with the same `id`, so that an erasure reaches it"),
    in_audit(EXPIRED, "metadata.reason", (EXPIRED, "reason"), "one entry for all records that a sweep removed"),
    absent(EXPIRED, "metadata.lifetime_ms", "a sweep counts records; it doesn't read them"),
    in_audit(CONTENTION, "metadata.waitTime_ms", (CONTENTION, "waited_ms"), ""),
    in_audit(CONTENTION, "metadata.queueDepth", (CONTENTION, "queue_depth"), "of this process"),
    absent(CONTENTION, "metadata.lockHolder", "an owner is known by its fence, not by its host; the `idempotency.key.created` entry of the same `id` has it"),
    in_audit("IDEMPOTENCY_HIT", "key_prefix", ("", "key_prefix"), "at most half of the key"),
    in_audit("IDEMPOTENCY_HIT", "status", (REPLAY, "state"), "of `idempotency.replay`; `in_progress` in `idempotency.busy`"),
    in_audit("IDEMPOTENCY_HIT", "status (in_progress)", (BUSY, "state"), ""),
    in_audit("IDEMPOTENCY_HIT", "job_id", ("job.submitted", "job_id"), "of the `job.submitted` entry with the same `id`"),
    in_audit("IDEMPOTENCY_KEY_COLLISION", "key_prefix", ("", "key_prefix"), "at most half of the key"),
    in_audit("IDEMPOTENCY_KEY_COLLISION", "old_hash_prefix", (CONFLICT, "original_hash"), ""),
    in_audit("IDEMPOTENCY_KEY_COLLISION", "new_hash_prefix", (CONFLICT, "current_hash"), ""),
];

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
