//! Runs one store in rounds: workers call while everything fails, then all faults are undone, every
//! key is requested once more, and the round is checked while the next one runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};

use crate::clock::{WallClockWatch, pass, tick};
use crate::crew::WorkerPool;
use crate::kinds::{Kind, StrikeCounts};
use crate::nemesis::{ON_WAYS, strike_ways, strike_workers};
use crate::report::Row;
use crate::servers::Backend;
use crate::verdict::{Verdict, Windows, judge};
use crate::worker::Setup;

/// The options of a run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
    pub(crate) workers: u64,
    pub(crate) tasks: u64,
    /// Seeded bug: waiters without pauses.
    pub(crate) restless: bool,
    /// The faults that may strike; all if empty.
    pub(crate) only: Vec<Kind>,
}

/// How long the calls of a round go on, in seconds.
const ROUND: u64 = 8;

/// The fault windows of the current round. Later rounds have new keys.
type Shared = Arc<parking_lot::Mutex<Windows>>;

/// Runs one store.
pub(crate) async fn run(
    name: &str,
    mut backend: Box<dyn Backend>,
    options: &Options,
    folder: &Path,
) -> Result<Row> {
    let setup = Setup {
        url: String::new(),
        worker: 0,
        workers: options.workers,
        incarnation: 0,
        seed: options.seed,
        tasks: options.tasks,
        lease_ms: u64::try_from(backend.lease().as_millis())?,
        tiny: backend.has_fine_clock(),
        restless: options.restless,
    };
    let crew = Arc::new(Mutex::new(WorkerPool::new(backend.place(), setup, folder)?));
    let mut row = Row::new(name, options.seed);
    let (began, rounds) = (tick(), options.seconds.div_ceil(ROUND).max(1));
    let mut judging: Option<JoinHandle<Result<Verdict>>> = None;
    let by_itself = backend.by_itself();
    for number in 0..rounds {
        let left = options
            .seconds
            .saturating_sub(number * ROUND)
            .clamp(1, ROUND);
        let windows = Shared::default();
        let watching = watch_wall_clock(&*backend, &windows);
        crew.lock().await.begin(number).await?;
        let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(number);
        let struck = strike(&crew, &mut *backend, &windows, (seed, left), &options.only).await?;
        row.faults.merge(&struck);
        let (files, unanswered) = finish(&crew, &windows).await?;
        backend.end_round(&windows)?;
        drop(watching);
        // A clock set back by an hour prolongs a running lease by an hour.
        if windows.lock().jumps.iter().any(|jump| jump.micros < 0) {
            row.kept_busy += unanswered;
        } else {
            row.unanswered += unanswered;
        }
        if let Some(last) = judging.take() {
            row.take(last.await.context("the judge died")??);
        }
        progress(name, number + 1, rounds, &row);
        let (windows, how) = (windows.lock().clone(), backend.strictness());
        judging = Some(tokio::task::spawn_blocking(move || {
            let verdict = judge(&files, &windows, how);
            for file in &files {
                // A worker that was killed early has no file.
                let _ = std::fs::remove_file(file);
            }
            verdict
        }));
        if !row.violations.is_empty() {
            break;
        }
    }
    if let Some(last) = judging.take() {
        row.take(last.await.context("the judge died")??);
    }
    row.faults
        .add(Kind::CallFault, backend.by_itself() - by_itself);
    row.faults.add(Kind::ExpiryRace, row.expired);
    row.left_out = backend.left_out();
    row.may_lose = backend.strictness().may_lose;
    row.rounds = rounds;
    row.seconds = Duration::from_nanos(tick() - began).as_secs_f64();
    let crew = Arc::into_inner(crew).context("the crew is still in use")?;
    crew.into_inner().end().await;
    Ok(row)
}

/// Ends the round of all workers, and writes down which are alive.
async fn finish(crew: &Mutex<WorkerPool>, windows: &Shared) -> Result<(Vec<PathBuf>, u64)> {
    let mut crew = crew.lock().await;
    let finished = crew.finish().await?;
    windows.lock().survivors = (0..crew.len()).map(|index| crew.client_of(index)).collect();
    Ok(finished)
}

/// Writes down when the machine's clock is set, until the result is dropped.
fn watch_wall_clock(backend: &dyn Backend, windows: &Shared) -> JoinSet<()> {
    let mut watching = JoinSet::new();
    if backend.has_wall_clock() {
        let (windows, mut watch) = (Arc::clone(windows), WallClockWatch::start());
        watching.spawn(async move {
            loop {
                let jump = watch.next().await;
                eprintln!("the machine's clock was set by {} µs", jump.micros);
                windows.lock().jumps.push(jump);
            }
        });
    }
    watching
}

/// Runs two nemeses until the end of the round: one for workers, one for the store and the network.
async fn strike(
    crew: &Arc<Mutex<WorkerPool>>,
    backend: &mut dyn Backend,
    windows: &Shared,
    (seed, seconds): (u64, u64),
    only: &[Kind],
) -> Result<StrikeCounts> {
    let until = tick() + seconds * 1_000_000_000;
    let lease = backend.lease();
    let workers = tokio::spawn(strike_workers(
        Arc::clone(crew),
        Arc::clone(windows),
        StdRng::seed_from_u64(seed),
        lease,
        until,
    ));
    let mut rng = StdRng::seed_from_u64(!seed);
    let mut struck = StrikeCounts::default();
    let mut kinds = backend.kinds();
    // In every second round the store's clock is not touched, so that expiry can be checked.
    if seed.is_multiple_of(2) {
        kinds.retain(|kind| !matches!(kind, Kind::ClockForward | Kind::ClockBack));
    }
    if !backend.ways().is_empty() {
        kinds.extend(ON_WAYS);
    }
    kinds.retain(|kind| only.is_empty() || only.contains(kind));
    while tick() < until {
        pass(Duration::from_millis(rng.random_range(100..800))).await;
        if kinds.is_empty() || tick() >= until {
            continue;
        }
        let kind = kinds[rng.random_range(0..kinds.len())];
        let times = if ON_WAYS.contains(&kind) && !backend.ways().is_empty() {
            strike_ways(kind, backend.ways(), &mut rng, lease).await
        } else {
            backend
                .strike(kind, &mut rng, windows)
                .await
                .with_context(|| kind.name())?
        };
        struck.add(kind, times);
    }
    struck.merge(&workers.await.context("the nemesis died")??);
    Ok(struck)
}

fn progress(name: &str, round: u64, rounds: u64, row: &Row) {
    eprintln!(
        "{name:>15} {round:>4}/{rounds}  {:>9} operations  {:>6} faults  {} violations",
        row.operations,
        row.faults.total(),
        row.violations.len()
    );
}
