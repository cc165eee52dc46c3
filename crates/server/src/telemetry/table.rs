//! The table of metrics: what is registered, what `docs/metrics.md` says, and what the tests and the dashboard are
//! checked against.

/// What kind of metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
}

impl Kind {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name, which carries its unit.
    pub name: &'static str,
    /// What kind.
    pub kind: Kind,
    /// What it is told apart by. `scope` is joined by `tenant` where `metrics.by_tenant` says so.
    pub labels: &'static [&'static str],
    /// What it is, for people.
    pub help: &'static str,
    /// What it is derived from.
    pub from: &'static str,
    /// The upper bounds, in seconds, of a histogram.
    pub buckets: &'static [f64],
}

/// The bounds of requests.
const REQUEST: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
/// The bounds of store calls.
const STORE: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    from: &'static str,
) -> Metric {
    Metric {
        name,
        kind: Kind::Counter,
        labels,
        help,
        from,
        buckets: &[],
    }
}

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    from: &'static str,
) -> Metric {
    Metric {
        kind: Kind::Gauge,
        ..counter(name, labels, help, from)
    }
}

const fn histogram(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    from: &'static str,
    buckets: &'static [f64],
) -> Metric {
    Metric {
        kind: Kind::Histogram,
        buckets,
        ..counter(name, labels, help, from)
    }
}

