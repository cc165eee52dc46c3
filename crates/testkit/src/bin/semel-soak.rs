//! Soak test: millions of random sequences on the memory store, each answer compared with the
//! reference.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use futures_util::FutureExt as _;
use semel_conformance::clock::FakeClock;
use semel_core::clock::SystemTime;
use semel_core::{MemoryConfig, MemoryStore, StoreAdmin};
use semel_testkit::reference::{self, DifferenceReport, RuleTally};

/// Holds the memory store to the protocol, written a second time, over random sequences.
#[derive(Parser)]
struct Options {
    /// How many sequences of 10 to 30 operations.
    #[arg(long, default_value_t = 10_000_000)]
    sequences: u64,
    /// The seed of the first sequence; each further one has the next number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes the result to this file, too.
    #[arg(long)]
    json: Option<PathBuf>,
    /// How many threads; as many as the machine runs at once, unless given.
    #[arg(long)]
    threads: Option<usize>,
}

/// Sequences that share a store. It is empty between them; a new one now and then files the keys
/// in other shards.
const BLOCK: u64 = 1024;

/// Below so many sequences a run is a look at some of them: not every rule can be asked for.
const FULL_RUN: u64 = 10_000;

const PROGRESS: Duration = Duration::from_secs(5);

/// What the threads share.
struct Shared {
    seed: u64,
    sequences: u64,
    next: AtomicU64,
    failed: AtomicBool,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let threads = match options.threads {
        Some(threads) => threads.max(1),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let shared = Shared {
        seed: options.seed,
        sequences: options.sequences,
        next: AtomicU64::new(0),
        failed: AtomicBool::new(false),
    };
    let clock = SystemTime::default();
    let begun = clock.now();
    let (tell, told) = mpsc::channel();
    let result = std::thread::scope(|scope| {
        for _ in 0..threads {
            let (tell, shared) = (tell.clone(), &shared);
            scope.spawn(move || work(shared, &tell));
        }
        drop(tell);
        collect(&told, options.sequences, &|| clock.now().since(begun))
    });
    let seconds = clock.now().since(begun).as_secs_f64();
    conclude(&options, &result, seconds)
}

/// What a thread tells: a block of sequences without a difference, or a difference.
enum News {
    Same { sequences: u64, tally: RuleTally },
    Differs(Box<DifferenceReport>),
}

fn make(clock: &FakeClock) -> Arc<dyn StoreAdmin> {
    Arc::new(MemoryStore::new(
        MemoryConfig::default().with_capacity(64),
        Arc::new(clock.clone()),
    ))
}

fn work(shared: &Shared, tell: &mpsc::Sender<News>) {
    while !shared.failed.load(Ordering::Relaxed) {
        let first = shared.next.fetch_add(BLOCK, Ordering::Relaxed);
        let past = first.saturating_add(BLOCK).min(shared.sequences);
        if first >= past {
            return;
        }
        let news = block(shared.seed.wrapping_add(first), past - first);
        shared
            .failed
            .fetch_or(matches!(news, News::Differs(_)), Ordering::Relaxed);
        if tell.send(news).is_err() {
            return;
        }
    }
}

/// Runs `sequences` sequences on one store.
fn block(first_seed: u64, sequences: u64) -> News {
    let clock = FakeClock::new();
    let store = make(&clock);
    let mut tally = RuleTally::default();
    for seed in (0..sequences).map(|offset| first_seed.wrapping_add(offset)) {
        let ops = reference::generate(seed);
        let compared = reference::compare(store.as_ref(), &clock, &ops, &mut tally);
        // The memory store never waits, so one poll goes through to the end.
        if compared.now_or_never().is_none_or(|result| result.is_err()) {
            let report = reference::explain(&make, Some(seed), &ops).now_or_never();
            return News::Differs(Box::new(report.expect("the memory store never waits")));
        }
    }
    News::Same { sequences, tally }
}

#[derive(Default)]
struct Outcome {
    sequences: u64,
    tally: RuleTally,
    differences: Vec<DifferenceReport>,
}

fn collect(told: &mpsc::Receiver<News>, wanted: u64, elapsed: &dyn Fn() -> Duration) -> Outcome {
    let mut outcome = Outcome::default();
    let mut shown = Duration::ZERO;
    loop {
        match told.recv_timeout(PROGRESS) {
            Ok(News::Same { sequences, tally }) => {
                outcome.sequences += sequences;
                outcome.tally.add(&tally);
            }
            Ok(News::Differs(report)) => outcome.differences.push(*report),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return outcome,
        }
        let now = elapsed();
        if now >= shown + PROGRESS {
            shown = now;
            progress(outcome.sequences, wanted, now.as_secs_f64());
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn progress(done: u64, wanted: u64, seconds: f64) {
    let rate = done as f64 / seconds;
    let left = wanted.saturating_sub(done) as f64 / rate.max(1.0);
    eprintln!("{done:>12} of {wanted} sequences  {rate:>9.0}/s  {left:>6.0} s left");
}

fn conclude(options: &Options, outcome: &Outcome, seconds: f64) -> anyhow::Result<ExitCode> {
    for report in &outcome.differences {
        println!("{report}");
        if let Some(seed) = report.seed {
            println!("again: semel-soak --sequences 1 --seed {seed}\n");
        }
    }
    let full = options.sequences >= FULL_RUN;
    let complete = outcome.sequences == options.sequences;
    let missing = if full {
        outcome.tally.missing()
    } else {
        Vec::new()
    };
    println!("{:<64}{:>14}", "sequences", outcome.sequences);
    println!("{:<64}{:>14}", "operations", outcome.tally.operations);
    for (rule, count) in outcome.tally.iter() {
        println!("{:<64}{count:>14}", rule.words());
    }
    println!("{:<64}{:>14}", "differences", outcome.differences.len());
    println!("{:<64}{seconds:>14.1}", "seconds");
    for rule in &missing {
        println!("never happened: {rule}");
    }
    if !full {
        println!("fewer than {FULL_RUN} sequences: not asked that every rule occurs");
    }
    let passed = complete && outcome.differences.is_empty() && missing.is_empty();
    println!("{}", if passed { "passed" } else { "FAILED" });
    if let Some(path) = &options.json {
        write_json(path, options, outcome, seconds, passed)?;
    }
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn write_json(
    path: &Path,
    options: &Options,
    outcome: &Outcome,
    seconds: f64,
    passed: bool,
) -> anyhow::Result<()> {
    let answers: BTreeMap<_, _> = outcome
        .tally
        .iter()
        .map(|(rule, n)| (rule.words(), n))
        .collect();
    let differences: Vec<_> = outcome
        .differences
        .iter()
        .map(|report| serde_json::json!({ "seed": report.seed, "report": report.to_string() }))
        .collect();
    let result = serde_json::json!({
        "seed": options.seed,
        "sequences": outcome.sequences,
        "operations": outcome.tally.operations,
        "answers": answers,
        "differences": differences,
        "seconds": seconds,
        "passed": passed,
    });
    let text = serde_json::to_string_pretty(&result)?;
    std::fs::write(path, text + "\n").with_context(|| format!("can't write {}", path.display()))
}
