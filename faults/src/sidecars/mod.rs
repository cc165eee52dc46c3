//! Sidecars in front of one service, on one Redis, with callers over HTTP and callers of the
//! protocol API.

mod fleet;
mod v1;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use hyper::HeaderMap;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use semel_testkit::history::callers::{CallerOutcome, CallerReport, Reading, check, is_final};
use semel_testkit::history::{EffectRecord, KeyEnding, Violation};
use semel_testkit::private::RedisServer;
use semel_testkit::proxy::Proxy;

use crate::clock::{pass, tick};
use crate::http;
use crate::kinds::{Kind, StrikeCounts};
use crate::nemesis::{ON_WAYS, strike_ways};
use crate::report::{FailedRun, Row};
use crate::servers::ways;
use fleet::{Sidecar, program};

const SIDECARS: usize = 3;
const CALLERS: u64 = 16;
const LEASE: Duration = Duration::from_secs(2);
const RECENT: u64 = 64;

/// What the service did, and what the callers were told.
#[derive(Clone, Default)]
struct SidecarObservations(Arc<Mutex<(Vec<EffectRecord>, Vec<CallerReport>)>>);

impl SidecarObservations {
    /// Records the start of an effect. Returns its number, from 1.
    fn began(&self, effect: EffectRecord) -> u64 {
        let mut seen = self.0.lock();
        seen.0.push(effect);
        seen.0.len() as u64
    }

    fn told(&self, told: CallerReport) {
        self.0.lock().1.push(told);
    }
}

/// A service that charges for every request, and returns the number of the charge.
async fn charge(seen: SidecarObservations, headers: HeaderMap) -> String {
    let text = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    };
    let number = |name: &str| text(name).parse().unwrap_or(0);
    let effect = EffectRecord {
        client: 0,
        key: text("idempotency-key").to_owned(),
        fence: number("semel-fence"),
        attempt: u16::try_from(number("semel-attempt")).unwrap_or(0),
        start: tick(),
        began: 0,
        end: None,
    };
    let number = seen.began(effect);
    if number.is_multiple_of(50) {
        pass(Duration::from_millis(number % 700)).await;
    }
    number.to_string()
}

/// Runs sidecars for this time, and checks the result.
pub(crate) async fn run(seconds: u64, seed: u64) -> Result<Row> {
    let began = tick();
    let mut redis = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let ways = ways(redis.address(), SIDECARS).await?;
    let (seen, program) = (SidecarObservations::default(), program()?);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let upstream = listener.local_addr()?;
    let answering = seen.clone();
    tokio::spawn(http::serve(listener, move |headers| {
        charge(answering.clone(), headers)
    }));
    let mut fleet = Vec::new();
    for way in &ways {
        let store = format!("redis://{}", way.address());
        fleet.push(Sidecar::start(program.clone(), &store, upstream)?);
    }
    let addresses: Arc<Vec<SocketAddr>> = Arc::new(fleet.iter().map(|one| one.address).collect());
    let (stop, next) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let caller = Caller {
                patience: Duration::from_secs(4),
                number: caller,
                addresses: Arc::clone(&addresses),
                seen: seen.clone(),
            };
            tokio::spawn(caller.call_on(seed, Arc::clone(&stop), Arc::clone(&next)))
        })
        .collect();
    let on_api = v1::Callers::start(&addresses, &seen, seed);
    let until = tick() + seconds * 1_000_000_000;
    let struck = strike(&mut fleet, &mut redis, &ways, seed, until).await;
    supervise(&mut fleet).await?;
    stop.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.context("a caller died")?;
    }
    on_api.stop().await?;
    // By now the leases of all vanished owners have lapsed.
    pass(LEASE).await;
    let keys = next.load(Ordering::SeqCst);
    let unanswered = close(&addresses, &seen, keys).await? + on_api.close().await?;
    let mut row = Row::new("sidecars", seed);
    (row.faults, row.unanswered, row.rounds) = (struck, unanswered, 1);
    decide(&seen, &mut row);
    row.seconds = Duration::from_nanos(tick() - began).as_secs_f64();
    Ok(row)
}

/// A caller that tries one sidecar after the other.
#[derive(Clone)]
struct Caller {
    patience: Duration,
    number: u64,
    addresses: Arc<Vec<SocketAddr>>,
    seen: SidecarObservations,
}

impl Caller {
    async fn call_on(self, seed: u64, stop: Arc<AtomicBool>, next: Arc<AtomicU64>) {
        let mut rng = StdRng::seed_from_u64(seed ^ (self.number << 32));
        while !stop.load(Ordering::SeqCst) {
            let key = if rng.random_bool(0.5) {
                next.fetch_add(1, Ordering::SeqCst)
            } else {
                next.load(Ordering::SeqCst)
                    .saturating_sub(rng.random_range(1..RECENT))
            };
            let (told, _) = self.ask(key, rng.random_range(0..SIDECARS)).await;
            if !is_final(told) {
                pass(Duration::from_millis(20)).await;
            }
        }
    }

    /// Retries until there is an answer. Returns the last message if there is none.
    async fn insist(&self, key: u64) -> Option<String> {
        let mut last = String::new();
        for attempt in 0..12 {
            let via = (usize::try_from(key).unwrap_or(0) + attempt) % SIDECARS;
            let (told, words) = self.ask(key, via).await;
            if is_final(told) {
                return None;
            }
            last = format!("{words} (sidecar {via})");
            pass(Duration::from_millis(500)).await;
        }
        Some(last)
    }

