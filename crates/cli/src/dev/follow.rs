//! The sidecars' side of the timeline: entries of their event streams become labels in plain words.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::board::Board;
use super::http::Http;
use super::run::{Event, Kind, Lane, Run, Tone};
use super::sidecar::Sidecar;
use crate::client::typed;
use crate::client::view::Entry;
use crate::events::AuditStream;

/// How long to wait before a stream that ended is opened again.
const PAUSE: Duration = Duration::from_millis(50);

/// Follows a sidecar for as long as the process runs, through kills and restarts.
pub(super) async fn follow(sidecar: Arc<Sidecar>, board: Arc<Board>) {
    let http = Http::new();
    let url = format!("http://{}/admin/v1/events?kind=idempotency.", sidecar.admin);
    loop {
        if let Ok(body) = http.stream(&url).await {
            sidecar.is_followed.store(true, Ordering::Relaxed);
            board.touch();
            let mut events = AuditStream::of(body, String::new());
            while let Some(Ok(entry)) = events.next().await {
                if let Ok(entry) = typed::<Entry>(entry) {
                    note(&board, sidecar.lane, &entry);
                }
            }
            sidecar.is_followed.store(false, Ordering::Relaxed);
            board.touch();
        }
        board.clock.sleep(PAUSE).await;
    }
}

fn note(board: &Board, lane: Lane, entry: &Entry) {
    let (Some(id), Some(at)) = (&entry.id, wall_ms(&entry.time)) else {
        return;
    };
    for event in events(lane, entry) {
        // Everybody who waits, and everybody who meets a lapsed lease, tells of it; once is enough.
        let is_told_once = event.tone == Tone::Waiting || event.kind == Kind::Lapse;
        let (kind, tone) = (event.kind, event.tone);
        let is_like = |other: &Event| other.kind == kind && other.tone == tone;
        let is_told = |run: &Run| run.events.iter().any(is_like);
        let fits = |run: &Run| run.id == *id && !(is_told_once && is_told(run));
        board.note_at(fits, at, event);
    }
}

/// The time of an entry, in milliseconds.
fn wall_ms(text: &str) -> Option<u64> {
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    u64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok()
}

/// What an entry looks like in the diagram. Renewals of a lease are left out.
fn events(lane: Lane, entry: &Entry) -> Vec<Event> {
    let is_completed = entry
        .detail
        .get("state")
        .is_some_and(|state| state == "completed");
    let one = |kind, tone, label: &str| vec![Event::note(kind, lane, tone, label)];
    let note = |tone, label: &str| Event::note(Kind::Note, lane, tone, label);
    match entry.kind.as_str() {
        "idempotency.key.created" => one(Kind::Claim, Tone::Info, "claimed"),
        "idempotency.takeover" => vec![
            Event::note(Kind::Lapse, lane, Tone::Warn, "lease lapsed"),
            Event::note(Kind::Claim, lane, Tone::Info, "taken over"),
        ],
        "idempotency.settled" if is_completed => one(Kind::Store, Tone::Good, "response stored"),
        "idempotency.settled" => one(Kind::Store, Tone::Warn, "not stored"),
        "idempotency.conflict" => vec![note(Tone::Warn, "conflict 422")],
        "idempotency.replay" => vec![note(Tone::Replayed, "replayed")],
        "idempotency.lock.contention" => vec![note(Tone::Waiting, "waiting")],
        "idempotency.in_doubt" => vec![
            Event::note(Kind::Lapse, lane, Tone::Warn, "lease lapsed"),
            note(Tone::Bad, "in doubt"),
        ],
        "idempotency.lease.lost" => vec![note(Tone::Bad, "lease lost")],
        "idempotency.resolved" => vec![note(Tone::Good, "resolved by an operator")],
        "idempotency.reset" => vec![note(Tone::Warn, "reset by an operator")],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(kind: &str, detail: &serde_json::Value) -> Vec<String> {
        let entry = Entry {
            kind: kind.to_owned(),
            detail: detail.as_object().cloned().unwrap_or_default(),
            ..Entry::default()
        };
        let events = events(Lane::B, &entry);
        events.into_iter().map(|event| event.label).collect()
    }

    #[test]
    fn entries_become_plain_words() {
        let none = serde_json::json!({});
        assert_eq!(labels("idempotency.key.created", &none), ["claimed"]);
        let taken = labels("idempotency.takeover", &none);
        assert_eq!(taken, ["lease lapsed", "taken over"]);
        let stored = serde_json::json!({"state": "completed"});
        assert_eq!(labels("idempotency.settled", &stored), ["response stored"]);
        assert!(labels("idempotency.lease.renewed", &none).is_empty());
    }

    #[test]
    fn times_of_entries_are_milliseconds() {
        assert_eq!(wall_ms("1970-01-01T00:00:01.250Z"), Some(1250));
        assert_eq!(wall_ms("soon"), None);
    }
}
