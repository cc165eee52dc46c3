//! The table of metrics, for registration, `docs/metrics.md`, the tests and the dashboard.

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution of values in buckets.
    Histogram,
}

impl MetricKind {
    /// The name of the kind.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// The name, including the unit.
    pub name: &'static str,
    /// The kind.
    pub kind: MetricKind,
    /// The labels. With `metrics.by_tenant`, metrics with `scope` also have `tenant`.
    pub labels: &'static [&'static str],
    /// The description.
    pub help: &'static str,
    /// The event or function that it is derived from.
    pub from: &'static str,
    /// The upper bounds of a histogram's buckets, in seconds.
    pub buckets: &'static [f64],
}

/// The buckets of request durations.
const REQUEST: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 30.0,
];
/// The buckets of store call durations.
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
        kind: MetricKind::Counter,
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
        kind: MetricKind::Gauge,
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
        kind: MetricKind::Histogram,
        buckets,
        ..counter(name, labels, help, from)
    }
}

macro_rules! table {
    ($($(#[$about:meta])* $name:ident = $make:expr;)*) => {
        $($(#[$about])* pub const $name: Metric = $make;)*

        /// Every metric, in the order of `docs/metrics.md`.
        pub const ALL: &[&Metric] = &[$(&$name),*];
    };
}

#[rustfmt::skip]
table! {
    /// Requests with a key.
    REQUESTS = counter("semel_requests_total", &["scope", "operation", "outcome"],
        "Requests with a key, by outcome", "`Answered`");
    /// Durations of requests.
    REQUEST_SECONDS = histogram("semel_request_duration_seconds", &["scope", "operation", "replayed"],
        "Duration of a request with a key, including effect and waiting", "`Answered`", REQUEST);
    /// Replays.
    REPLAYS = counter("semel_replays_total", &["scope", "operation", "state", "source"],
        "Replayed answers, by state and by source: the cache of this process or the store", "`Replayed`");
    /// Requests without a key.
    PASSED = counter("semel_passed_total", &["scope", "operation"],
        "Requests without a key that passed through", "`Passed`");
    /// Requests refused before the store was asked.
    REFUSED = counter("semel_refused_total", &["scope", "operation", "code"],
        "Requests refused before the store was asked, by error code", "`Refused`");
    /// Observe mode (shadow mode).
    OBSERVED = counter("semel_observed_total", &["scope", "operation", "would"],
        "Observe mode: what enforce mode would have done", "`Observed`");
    /// Claims won.
    CLAIMS = counter("semel_claims_won_total", &["scope", "operation", "kind"],
        "Claims won, by kind: a new key, or a takeover from a crashed owner", "`Claimed`");
    /// Durations of waits.
    WAIT_SECONDS = histogram("semel_wait_duration_seconds", &["scope", "operation"],
        "Time that a request waited for a running one with the same key", "`WaitEnded`", REQUEST);
    /// Requests refused as busy.
    BUSY = counter("semel_busy_total", &["scope", "operation", "why"],
        "Requests refused because the key is running, by reason", "`Busy`");
    /// Durations of effects.
    EFFECT_SECONDS = histogram("semel_effect_duration_seconds", &["scope", "operation"],
        "Duration of an effect under its lease; the lease is held one store call longer", "`EffectEnded`", REQUEST);
    /// Effects by verdict.
    EFFECTS = counter("semel_effects_total", &["scope", "operation", "verdict"],
        "Finished effects, by verdict", "`EffectEnded`");
    /// Settlements.
    SETTLED = counter("semel_settled_total", &["scope", "operation", "state"],
        "Settlements that the store acknowledged, by state of the record", "`Settled`");
    /// Renewals.
    RENEWED = counter("semel_renewed_total", &["scope", "operation"],
        "Leases renewed", "`Renewed`");
    /// Leases lost.
    LEASES_LOST = counter("semel_leases_lost_total", &["scope", "operation"],
        "Owners that lost their lease", "`LeaseLost`");
    /// Outcomes that could not be recorded.
    UNRECORDED = counter("semel_unrecorded_total", &["scope", "operation"],
        "Effects whose outcome could not be recorded", "`Unrecorded`");
    /// Requests for keys in doubt.
    IN_DOUBT = counter("semel_in_doubt_total", &["scope", "operation"],
        "Requests for keys in doubt", "`InDoubt`");
    /// Resolved keys.
    RESOLVED = counter("semel_resolved_total", &["scope", "operation"],
        "Keys in doubt that were resolved, by an operator, a lookup or a late answer", "`Resolved`");
    /// Unlocked keys.
    UNLOCKED = counter("semel_unlocked_total", &["scope", "operation"],
        "Leases that an operator revoked", "`Unlocked`");
    /// Calls of recover hooks.
    RECOVERED = counter("semel_recovered_total", &["scope", "operation", "known"],
        "Calls of recover hooks, by whether they knew the outcome", "`Recovered`");
    /// Lookups of outcomes.
    VERIFIED = counter("semel_verified_total", &["scope", "operation", "found"],
        "Outcomes in doubt that were looked up with another tool, by what was found", "`Verified`");
    /// Conflicts.
    MISMATCHES = counter("semel_mismatches_total", &["scope", "operation"],
        "Requests with a key that was used with another payload", "`Mismatched`");
    /// Held requests.
    HELD = counter("semel_held_total", &["scope", "operation"],
        "Calls that resemble an earlier one and were held", "`Held`");
    /// New keys after a conflict.
    MISMATCH_RETRIES = counter("semel_mismatch_new_keys_total", &["scope", "operation"],
        "Payloads that were refused because of a conflict and then ran with another key", "`Answered`, by the fingerprint");
    /// Oversized answers.
    OVERSIZED = counter("semel_oversized_total", &["scope", "operation"],
        "Answers that were too large and were kept without their body", "`Oversized`");
    /// Reset keys.
    DELETED = counter("semel_deleted_total", &["scope", "operation"],
        "Keys that an operator reset", "`Deleted`");
    /// Unprotected runs.
    FAILED_OPEN = counter("semel_failed_open_total", &["scope", "operation"],
        "Effects that ran without protection because the store did not answer and the scope fails open", "`FailedOpen`");
    /// Store calls.
    STORE_CALLS = counter("semel_store_calls_total", &["backend", "call", "status"],
        "Calls to the store", "`StoreCalled`");
    /// Durations of store calls.
    STORE_SECONDS = histogram("semel_store_call_duration_seconds", &["backend", "call"],
        "Duration of a store call, including failed calls", "`StoreCalled`", STORE);
    /// Failures of store calls.
    STORE_ERRORS = counter("semel_store_errors_total", &["backend", "call", "kind"],
        "Store calls without an answer, by kind of error", "`StoreFailed`");
    /// Whether the store answers.
    STORE_UP = gauge("semel_store_up", &["backend"],
        "Whether the store answered the last query for its size: 1 or 0", "queried by a scrape, at most every 5 s");
    /// Records.
    STORE_RECORDS = gauge("semel_store_records", &["backend"],
        "Records in the store, including expired ones that are not yet removed; keeps its last value while the store is down", "queried by a scrape, at most every 5 s");
    /// Jobs.
    JOBS = gauge("semel_jobs", &["state"],
        "Jobs by state: queued, running, dead letters, or damaged files in a bucket; keeps its last value while the store is down", "queried by a scrape, at most every 5 s");
    /// Connections in use.
    CONNECTIONS = gauge("semel_store_connections_active", &["backend"],
        "Connections to the store that are in use; with Redis, one shared connection for each master", "`StoreAdmin::connections`");
    /// Exhausted connection pools.
    EXHAUSTED = counter("semel_store_connections_exhausted_total", &["backend"],
        "Calls without a connection because all were in use", "`StoreAdmin::connections`");
    /// The state of the circuit breaker.
    BREAKER = gauge("semel_breaker_state", &["backend"],
        "The circuit breaker: 0 closed, 1 open, 2 half-open", "`Engine::breaker`");
    /// State changes of the circuit breaker.
    BREAKER_CHANGES = counter("semel_breaker_changes_total", &["backend", "state"],
        "State changes of the circuit breaker, by new state", "`Breaker`");
    /// Claims that the circuit breaker rejected.
    BREAKER_REFUSALS = counter("semel_breaker_refusals_total", &["backend", "operation"],
        "Claims that were not sent because the circuit breaker was open", "`BreakerRejected`");
    /// Effects running.
    RUNNING = gauge("semel_running", &[],
        "Effects that run in this process", "`Engine::running`");
    /// The age of the oldest lease held.
    OLDEST_RUN = gauge("semel_oldest_run_age_seconds", &[],
        "Time since the claim of the oldest lease whose effect still runs in this process; 0 without one", "`Engine::oldest_run`");
    /// Callers waiting.
    WAITING = gauge("semel_waiting", &[],
        "Requests of this process that wait for a running one with the same key", "`Engine::waiting`");
    /// Audit entries lost.
    AUDIT_LOST = counter("semel_audit_lost_total", &[],
        "Audit entries that were lost because the queue was full or the sink failed", "`Trail::lost`");
    /// Audit entries waiting.
    AUDIT_WAITING = gauge("semel_audit_waiting", &[],
        "Audit entries that wait for the sink", "`Trail::waiting`");
    /// Audit copies behind.
    AUDIT_BEHIND = gauge("semel_audit_behind_bytes", &["sink"],
        "Bytes of the audit files that a copy does not have yet", "`Trail::copies`");
    /// Audit entries copied.
    AUDIT_SENT = counter("semel_audit_sent_total", &["sink"],
        "Audit entries that a copy has accepted", "`Trail::copies`");
    /// The usage of limits.
    LIMIT_USED = gauge("semel_limit_used", &["limit"],
        "Current usage of a limit: connections, requests, running, waiting, buffered (bytes)", "`Limiter::usage`");
    /// The maximum of limits.
    LIMIT_MOST = gauge("semel_limit_most", &["limit"],
        "Maximum of a limit, for all callers together", "`[limits]`");
    /// Refusals by limits.
    LIMITED = counter("semel_limited_total", &["limit", "by"],
        "Refused requests and connections, by limit (the ones above, `rate`, and `keys` for quotas) and by scope: process, tenant, principal or address", "`Limiter::refusals`");
    /// The version.
    BUILD = gauge("semel_build_info", &["version"],
        "Always 1; the label has the version", "the build");
}

/// The name of a metric in another document, and the metric of [`ALL`] or the recording rule in
/// `deploy/prometheus/recording.yaml` that corresponds to it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Mapping {
    /// The name in the document.
    pub theirs: &'static str,
    /// Our name.
    pub ours: &'static str,
    /// How the two differ.
    pub how: &'static str,
}

const fn is(theirs: &'static str, ours: &'static str, how: &'static str) -> Mapping {
    Mapping { theirs, ours, how }
}

/// The metrics of two related documents: the intake contract and the job queue.
#[rustfmt::skip]
pub const MAPPINGS: &[Mapping] = &[
    is("idempotency.request.total", "semel_requests_total", "`replayed` is `outcome=\"replayed\"`"),
    is("idempotency.request.replayed", "semel_replays_total", ""),
    is("idempotency.request.duration_ms", "semel_request_duration_seconds", "in seconds"),
    is("idempotency.cache_hit_rate", "semel:replay_ratio:rate5m", "over 5 minutes, by a recording rule"),
    is("idempotency.storage.operation.total", "semel_store_calls_total", "`acquireLock` is `claim`, `store` and `releaseLock` are `settle`, `retrieve` is `read`"),
    is("idempotency.storage.operation.duration_ms", "semel_store_call_duration_seconds", "in seconds"),
    is("idempotency.storage.error_rate", "semel:store_call_error_ratio:rate1m", "over 1 minute, by a recording rule; over all calls `semel:store_error_ratio:rate1m`"),
    is("idempotency.storage.connection_pool.active", "semel_store_connections_active", ""),
    is("idempotency.storage.connection_pool.exhausted", "semel_store_connections_exhausted_total", ""),
    is("idempotency.lock.acquired.total", "semel_claims_won_total", "both kinds together"),
    is("idempotency.lock.wait_time_ms", "semel_wait_duration_seconds", "in seconds; the first bucket ends at 1 ms, as a request that waited 0 ms did not wait"),
    is("idempotency.lock.timeout.total", "semel_busy_total", "`why=\"waited_too_long\"`"),
    is("idempotency.lock.held_duration_ms", "semel_effect_duration_seconds", "in seconds; the lease is held one store call longer"),
    is("idempotency.lock.abandoned.total", "semel_claims_won_total", "`kind=\"takeover\"`; under `hold` see `semel_in_doubt_total`"),
    is("idempotency.circuit_breaker.state", "semel_breaker_state", "the same values"),
    is("idempotency.circuit_breaker.opened.total", "semel_breaker_changes_total", "`state=\"open\"`"),
    is("idempotency.circuit_breaker.rejected_requests.total", "semel_breaker_refusals_total", "`operation` where the door names one"),
    is("idempotency.conflict.total", "semel_mismatches_total", "conflicts of payloads; two keys cannot collide, because a record contains its whole identity"),
    is("idempotency.conflict.retry_after_conflict", "semel_mismatch_new_keys_total", "counted by the process that refused it"),
    is("idempotency.key.expired.total", "semel:records_expired:rate1h", "elapsed: created records minus the growth of the store, because stores remove records themselves; deleted: `semel_deleted_total`"),
    is("idempotency.key.active_count", "semel_store_records", "of the whole store"),
    is("idempotency.key.average_lifetime_ms", "semel:record_lifetime_seconds:rate1h", "in seconds: number of records divided by the rate of new ones"),
    is("idempotent_hits_1m", "semel:hits:increase1m", "replays, and requests refused as busy"),
    is("idempotent_in_progress_1m", "semel:in_progress:increase1m", ""),
    is("idempotent_completed_1m", "semel:completed:increase1m", ""),
    is("idempotent_collisions_1m", "semel:mismatches:increase1m", ""),
    is("idempotency_store_size", "semel_store_records", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_follow_the_conventions() {
        let mut names: Vec<&str> = ALL.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            let name = metric.name;
            assert!(name.starts_with("semel_"), "{name}");
            assert_eq!(
                metric.kind == MetricKind::Counter,
                name.ends_with("_total"),
                "{name}"
            );
            assert_eq!(
                metric.kind == MetricKind::Histogram,
                name.ends_with("_duration_seconds"),
                "{name}"
            );
            assert!(metric.buckets.is_sorted(), "{name}");
            let is_bounded = |label: &&str| !["key", "id", "tenant", "actor"].contains(label);
            assert!(metric.labels.iter().all(is_bounded), "{name}");
            assert!(metric.help.len() > 10 && !metric.from.is_empty(), "{name}");
        }
    }

    /// Milliseconds, as the intake contract has them.
    #[test]
    fn histograms_have_the_buckets_of_the_intake_contract() {
        for (metric, wanted) in [
            (
                REQUEST_SECONDS,
                &[10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000][..],
            ),
            (STORE_SECONDS, &[1, 5, 10, 25, 50, 100, 250, 500, 1000]),
            (
                WAIT_SECONDS,
                &[10, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000],
            ),
            (
                EFFECT_SECONDS,
                &[10, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000],
            ),
        ] {
            for millis in wanted {
                let bound = f64::from(*millis) / 1000.0;
                let is_there = metric.buckets.contains(&bound);
                assert!(is_there, "{} has no bucket {bound}", metric.name);
            }
        }
        // `SemelLongEffects` reads this one.
        assert!(EFFECT_SECONDS.buckets.contains(&25.0));
    }
}
