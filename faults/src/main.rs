//! Fault injection: real processes on real stores while everything fails, and a checker for what
//! they saw (`cargo xtask faults`).

mod bugs;
mod clock;
mod crew;
mod http;
mod kinds;
mod ledger;
mod load;
mod nemesis;
mod place;
mod points;
mod report;
mod resends;
mod run;
mod servers;
mod sidecars;
mod verdict;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use semel_testkit::private::new_folder;

use report::{NotRun, Report, Row};
use servers::Name;

#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Hidden>,
    #[command(flatten)]
    options: Options,
}

/// The subcommands that the harness runs itself as.
#[derive(Subcommand)]
enum Hidden {
    #[command(hide = true)]
    Worker(worker::Setup),
    #[command(hide = true)]
    LedgerClient(ledger::client::Setup),
    #[command(hide = true)]
    Lock { file: PathBuf },
}

#[derive(clap::Args, Clone)]
struct Options {
    /// The stores, separated by commas; or `all`.
    #[arg(long, default_value = "all")]
    store: String,
    /// How long each store is run, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of workers, each a process if the store allows it.
    #[arg(long, default_value_t = 4)]
    workers: u64,
    /// The number of callers in each worker.
    #[arg(long, default_value_t = 8)]
    tasks: u64,
    /// Only these faults of the store and the network; all by default.
    #[arg(long, value_delimiter = ',', hide_possible_values = true)]
    only: Vec<kinds::Kind>,
    /// Instead: hunts a seeded bug, or `all`.
    #[arg(long)]
    bug: Option<String>,
    /// The maximum number of short runs for a bug.
    #[arg(long, default_value_t = 100)]
    runs: u64,
    /// Instead: runs another design, which must fail.
    #[arg(long)]
    peer: Option<Peer>,
    /// Also writes the result to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// A store that completes without checking the owner. It imitates the design of some layers,
    /// not their code.
    Unconditional,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let is_worker = matches!(
        cli.command,
        Some(Hidden::Worker(_) | Hidden::LedgerClient(_))
    );
    let threads = if is_worker { 2 } else { 4 };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match cli.command {
            Some(Hidden::Worker(setup)) => {
                worker::process(setup).await;
                Ok(ExitCode::SUCCESS)
            }
            Some(Hidden::LedgerClient(setup)) => {
                ledger::process(setup).await;
                Ok(ExitCode::SUCCESS)
            }
            Some(Hidden::Lock { file }) => servers::sqlite::hold_lock(&file)
                .await
                .map(|()| ExitCode::SUCCESS),
            None => harness(&cli.options).await,
        }
    })
}

async fn harness(options: &Options) -> Result<ExitCode> {
    if let Some(bug) = &options.bug {
        let rows = bugs::hunt_all(bug, options.seed, options.runs).await?;
        let all = bugs::tell(&rows, options.runs);
        return finish(options, &rows, all);
    }
    if options.peer.is_some() {
        return peer(options).await;
    }
    let (mut rows, mut not_run) = (Vec::new(), Vec::new());
    for name in names(&options.store)? {
        if let Some(why) = servers::why_not(name) {
            println!("{} not run: {why}", name.text());
            let what = name.text();
            not_run.push(NotRun { what, why });
            continue;
        }
        let mut row = if name == Name::Sidecars {
            sidecars::run(options.seconds, options.seed).await?
        } else if ledger::is_one(name) {
            ledger::run(name, options.seconds, options.seed, false).await?
        } else {
            let workers = usize::try_from(options.workers)?;
            let backend = servers::start(name, workers, options.seed).await?;
            one(&name.text(), backend, options, options.seed).await?
        };
        row.tell();
        rows.push(row);
    }
    println!("{}", report::table(&rows));
    let operations: u64 = rows.iter().map(|row| row.operations).sum();
    let met = rows.iter().all(|row| row.met);
    println!(
        "{operations} operations checked; {}",
        if met { "all met" } else { "NOT met" }
    );
    finish(options, &Report::of(rows, not_run), met)
}

async fn one(
    name: &str,
    backend: Box<dyn servers::Backend>,
    options: &Options,
    seed: u64,
) -> Result<Row> {
    let folder = new_folder("faults");
    let how = run::Options {
        seconds: options.seconds,
        seed,
        workers: options.workers,
        tasks: options.tasks,
        restless: false,
        only: options.only.clone(),
    };
    let row = run::run(name, backend, &how, &folder).await;
    let _ = std::fs::remove_dir_all(&folder);
    row
}

/// The number of runs to detect a peer's bug: in a short run, no call may come late.
const PEER_RUNS: u64 = 8;
/// The factor of callers per worker for peers, most of which wait for a late call.
const PEER_CALLERS: u64 = 6;

/// Runs a peer until its bug is found, under faults that a sound store survives.
async fn peer(options: &Options) -> Result<ExitCode> {
    println!(
        "a store of ours that completes without checking who asks: that design re-created, not anybody's code"
    );
    let mut options = options.clone();
    options.tasks *= PEER_CALLERS;
    let options = &options;
    let backend = Box::new(servers::Memory::sound_when_late(options.seed));
    let mut sound = one("sound", backend, options, options.seed).await?;
    sound.tell();
    let (mut rows, mut found) = (vec![sound], false);
    for seed in (0..PEER_RUNS).map(|run| options.seed + run) {
        let backend = Box::new(servers::Memory::unconditional(seed));
        let mut row = one("unconditional", backend, options, seed).await?;
        row.tell();
        found = !row.violations.is_empty();
        rows.push(row);
        if found {
            break;
        }
    }
    let words = match (rows[0].met, found) {
        (true, true) => "found out, as it has to be",
        (true, false) => "NOT found out",
        (false, _) => "NOT met by the sound store beside it",
    };
    println!("{words}");
    finish(options, &rows, found && rows[0].met)
}

fn names(text: &str) -> Result<Vec<Name>> {
    if text == "all" {
        return Ok(Name::value_variants().to_vec());
    }
    let parse = |name: &str| Name::from_str(name, true).map_err(anyhow::Error::msg);
    text.split(',').map(parse).collect()
}

fn finish(options: &Options, rows: &impl serde::Serialize, met: bool) -> Result<ExitCode> {
    if let Some(path) = &options.json {
        report::write(path, rows)?;
    }
    Ok(if met {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
