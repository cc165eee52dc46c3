//! Snapshots of the screen.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use semel::core::Tick;
use serde_json::{Value, json};

use super::model::{Doubts, Model, Rates};
use super::view;
use crate::client::typed;

fn at(seconds: u64) -> Tick {
    Tick::new(Duration::from_secs(seconds))
}

fn stats(uptime_ms: u64, claimed: u64, replayed: u64) -> Value {
    json!({
        "uptime_ms": uptime_ms,
        "store": {"name": "redis", "reachable": true, "records": 1_234_567, "durable": true, "shared": true},
        "engine": {"running": 3, "waiting": 1, "breaker": "closed"},
        "audit": {"sink": "file", "waiting": 0, "lost": 0},
        "counts": [{"name": "claimed", "count": claimed}, {"name": "replayed", "count": replayed}],
    })
}

fn entry(second: u64, kind: &str, scope: &str) -> Value {
    json!({
        "event_id": format!("1-{second}"),
        "time": format!("2026-02-03T04:05:{second:02}.678Z"),
        "type": kind,
        "scope": scope,
        "id": "3f9c21d07be4".repeat(6)[..64],
        "detail": {"fence": 1_770_000_000 + second, "attempt": 1},
    })
}

fn empty() -> Model {
    let name = "the admin API at http://127.0.0.1:9090";
    let mut model = Model::new(name.to_owned(), true, 1000);
    model.stats(typed(stats(2_000, 0, 0)).unwrap(), at(0));
    model.doubts = Some(Doubts {
        count: 0,
        is_all: true,
    });
    model
}

fn busy() -> Model {
    let mut model = empty();
    let (mut claimed, mut replayed) = (0, 0);
    for second in 1..60 {
        claimed += 40 + second * 7 % 50;
        replayed += second % 13;
        model.stats(
            typed(stats(2_000 + second * 1000, claimed, replayed)).unwrap(),
            at(second),
        );
        let kind = match second % 11 {
            0 => "idempotency.conflict",
            1..=3 => "idempotency.replay",
            4 => "idempotency.takeover",
            5 => "idempotency.settled",
            _ => "idempotency.key.created",
        };
        let scope = if second % 3 == 0 {
            "POST /refunds"
        } else {
            "POST /charges"
        };
        model.entry(typed(entry(second, kind, scope)).unwrap(), at(second));
    }
    model.doubts = Some(Doubts {
        count: 2,
        is_all: false,
    });
    model
}

fn seen(model: &Model, columns: u16, lines: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    terminal.draw(|frame| view::draw(frame, model)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn screen_matches_its_snapshots() {
    insta::assert_snapshot!("empty_80x24", seen(&empty(), 80, 24));
    insta::assert_snapshot!("busy_80x24", seen(&busy(), 80, 24));
    insta::assert_snapshot!("busy_160x50", seen(&busy(), 160, 50));
}

#[test]
fn screen_shows_lost_connection_and_pause() {
    let mut model = busy();
    model.silent("the admin API can't be reached: Connection refused");
    let screen = seen(&model, 100, 30);
    assert!(
        screen.contains("no answer") && screen.contains("Connection refused"),
        "{screen}"
    );
    assert_eq!(
        model.rates,
        Rates::default(),
        "an old rate would look alive"
    );
    let mut model = busy();
    model.paused = true;
    assert!(seen(&model, 100, 30).contains("paused"));
}

#[test]
fn screen_draws_at_every_terminal_size() {
    let model = busy();
    for columns in [1, 20, 59, 60, 79, 110, 300] {
        for lines in [1, 5, 15, 16, 24, 100] {
            seen(&model, columns, lines);
        }
    }
}

#[test]
fn rates_are_differences_and_ignore_restarts() {
    let mut model = empty();
    model.stats(typed(stats(4_000, 100, 50)).unwrap(), at(2));
    assert!((model.rates.requests - 75.0).abs() < 0.001);
    assert!((model.rates.replays - 25.0).abs() < 0.001);
    model.stats(typed(stats(1_000, 5, 0)).unwrap(), at(3));
    assert!(
        (model.rates.requests - 75.0).abs() < 0.001,
        "counts that begin anew are no rate"
    );
}

#[test]
fn events_before_the_last_minute_are_listed_not_counted() {
    let mut model = empty();
    let mut now = stats(3_000, 0, 0);
    now["time"] = "2026-02-03T04:06:30.000Z".into();
    model.stats(typed(now).unwrap(), at(1));
    for second in [10, 50] {
        let entry = entry(second, "idempotency.replay", "http");
        model.entry(typed(entry).unwrap(), at(1));
    }
    assert_eq!(model.hot()[0].replays, 1);
    assert_eq!(model.entries.len(), 2);
}

#[test]
fn only_scopes_of_the_last_minute_are_counted() {
    let mut model = busy();
    let hot = model.hot();
    assert_eq!(hot[0].name, "POST /charges");
    let replays: u64 = hot.iter().map(|scope| scope.replays).sum();
    assert_eq!(
        replays,
        (1..60)
            .filter(|second| (1..=3).contains(&(second % 11)))
            .count() as u64
    );
    model.stats(typed(stats(500_000, 0, 0)).unwrap(), at(500));
    assert!(model.hot().is_empty());
}