macro_rules! table {
    ($($(#[$about:meta])* $name:ident = $make:expr;)*) => {
        $($(#[$about])* pub const $name: Metric = $make;)*

        /// Every metric, in the order of the page.
        pub const ALL: &[&Metric] = &[$(&$name),*];
    };
}

#[rustfmt::skip]
table! {
    /// Requests.
    REQUESTS = counter("semel_requests_total", &["scope", "outcome"],
        "Requests with a key, by how they ended", "`Answered`");
    /// How long requests took.
    REQUEST_SECONDS = histogram("semel_request_duration_seconds", &["scope", "replayed"],
        "Time of a request with a key, effect and waiting included", "`Answered`", REQUEST);
    /// Replays.
    REPLAYS = counter("semel_replays_total", &["scope", "state", "source"],
        "Answers given from a record: completed or failed, from this process's copy or from the store", "`Replayed`");
    /// Requests without a key.
    PASSED = counter("semel_passed_total", &["scope"],
        "Requests without a key that were let pass", "`Passed`");
    /// Requests refused at the door.
    REFUSED = counter("semel_refused_total", &["scope", "code"],
        "Requests refused before the store was asked, by the code that the caller was given", "`Refused`");
    /// Shadow mode.
    OBSERVED = counter("semel_observed_total", &["scope", "would"],
        "Observe mode: what enforcing would have done", "`Observed`");
    /// Claims won.
    CLAIMS = counter("semel_claims_won_total", &["scope", "kind"],
        "Leases won: of a new key, or taken over from an owner that vanished", "`Claimed`");
    /// Time of waiting.
    WAIT_SECONDS = histogram("semel_wait_duration_seconds", &["scope"],
        "Time that a caller waited for another's run", "`WaitEnded`", REQUEST);
    /// Callers told "busy".
    BUSY = counter("semel_busy_total", &["scope", "why"],
        "Callers told that another runs, by why they did not wait any longer", "`Busy`");
    /// Time of effects.
    EFFECT_SECONDS = histogram("semel_effect_duration_seconds", &["scope"],
        "Time that an effect ran under its lease; the lease is held one store call longer", "`EffectEnded`", REQUEST);
    /// Effects by verdict.
    EFFECTS = counter("semel_effects_total", &["scope", "verdict"],
        "Effects that ended, by what they reported", "`EffectEnded`");
    /// Settlements.
    SETTLED = counter("semel_settled_total", &["scope", "state"],
        "Settlements acknowledged by the store, by what the record says then", "`Settled`");
    /// Renewals.
    RENEWED = counter("semel_renewed_total", &["scope"],
        "Leases renewed", "`Renewed`");
    /// Leases lost.
    LEASES_LOST = counter("semel_leases_lost_total", &["scope"],
        "Owners that learned that they are it no longer", "`LeaseLost`");
    /// Outcomes that could not be recorded.
    UNRECORDED = counter("semel_unrecorded_total", &["scope"],
        "Effects that ran and whose outcome could not be recorded", "`Unrecorded`");
    /// Callers that met a doubt.
    IN_DOUBT = counter("semel_in_doubt_total", &["scope"],
        "Callers that met an operation of unknown outcome", "`InDoubt`");
    /// Doubts ended.
    RESOLVED = counter("semel_resolved_total", &["scope"],
        "Doubts ended by an operator", "`Resolved`");
    /// Leases taken away.
    UNLOCKED = counter("semel_unlocked_total", &["scope"],
        "Leases taken from their owner by an operator", "`Unlocked`");
    /// Recover hooks.
    RECOVERED = counter("semel_recovered_total", &["scope", "known"],
        "Recover hooks asked, by whether they knew", "`Recovered`");
    /// Other payloads.
    MISMATCHES = counter("semel_mismatches_total", &["scope"],
        "Keys used with another payload", "`Mismatched`");
    /// New keys after a mismatch.
    MISMATCH_RETRIES = counter("semel_mismatch_new_keys_total", &["scope"],
        "Payloads that were refused under a used key, and then ran under another", "`Answered`, by the fingerprint");
    /// Answers too large.
    OVERSIZED = counter("semel_oversized_total", &["scope"],
        "Answers larger than what is kept: remembered without their body", "`Oversized`");
    /// Keys made as new.
    DELETED = counter("semel_deleted_total", &["scope"],
        "Keys made as new by an operator", "`Deleted`");
    /// Unprotected runs.
    FAILED_OPEN = counter("semel_failed_open_total", &["scope"],
        "Effects run unprotected because the store gave no answer and the scope says so", "`FailedOpen`");
    /// Store calls.
    STORE_CALLS = counter("semel_store_calls_total", &["backend", "call", "status"],
        "Calls to the store", "`StoreCalled`");
    /// Time of store calls.
    STORE_SECONDS = histogram("semel_store_call_duration_seconds", &["backend", "call"],
        "Time of a call to the store, failed ones included", "`StoreCalled`", STORE);
    /// Failures of store calls.
    STORE_ERRORS = counter("semel_store_errors_total", &["backend", "call", "kind"],
        "Calls to the store that got no answer, by why", "`StoreFailed`");
    /// Whether the store answers.
    STORE_UP = gauge("semel_store_up", &["backend"],
        "Whether the store answered when it was last asked for its size: 1 or 0", "asked when scraped, at most every 5 s");
    /// Records.
    STORE_RECORDS = gauge("semel_store_records", &["backend"],
        "Records in the store, expired ones included that nobody has removed yet; the last known while it is down", "asked when scraped, at most every 5 s");
    /// Jobs.
    JOBS = gauge("semel_jobs", &["state"],
        "Jobs that wait, run, are dead letters, or are files in a bucket that can't be read, where there is a queue; the last known while the store is down", "asked when scraped, at most every 5 s");
    /// Connections in use.
    CONNECTIONS = gauge("semel_store_connections_active", &["backend"],
        "Connections to the store that are in use; with Redis, the one of each master that all calls share", "`StoreAdmin::connections`");
    /// Pools that ran dry.
    EXHAUSTED = counter("semel_store_connections_exhausted_total", &["backend"],
        "Calls that got no connection because all were in use", "`StoreAdmin::connections`");
    /// The breaker.
    BREAKER = gauge("semel_breaker_state", &["backend"],
        "What the breaker lets through: 0 closed, 1 open, 2 half-open", "`Engine::breaker`");
    /// Changes of the breaker.
    BREAKER_CHANGES = counter("semel_breaker_changes_total", &["backend", "state"],
        "Changes of the breaker, by what it became", "`Breaker`");
    /// Turned away by the breaker.
    NOT_ASKED = counter("semel_breaker_refusals_total", &["backend"],
        "Claims not sent because the breaker was open", "`NotAsked`");
    /// Effects running.
    RUNNING = gauge("semel_running", &[],
        "Effects that run in this process", "`Engine::running`");
    /// Callers waiting.
    WAITING = gauge("semel_waiting", &[],
        "Callers of this process that wait for another's run", "`Engine::waiting`");
    /// Audit entries lost.
    AUDIT_LOST = counter("semel_audit_lost_total", &[],
        "Audit entries that were left out: the queue was full, or the sink did not take them", "`Trail::lost`");
    /// Audit entries waiting.
    AUDIT_WAITING = gauge("semel_audit_waiting", &[],
        "Audit entries that wait for the sink", "`Trail::waiting`");
    /// Audit copies behind.
    AUDIT_BEHIND = gauge("semel_audit_behind_bytes", &["sink"],
        "Bytes of the audit files that a copy elsewhere doesn't have yet", "`Trail::copies`");
    /// Audit entries copied.
    AUDIT_SENT = counter("semel_audit_sent_total", &["sink"],
        "Audit entries that a copy elsewhere took", "`Trail::copies`");
    /// What is taken.
    LIMIT_USED = gauge("semel_limit_used", &["limit"],
        "What is taken of a limit now: connections, requests, running, waiting, buffered (bytes)", "`Limiter::used_with`");
    /// What may be taken.
    LIMIT_MOST = gauge("semel_limit_most", &["limit"],
        "How much of it may be taken, by all callers together", "`[limits]`");
    /// Who met a limit.
    LIMITED = counter("semel_limited_total", &["limit", "by"],
        "Requests and connections turned away, by what there was no more of and whose share that was", "`Limiter::refusals`");
    /// Which build.
    BUILD = gauge("semel_build_info", &["version"],
        "1; its label says which version runs", "the build");
}

/// What a document names, and what it is here: a metric of [`ALL`], or a recording rule of
/// `deploy/prometheus/recording.yaml`.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// Its name in the document.
    pub theirs: &'static str,
    /// Ours.
    pub ours: &'static str,
    /// How to read it.
    pub how: &'static str,
}

const fn is(theirs: &'static str, ours: &'static str, how: &'static str) -> Mapping {
    Mapping { theirs, ours, how }
}

/// The metrics of the two documents that this follows: the intake contract's, and the job queue's.
#[rustfmt::skip]
pub const MAPPINGS: &[Mapping] = &[
    is("idempotency.request.total", "semel_requests_total", "`replayed` is `outcome=\"replayed\"`"),
    is("idempotency.request.replayed", "semel_replays_total", ""),
    is("idempotency.request.duration_ms", "semel_request_duration_seconds", "in seconds"),
    is("idempotency.cache_hit_rate", "semel:replay_ratio:rate5m", "rolling over 5 minutes, by a recording rule"),
    is("idempotency.storage.operation.total", "semel_store_calls_total", "`acquireLock` is `claim`, `store` and `releaseLock` are `settle`, `retrieve` is `read`"),
    is("idempotency.storage.operation.duration_ms", "semel_store_call_duration_seconds", "in seconds"),
    is("idempotency.storage.error_rate", "semel:store_error_ratio:rate1m", "rolling over 1 minute, by a recording rule"),
    is("idempotency.storage.connection_pool.active", "semel_store_connections_active", ""),
    is("idempotency.storage.connection_pool.exhausted", "semel_store_connections_exhausted_total", ""),
    is("idempotency.lock.acquired.total", "semel_claims_won_total", "both kinds together"),
    is("idempotency.lock.wait_time_ms", "semel_wait_duration_seconds", "in seconds"),
    is("idempotency.lock.timeout.total", "semel_busy_total", "`why=\"waited_too_long\"`"),
    is("idempotency.lock.held_duration_ms", "semel_effect_duration_seconds", "in seconds; the lease is held one store call longer"),
    is("idempotency.lock.abandoned.total", "semel_claims_won_total", "`kind=\"takeover\"`; under `hold` see `semel_in_doubt_total`"),
    is("idempotency.circuit_breaker.state", "semel_breaker_state", "the same values"),
    is("idempotency.circuit_breaker.opened.total", "semel_breaker_changes_total", "`state=\"open\"`"),
    is("idempotency.circuit_breaker.rejected_requests.total", "semel_breaker_refusals_total", ""),
    is("idempotency.conflict.total", "semel_mismatches_total", "of another payload; two keys can't collide, as a record is sealed with its whole identity"),
    is("idempotency.conflict.retry_after_conflict", "semel_mismatch_new_keys_total", "seen by the process that refused it"),
    is("idempotency.key.expired.total", "semel:records_expired:rate1h", "elapsed: stores remove records themselves, so what vanished is what was made less what the store grew by; deleted: `semel_deleted_total`"),
    is("idempotency.key.active_count", "semel_store_records", "of the whole store"),
    is("idempotency.key.average_lifetime_ms", "semel:record_lifetime_seconds:rate1h", "in seconds: records present, by the rate at which they are made"),
    is("idempotent_hits_1m", "semel:hits:increase1m", "replays, and callers told that another runs"),
    is("idempotent_in_progress_1m", "semel:in_progress:increase1m", ""),
    is("idempotent_completed_1m", "semel:completed:increase1m", ""),
    is("idempotent_collisions_1m", "semel:mismatches:increase1m", ""),
    is("idempotency_store_size", "semel_store_records", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions_and_are_unique() {
        let mut names: Vec<&str> = ALL.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            let name = metric.name;
            assert!(name.starts_with("semel_"), "{name}");
            assert_eq!(
                metric.kind == Kind::Counter,
                name.ends_with("_total"),
                "{name}"
            );
            assert_eq!(
                metric.kind == Kind::Histogram,
                name.ends_with("_seconds"),
                "{name}"
            );
            assert!(metric.buckets.is_sorted(), "{name}");
            let is_bounded = |label: &&str| !["key", "id", "tenant", "actor"].contains(label);
            assert!(metric.labels.iter().all(is_bounded), "{name}");
            assert!(metric.help.len() > 10 && !metric.from.is_empty(), "{name}");
        }
    }
}
