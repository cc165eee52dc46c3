use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use semel_core::claim::Mismatch;
use semel_core::event::{
    BreakerState, BusyReason, ClaimAnswer, Ending, Event, LookupResult, Observer, ShadowDecision,
    Step, StoreCall,
};
use semel_core::{Certainty, Code, Fence, Fingerprint, Identity, KeyRules, Namespace, State};
use semel_core::{StoreErrorKind, Timestamp};
use serde_json::Value;

use super::*;
use crate::audit::{PendingEvent, is_audited};
use semel_telemetry::{EventLog, TelemetryConfig};

const AT: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const FENCE: Fence = Fence(7);
const SPAN: Duration = Duration::from_secs(2);

/// Steps that together make every event.
#[expect(clippy::too_many_lines, reason = "a flat list of all steps")]
fn steps() -> Vec<Step> {
    let fingerprint = |byte| Fingerprint::from_bytes([byte; Fingerprint::BYTES]);
    let claimed = |attempt| Step::Claimed {
        fence: FENCE,
        attempt,
        took: SPAN,
        retention: SPAN,
    };
    let answered = |how| Step::Answered {
        how,
        fingerprint: fingerprint(1),
        took: SPAN,
    };
    let busy = |why| Step::Busy {
        why,
        waited: SPAN,
        limit: SPAN,
    };
    let called = |took| Step::StoreCalled {
        call: StoreCall::Claim,
        took,
        answered: true,
        claim: Some(ClaimAnswer::Hit),
    };
    let breaker = |state| Step::Breaker {
        state,
        failures: 5,
        threshold: 5,
    };
    vec![
        claimed(1),
        claimed(2),
        answered(Ending::Ran { bytes: 9 }),
        answered(Ending::HandedOut),
        answered(Ending::Unprotected),
        answered(Ending::Replayed {
            number: Some(2),
            requested_at: AT,
        }),
        Step::Replayed {
            state: State::Completed,
            local: true,
            number: Some(2),
            requested_at: AT,
        },
        Step::Mismatched {
            asked: fingerprint(0xab),
            original: Mismatch {
                fingerprint: fingerprint(0xcd),
                requested_at: Some(AT),
            },
        },
        Step::Held {
            asked: fingerprint(0xab),
            original: Mismatch {
                fingerprint: fingerprint(0xcd),
                requested_at: Some(AT),
            },
        },
        Step::WaitBegan { position: 3 },
        Step::WaitEnded {
            waited: SPAN,
            position: 3,
        },
        busy(BusyReason::WaitedTooLong),
        busy(BusyReason::Policy),
        Step::Swept { records: 4 },
        Step::Renewed { fence: FENCE },
        Step::LeaseLost { fence: FENCE },
        Step::Settled {
            state: State::Completed,
            fence: FENCE,
            bytes: 9,
        },
        Step::Unrecorded { fence: FENCE },
        Step::InDoubt { fence: FENCE },
        Step::Recovered {
            fence: FENCE,
            known: true,
        },
        Step::Verified {
            fence: FENCE,
            found: LookupResult::Done,
            attempts: 2,
            evidence: Some(fingerprint(0xab)),
        },
        Step::Resolved {
            state: State::Completed,
            fence: FENCE,
        },
        Step::Unlocked {
            state: State::Released,
            fence: FENCE,
        },
        Step::Deleted,
        Step::JobSubmitted { job: 7 },
        Step::Oversized { bytes: 10, most: 8 },
        Step::Observed {
            decision: ShadowDecision::Replay,
        },
        Step::Refused {
            code: Code::KeyRequired,
        },
        Step::FailedOpen,
        called(Duration::ZERO),
        called(SPAN),
        Step::StoreFailed {
            call: StoreCall::Claim,
            kind: StoreErrorKind::Unavailable,
            certainty: Certainty::Unknown,
        },
        breaker(BreakerState::Open),
        breaker(BreakerState::HalfOpen),
        breaker(BreakerState::Closed),
        Step::BreakerRejected,
    ]
}

