//! `bench latency`: an open loop. Requests begin when they are due, whether earlier ones have ended
//! or not, and each latency counts from the intended start. A stall so counts for every request
//! that was due during it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use semel::core::Tick;
use semel::core::clock::SystemTime;
use semel::{Semel, tokio_env};
use serde::Serialize;

use crate::stores::postgres::Database;
use crate::stores::whole;
use semel_bench_core::report::{Row, publish};

/// The rates, as shares of the capacity.
const SHARES: [u32; 4] = [25, 50, 75, 90];
/// The share that the target is about, and how far the slowest of a thousand may be from the
/// median.
const JUDGED: u32 = 50;
const TARGET: f64 = 10.0;
/// Callers that find the capacity, one request after the other each, and for how long.
const CALLERS: usize = 64;
const CAPACITY: Duration = Duration::from_secs(3);
/// One point of the time series.
const SLOT: Duration = Duration::from_millis(100);
/// Requests that may be open at once. A run that reaches it is overloaded, and ends.
const MOST_OPEN: usize = 50_000;

pub(crate) fn bench(seconds: u64, only: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let length = Duration::from_secs(seconds);
    let mut all = Vec::new();
    let wanted = |name: &str| name.to_lowercase().starts_with(&only.to_lowercase());
    if wanted("memory") {
        let url = "memory://?capacity=10000000";
        all.extend(measure(&runtime, "memory", url, length)?);
    }
    if wanted("Redis") {
        let url = std::env::var("SEMEL_TEST_REDIS_URL")
            .context("SEMEL_TEST_REDIS_URL is not set; `cargo xtask services up` tells it")?;
        all.extend(measure(&runtime, "Redis", &url, length)?);
    }
    if wanted("PostgreSQL") {
        let database = runtime.block_on(Database::make("latency"))?;
        let runs = measure(&runtime, "PostgreSQL", &database.url, length);
        runtime.block_on(database.discard())?;
        all.extend(runs?);
    }
    let rows: Vec<Row> = all.iter().map(Run::row).collect();
    publish("latency", &rows)?;
    let series = serde_json::to_string(&all)?;
    std::fs::write("target/xtask/bench-latency-series.json", series)?;
    Ok(())
}

/// One store at one rate. Latencies are in microseconds.
#[derive(Debug, Serialize)]
struct Run {
    store: &'static str,
    /// Percent of the capacity.
    share: u32,
    rate: f64,
    requests: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
    /// The slowest request that was due in each 100 ms.
    slowest: Vec<u64>,
}

impl Run {
    fn row(&self) -> Row {
        let title = format!(
            "{} at {} % ({:.0}/s): p99.9 against p50 (p90 {}, p99 {}, max {} µs)",
            self.store, self.share, self.rate, self.p90, self.p99, self.max
        );
        let target = (self.share == JUDGED).then_some(TARGET);
        Row::at_most(title, "µs", self.p999 as f64, self.p50 as f64, target)
    }
}

/// What the requests of a run report.
struct Latencies {
    all: Histogram<u64>,
    slowest: Vec<u64>,
    failed: Option<anyhow::Error>,
}

fn measure(
    runtime: &tokio::runtime::Runtime,
    store: &'static str,
    url: &str,
    length: Duration,
) -> anyhow::Result<Vec<Run>> {
    let semel = runtime.block_on(whole::plain(url))?;
    let capacity = runtime.block_on(capacity(&semel))?;
    eprintln!("measuring: {store}, capacity {capacity:.0}/s");
    let one = |&share: &u32| {
        let rate = capacity * f64::from(share) / 100.0;
        let latencies = offer(runtime, &semel, rate, length)?;
        let at = |percent: f64| latencies.all.value_at_percentile(percent);
        Ok(Run {
            store,
            share,
            rate,
            requests: latencies.all.len(),
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p999: at(99.9),
            max: latencies.all.max(),
            slowest: latencies.slowest,
        })
    };
    SHARES.iter().map(one).collect()
}

/// Runs a second, with as many callers as the store has use for.
async fn capacity(semel: &Semel) -> anyhow::Result<f64> {
    let clock = SystemTime::default();
    let began = clock.now();
    let run = tokio_env().entropy.next_u128();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS as u64 {
        let semel = semel.clone();
        callers.spawn(async move {
            let mut done = 0;
            while clock.now().since(began) < CAPACITY {
                whole::run(semel.clone(), run ^ u128::from(caller), done).await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(each) = callers.join_next().await {
        done += each??;
    }
    Ok(done as f64 / clock.now().since(began).as_secs_f64())
}

/// Begins `rate` runs a second, each at its time. This thread keeps the time: a timer of the
/// runtime ticks in milliseconds, and would wait for the runtime that is measured.
fn offer(
    runtime: &tokio::runtime::Runtime,
    semel: &Semel,
    rate: f64,
    length: Duration,
) -> anyhow::Result<Latencies> {
    let clock = SystemTime::default();
    let run = tokio_env().entropy.next_u128();
    let slots = usize::try_from(length.as_millis() / SLOT.as_millis())? + 1;
    let latencies = Arc::new(Mutex::new(Latencies {
        all: Histogram::new_with_bounds(1, 60_000_000, 3)?,
        slowest: vec![0; slots],
        failed: None,
    }));
    let interval = Duration::from_secs_f64(1.0 / rate);
    let began = clock.now();
    let mut next = 0_u32;
    loop {
        let passed = clock.now().since(began);
        if passed >= length {
            break;
        }
        while interval * next <= passed {
            let due = began.plus(interval * next);
            let (semel, latencies) = (semel.clone(), Arc::clone(&latencies));
            runtime.spawn(one(
                semel,
                run,
                next,
                Begin { clock, began, due },
                latencies,
            ));
            next += 1;
        }
        ensure!(
            Arc::strong_count(&latencies) < MOST_OPEN,
            "{MOST_OPEN} requests are open: {rate:.0}/s is more than the store answers"
        );
        std::thread::park_timeout(interval.min(Duration::from_micros(100)));
    }
    // Each open request holds a reference.
    while Arc::strong_count(&latencies) > 1 {
        std::thread::park_timeout(SLOT);
    }
    let latencies = Arc::into_inner(latencies).context("every request has ended")?;
    let mut latencies = latencies.into_inner();
    match latencies.failed.take() {
        None => Ok(latencies),
        Some(error) => Err(error),
    }
}

/// When a request was due.
#[derive(Clone, Copy)]
struct Begin {
    clock: SystemTime,
    began: Tick,
    due: Tick,
}

async fn one(semel: Semel, run: u128, i: u32, begin: Begin, latencies: Arc<Mutex<Latencies>>) {
    let outcome = whole::run(semel, run, u64::from(i)).await;
    let took = begin.clock.now().since(begin.due).as_micros();
    let took = u64::try_from(took).unwrap_or(u64::MAX);
    let slot = begin.due.since(begin.began).as_millis() / SLOT.as_millis();
    let mut latencies = latencies.lock();
    latencies.all.saturating_record(took.max(1));
    if let Some(slowest) = usize::try_from(slot)
        .ok()
        .and_then(|slot| latencies.slowest.get_mut(slot))
    {
        *slowest = (*slowest).max(took);
    }
    if let Err(error) = outcome {
        latencies.failed.get_or_insert(error);
    }
}
