//! Three sidecars on one Redis, in front of one service, under load and retries; one is killed,
//! another is paused for longer than its lease. Longer runs: `SEMEL_CHAOS_SECONDS=120`.

mod check;
mod fleet;
mod load;
mod upstream;

use std::time::Duration;

use check::{Crash, Disturbance, History};
use fleet::{Fleet, LEASE, now, pause_for};
use load::{CARD, Callers, key};
use semel_testkit::private::RedisServer;
use upstream::Upstream;

/// A kill and a pause take so long, and come again for as long as the run takes.
const ROUND: Duration = Duration::from_secs(10);

fn seconds() -> u64 {
    let asked = std::env::var("SEMEL_CHAOS_SECONDS");
    asked.map_or(10, |text| {
        text.parse().expect("SEMEL_CHAOS_SECONDS is a number")
    })
}

/// Waits until a sidecar is in the middle of something; not for long, should it never be.
async fn at_work(upstream: &Upstream, via: usize) {
    for _ in 0..2000 {
        if upstream.open(via) > 0 {
            return;
        }
        pause_for(Duration::from_millis(1)).await;
    }
    panic!("sidecar {via} has nothing to do");
}

/// One is paused for longer than its lease, and meanwhile another is killed and started again.
async fn round(fleet: &mut Fleet, upstream: &Upstream, number: usize) -> [Disturbance; 2] {
    let began = now();
    let rest = |until: u64| {
        let until = Duration::from_secs(until);
        until.saturating_sub(now().since(began))
    };
    let (killed, paused) = (number % 3, (number + 1) % 3);
    pause_for(rest(1)).await;
    at_work(upstream, paused).await;
    let from = now();
    fleet.0[paused].pause();
    pause_for(rest(3)).await;
    at_work(upstream, killed).await;
    let kill = now();
    fleet.0[killed].kill();
    let dead = now();
    pause_for(rest(4)).await;
    fleet.0[killed].restart().await;
    pause_for(rest(4) + LEASE).await;
    fleet.0[paused].resume();
    let to = now();
    assert!(to.since(from) > LEASE, "paused for less than a lease");
    pause_for(ROUND.saturating_sub(now().since(began))).await;
    [
        Disturbance {
            via: paused,
            from,
            to,
            killed: false,
        },
        Disturbance {
            via: killed,
            from: kill,
            to: dead,
            killed: true,
        },
    ]
}

/// Whole keys and payloads are the callers' own: what a sidecar says has neither.
fn tells_no_secret(told: &str) {
    assert!(told.contains("idempotency.processed"), "nothing was told");
    assert!(!told.contains(CARD), "a payload is told");
    // A key is its number twice: found by its form, since there are many.
    let bytes = told.as_bytes();
    let is_key = |at: &usize| {
        let (first, second) = (&bytes[*at..at + 8], &bytes[at + 9..at + 17]);
        bytes[at + 8] == b'-' && first == second && first.iter().all(u8::is_ascii_digit)
    };
    let found = (0..bytes.len().saturating_sub(16)).find(is_key);
    if let Some(at) = found {
        panic!("a key is told: …{}…", &told[at..at + 17]);
    }
}

/// Keys by the characters of them that records show.
fn key_of(hint: &str) -> String {
    key(hint.parse().expect("keys begin with their number"))
}

async fn history(fleet: &mut Fleet, upstream: &Upstream, callers: &Callers) -> History {
    let mut history = History {
        keys: (0..callers.counts().keys).map(key).collect(),
        ..History::default()
    };
    for (hint, id, state) in fleet.0[0].records("").await {
        history.records.insert(key_of(&hint), (id, state));
    }
    for hint in fleet.0[1].in_doubt() {
        history.in_doubt.insert(key_of(&hint));
    }
    for sidecar in &fleet.0 {
        tells_no_secret(&sidecar.told().await);
    }
    history.takeovers = fleet.end();
    history.effects = upstream.effects();
    history.answers = callers.answers();
    history
}

async fn chaos(crash: Crash, seconds: u64) {
    let redis = RedisServer::start(&[]).await;
    let url = redis.url();
    let upstream = Upstream::default();
    let doors = [
        upstream.door().await,
        upstream.door().await,
        upstream.door().await,
    ];
    let policy = match crash {
        Crash::Hold => "hold",
        Crash::Takeover => "takeover",
    };
    let mut fleet = Fleet::start([&url; 3], policy, doors).await;
    let callers = Callers::new(fleet.addresses());
    let load = tokio::spawn({
        let callers = callers.clone();
        async move { callers.send_for(Duration::from_secs(seconds)).await }
    });
    let mut disturbances = Vec::new();
    for number in 0..seconds.div_ceil(ROUND.as_secs()) {
        let number = usize::try_from(number).expect("few rounds");
        disturbances.extend(round(&mut fleet, &upstream, number).await);
    }
    load.await.expect("the load is sent");
    // Whoever vanished has by now, for everybody.
    pause_for(LEASE).await;
    callers.ask_rest().await;
    let mut history = history(&mut fleet, &upstream, &callers).await;
    history.disturbances = disturbances;

    let wrong = history.wrong(crash);
    let (counts, extra) = (callers.counts(), history.effects.len() - done(&history));
    println!(
        "{policy}, {seconds} s: {counts:?}; effects {}, extra {extra}; in doubt {}, takeovers {}; kills and pauses {}",
        history.effects.len(),
        history.in_doubt.len(),
        history.takeovers.len(),
        history.disturbances.len(),
    );
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    // The run has shown something: every sidecar was met at work, and somebody has noticed.
    match crash {
        Crash::Hold => assert!(!history.in_doubt.is_empty(), "nothing was interrupted"),
        Crash::Takeover => assert!(!history.takeovers.is_empty(), "nothing was interrupted"),
    }
    assert_eq!(
        counts.retries * 100 / counts.requests / 5,
        30 / 5,
        "{counts:?}"
    );
}

/// How many keys were done at all.
fn done(history: &History) -> usize {
    let keys: std::collections::BTreeSet<&str> = history
        .effects
        .iter()
        .map(|effect| effect.key.as_str())
        .collect();
    keys.len()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn under_hold_every_effect_happens_at_most_once_and_every_doubt_is_listed() {
    chaos(Crash::Hold, seconds()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn under_takeover_every_further_attempt_is_explained_by_the_audit_trail() {
    chaos(Crash::Takeover, seconds()).await;
}

/// Sidecars that don't share their store: the same checks find it.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_not_shared_is_found() {
    let upstream = Upstream::default();
    let doors = [
        upstream.door().await,
        upstream.door().await,
        upstream.door().await,
    ];
    let mut fleet = Fleet::start(["memory://"; 3], "hold", doors).await;
    let callers = Callers::new(fleet.addresses());
    callers.send_for(Duration::from_secs(2)).await;
    let history = history(&mut fleet, &upstream, &callers).await;
    let wrong = history.wrong(Crash::Hold).join("\n");
    for words in [
        "done 2 times under hold",
        "callers were told",
        "None, in doubt",
    ] {
        assert!(wrong.contains(words), "{words} is not among\n{wrong}");
    }
}
