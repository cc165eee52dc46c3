//! One store, round by round: workers call while everything fails, then all is made whole, every key is asked for once
//! more, and the round is judged while the next one runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::clock::{pass, tick};
use crate::crew::Crew;
use crate::kinds::{Kind, Struck};
use crate::nemesis::{ON_WAYS, strike_ways, strike_workers};
use crate::report::Row;
use crate::servers::Backend;
use crate::verdict::{Verdict, Windows, judge};
use crate::worker::Setup;

/// How a run is done.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
    pub(crate) workers: u64,
    pub(crate) tasks: u64,
    /// Seeded flaw: waiters without pauses.
    pub(crate) restless: bool,
    /// What may strike the store; everything, where nothing is named.
    pub(crate) only: Vec<Kind>,
}

/// How long a round's calls go on, in seconds.
const ROUND: u64 = 8;

/// Windows of earlier rounds are of no use to later ones, whose keys are new.
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
    let crew = Arc::new(Mutex::new(Crew::new(backend.place(), setup, folder)?));
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
        crew.lock().await.begin(number).await?;
        let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(number);
        let struck = strike(&crew, &mut *backend, &windows, (seed, left), &options.only).await?;
        row.faults.merge(&struck);
        let (files, unanswered) = crew.lock().await.finish().await?;
        // Set back an hour, the store's clock lets a lease that it has begun live an hour longer.
        if windows.lock().jumps.iter().any(|(_, _, by)| *by < 0) {
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
                // A worker that was killed early has none.
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

/// Two nemeses, for workers and for the store and the ways to it, until the round's calls are over.
async fn strike(
    crew: &Arc<Mutex<Crew>>,
    backend: &mut dyn Backend,
    windows: &Shared,
    (seed, seconds): (u64, u64),
    only: &[Kind],
) -> Result<Struck> {
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
    let mut struck = Struck::default();
    let mut kinds = backend.kinds();
    // In every second round the store's clock is left alone: what its keys show when they expire can be decided then.
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
