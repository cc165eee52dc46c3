//! The form of the program's log lines.

use std::collections::BTreeSet;

/// Each line is JSON with an ISO 8601 time and a level; those about keys name component and event.
/// Lookups say what was found, and how long it took.
#[track_caller]
pub(crate) fn lines_have_the_form(log: &[String]) {
    let (mut levels, mut results) = (BTreeSet::new(), BTreeSet::new());
    for text in log {
        let line: serde_json::Value = serde_json::from_str(text).expect("JSON");
        let member = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        assert!(is_iso_8601(&member("timestamp")), "{text}");
        let level = member("level");
        let known = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR"];
        assert!(known.contains(&level.as_str()), "{text}");
        if line["target"] != "idempotency" {
            continue;
        }
        assert_eq!(member("component"), "idempotency", "{text}");
        let event = member("event");
        assert!(event.starts_with("idempotency."), "{text}");
        levels.insert((event.clone(), level));
        if event == "idempotency.cache.lookup" {
            assert!(line["storage_duration_ms"].is_u64(), "{text}");
            results.insert(member("result"));
        }
    }
    for (event, level) in [
        ("cache.lookup", "DEBUG"),
        ("processed", "INFO"),
        ("replay", "INFO"),
        ("in_doubt", "WARN"),
        ("conflict", "ERROR"),
        ("storage.error", "ERROR"),
    ] {
        let found = levels.contains(&(format!("idempotency.{event}"), level.to_owned()));
        assert!(found, "{event} is not {level}: {levels:?}");
    }
    assert!(
        results.contains("miss") && results.contains("in_doubt"),
        "{results:?}"
    );
}

/// Such as `2026-01-28T10:00:00.123456Z`.
fn is_iso_8601(text: &str) -> bool {
    let form = b"dddd-dd-ddTdd:dd:dd";
    let bytes = text.as_bytes();
    let fits = bytes.len() > form.len()
        && form.iter().zip(bytes).all(|(wanted, found)| match wanted {
            b'd' => found.is_ascii_digit(),
            other => other == found,
        });
    let fraction = text
        .get(form.len()..)
        .and_then(|rest| rest.strip_suffix('Z'));
    let fraction = fraction.map(|rest| rest.strip_prefix('.').unwrap_or(rest));
    fits && fraction.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}