    /// Returns the meaning of the response, and its text.
    async fn ask(&self, key: u64, via: usize) -> (CallerOutcome, String) {
        let (name, start) = (format!("{key:08}-{key:08}"), tick());
        let body = format!("{{\"amount\":{key}}}");
        let reply = http::post(
            self.addresses[via],
            &http::Post {
                path: "/charges",
                key: Some(&name),
                body: &body,
            },
            self.patience,
        )
        .await;
        let what = match &reply {
            Some(reply) if reply.status.is_success() => {
                let run = reply.text().parse().unwrap_or(0);
                CallerOutcome::Answer(KeyEnding::Completed(run))
            }
            Some(reply) if reply.text().contains("idempotency_in_doubt") => CallerOutcome::InDoubt,
            Some(reply) if reply.status == 409 => CallerOutcome::Busy,
            _ => CallerOutcome::AskAgain,
        };
        let client = u32::try_from(self.number).unwrap_or(0);
        let told = CallerReport {
            client,
            key: name,
            payload: key,
            start,
            end: tick(),
            what,
        };
        self.seen.told(told);
        let words = reply.map_or_else(
            || "nothing".to_owned(),
            |reply| format!("{} {}", reply.status.as_u16(), reply.text()),
        );
        (what, words)
    }
}

/// Requests every key once more, after all faults. Returns the number of keys without an answer.
async fn close(
    addresses: &Arc<Vec<SocketAddr>>,
    seen: &SidecarObservations,
    keys: u64,
) -> Result<u64> {
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for number in 0..CALLERS {
        let (addresses, seen, next) = (Arc::clone(addresses), seen.clone(), Arc::clone(&next));
        tasks.push(tokio::spawn(async move {
            let patience = Duration::from_secs(10);
            let caller = Caller {
                patience,
                number,
                addresses,
                seen,
            };
            let mut unanswered = 0;
            loop {
                let key = next.fetch_add(1, Ordering::SeqCst);
                if key >= keys {
                    return unanswered;
                }
                if let Some(words) = caller.insist(key).await {
                    eprintln!("    key {key} gave no answer; the last that was said: {words}");
                    unanswered += 1;
                }
            }
        }));
    }
    let mut unanswered = 0;
    for task in tasks {
        unanswered += task.await.context("a caller died")?;
    }
    Ok(unanswered)
}

async fn strike(
    fleet: &mut [Sidecar],
    redis: &mut RedisServer,
    ways: &[Proxy],
    seed: u64,
    until: u64,
) -> StrikeCounts {
    let mut rng = StdRng::seed_from_u64(!seed);
    let mut struck = StrikeCounts::default();
    while tick() < until {
        pass(Duration::from_millis(rng.random_range(200..900))).await;
        for sidecar in &mut *fleet {
            sidecar.restart_if_ended();
        }
        let index = rng.random_range(0..fleet.len());
        match rng.random_range(0..8) {
            0..3 => {
                fleet[index].restart();
                struck.add(Kind::KillWorker, 1);
            }
            3..5 => {
                fleet[index].process.pause();
                pass(LEASE.mul_f64(rng.random_range(1.1..1.6))).await;
                fleet[index].process.resume();
                struck.add(Kind::PauseWorker, 1);
            }
            5 => {
                redis.kill();
                pass(Duration::from_millis(rng.random_range(100..500))).await;
                redis.restart().await;
                struck.add(Kind::KillStore, 1);
            }
            _ => {
                let kind = ON_WAYS[rng.random_range(0..ON_WAYS.len())];
                let times = strike_ways(kind, ways, &mut rng, LEASE).await;
                struck.add(kind, times);
            }
        }
    }
    struck
}

/// Waits until every sidecar accepts connections. A sidecar that starts while its store is cut off
/// ends, and is started again.
async fn supervise(fleet: &mut [Sidecar]) -> Result<()> {
    for _ in 0..600 {
        let mut accepting = 0;
        for sidecar in &mut *fleet {
            sidecar.restart_if_ended();
            let connected = tokio::net::TcpStream::connect(sidecar.address).await;
            accepting += usize::from(connected.is_ok());
        }
        if accepting == fleet.len() {
            return Ok(());
        }
        pass(Duration::from_millis(100)).await;
    }
    anyhow::bail!("a sidecar accepts no connections a minute after the last fault")
}

/// Under `hold`, nothing may happen twice.
fn decide(seen: &SidecarObservations, row: &mut Row) {
    let seen = seen.0.lock();
    let (effects, told) = &*seen;
    let reading = Reading {
        store: None,
        undisturbed: true,
    };
    let violations: Vec<Violation> = check(told, effects, reading);
    row.operations = told.len() as u64;
    for one in told {
        let door = if v1::is_v1(&one.key) { "v1" } else { "http" };
        *row.doors.entry(door).or_default() += 1;
    }
    row.answered = told
        .iter()
        .filter(|told| matches!(told.what, CallerOutcome::Answer(_)))
        .count() as u64;
    row.effects = effects.len() as u64;
    let of = |is: &dyn Fn(&CallerReport) -> bool| {
        let keys = told.iter().filter(|told| is(told)).map(|told| &*told.key);
        keys.collect::<std::collections::BTreeSet<_>>().len() as u64
    };
    (row.keys, row.doubts) = (
        of(&|_| true),
        of(&|told| told.what == CallerOutcome::InDoubt),
    );
    for violation in violations {
        let mut history = String::new();
        for one in told.iter().filter(|told| told.key == violation.key) {
            history += &format!(
                "    [{}–{}] client {}: told {:?}\n",
                one.start, one.end, one.client, one.what
            );
        }
        for effect in effects.iter().filter(|effect| effect.key == violation.key) {
            history += &format!("    {effect}\n");
        }
        let (invariant, what) = (violation.invariant, violation.to_string());
        row.violations.push(FailedRun {
            invariant,
            what,
            history,
        });
    }
}