/// Calls `take` with an event for each step.
fn events(mut take: impl FnMut(&Event<'_>)) {
    let namespace = Namespace::new("test", "acme", "charge").expect("well-formed");
    let key = KeyRules::default().check("order-0815-secret");
    let key = key.expect("well-formed");
    for step in steps() {
        let identity = Identity::from_bytes([5; 32]);
        let event = Event::new(&namespace, key.hint(), identity, step);
        take(&event.with_actor("agent_456").with_operation("submit"));
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log lines of all events, of so many percent of keys.
fn log_lines(percent: u8) -> Vec<Value> {
    let written = Lines::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let config = TelemetryConfig::new("memory")
        .with_debug_percent(percent)
        .with_requests_percent(percent);
    let log = EventLog::new(&config);
    tracing::subscriber::with_default(subscriber, || events(|event| log.observe(event)));
    let text = String::from_utf8(written.0.lock().clone()).expect("UTF-8");
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("JSON")
}

/// The audit entries of all events.
fn entries() -> Vec<Value> {
    let mut entries = Vec::new();
    events(|event| {
        if is_audited(&event.step) {
            let pending = PendingEvent::new(event, AT.plus(SPAN));
            let entry = pending.to_entry("1-1".to_owned());
            entries.push(serde_json::to_value(entry).expect("JSON"));
        }
    });
    entries
}

fn members(of: &Value) -> BTreeSet<String> {
    of.as_object()
        .map(|object| object.keys().cloned().collect())
        .unwrap_or_default()
}

fn named(fields: &[&str]) -> BTreeSet<String> {
    fields.iter().map(|&field| field.to_owned()).collect()
}

#[test]
fn log_lines_have_exactly_the_fields_of_the_table() {
    // What the formatter adds.
    let added = named(&["timestamp", "level", "message", "target"]);
    let mut seen = BTreeSet::new();
    for line in log_lines(100) {
        let name = line["event"].as_str().expect("a name");
        let event = EVENTS.iter().find(|event| event.event == name);
        let fields = event.and_then(|event| event.log);
        let fields = fields.unwrap_or_else(|| panic!("{name} is not in the table"));
        let expected = &(&named(fields) | &named(LOG_FIELDS)) | &added;
        assert_eq!(members(&line), expected, "{name}");
        seen.insert(name.to_owned());
    }
    let all = EVENTS.iter().filter(|event| event.log.is_some());
    assert_eq!(seen, all.map(|event| event.event.to_owned()).collect());
}

#[test]
fn warnings_and_errors_are_always_written() {
    let of = |percent, levels: &[&str]| -> Vec<String> {
        let mut lines = log_lines(percent);
        lines.retain(|line| levels.iter().any(|level| line["level"] == *level));
        let name = |line: &Value| line["event"].as_str().unwrap_or_default().to_owned();
        lines.iter().map(name).collect()
    };
    let severe = ["WARN", "ERROR"];
    assert_eq!(of(0, &severe), of(100, &severe));
    assert!(of(0, &severe).iter().any(|name| name == CONFLICT));
    assert!(of(0, &["DEBUG"]).is_empty() && !of(100, &["DEBUG"]).is_empty());
    assert!(!of(0, &["INFO"]).iter().any(|name| name == REPLAY));
}

#[test]
fn audit_entries_have_exactly_the_fields_of_the_table() {
    let mut seen = BTreeSet::new();
    for entry in entries() {
        let name = entry["type"].as_str().expect("a name");
        let event = EVENTS.iter().find(|event| event.event == name);
        let fields = event.and_then(|event| event.audit);
        let fields = fields.unwrap_or_else(|| panic!("{name} is not in the table"));
        assert_eq!(members(&entry["detail"]), named(fields), "{name}");
        let mut expected = named(AUDIT_FIELDS);
        // Written to files only, and left out where there is none.
        expected.remove("chain");
        let mut found = members(&entry);
        found.remove("detail");
        if entry["code"].is_null() {
            expected.remove("code");
        }
        assert_eq!(found, expected, "{name}");
        seen.insert(name.to_owned());
    }
    let all = EVENTS.iter().filter(|event| event.audit.is_some());
    assert_eq!(seen, all.map(|event| event.event.to_owned()).collect());
}

#[test]
fn fields_of_other_documents_are_found_or_explained() {
    for one in FIELD_MAPPINGS {
        let place = format!("{} {}", one.event, one.theirs);
        let fields = |name: &str| EVENTS.iter().find(|event| event.event == name);
        if let Some(field) = one.log {
            let own = fields(one.event).and_then(|event| event.log);
            let found = own.unwrap_or_default().contains(&field) || LOG_FIELDS.contains(&field);
            assert!(found, "{place}: {field}");
        }
        if let Some((event, field)) = one.audit {
            let own = fields(event).and_then(|event| event.audit);
            let found = own.unwrap_or_default().contains(&field)
                || (event.is_empty() && AUDIT_FIELDS.contains(&field));
            assert!(found, "{place}: {field}");
        }
        assert!(
            one.log.is_some() || one.audit.is_some() || !one.how.is_empty(),
            "{place}: no reason"
        );
    }
}

#[test]
fn values_say_who_and_what() {
    let lines = log_lines(100);
    let conflict = lines.iter().find(|line| line["event"] == CONFLICT);
    let conflict = conflict.expect("a conflict");
    for (field, value) in [
        ("actor", "agent_456"),
        ("operation", "submit"),
        ("original_hash", "cdcdcdcd"),
        ("current_hash", "abababab"),
        ("original_timestamp", "2023-11-14T22:13:20.000Z"),
    ] {
        assert_eq!(conflict[field], value, "{field}");
    }
    let entries = entries();
    let replay = entries.iter().find(|entry| entry["type"] == REPLAY);
    let replay = replay.expect("a replay");
    assert_eq!(replay["key_prefix"], "order-08");
    assert_eq!(replay["detail"]["replay_number"], 2);
    assert_eq!(replay["detail"]["since_original_ms"], 2000);
    let text = format!("{lines:?}{entries:?}");
    assert!(!text.contains("0815"), "the key is shown:\n{text}");
}
