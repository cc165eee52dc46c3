//! Model checker: explores every state of the protocol's model within bounds, and reports which
//! properties hold.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use semel_testkit::model::{
    Break, ModelOutcome, Space, check, exhibits, full, moving_outcomes, quick, violation,
};
use serde::Serialize;

/// Checks the protocol: every state that the bounds allow, against every property.
#[derive(Parser)]
struct Options {
    /// Goes through smaller spaces, in under a minute.
    #[arg(long)]
    quick: bool,
    /// Goes through this space only.
    #[arg(long, value_name = "NAME")]
    space: Option<String>,
    /// Writes the result to this file, too.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Breaks a rule, and shows step by step what comes of it.
    #[arg(long = "break", value_name = "NAME")]
    broken: Option<Break>,
    /// Lists the rules that can be broken, and the properties that notice.
    #[arg(long)]
    list: bool,
    /// How many threads; as many as the machine runs at once, unless given.
    #[arg(long)]
    threads: Option<usize>,
}

/// How often a run says how far it is.
const PROGRESS: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct Report {
    configs: Vec<ModelOutcome>,
    total_states: usize,
    ok: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if options.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(broken) = options.broken {
        return Ok(show(broken));
    }
    let threads = match options.threads {
        Some(threads) => threads.max(1),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let mut spaces = if options.quick { quick() } else { full() };
    if let Some(name) = &options.space {
        spaces.retain(|space| space.name() == name);
        anyhow::ensure!(!spaces.is_empty(), "no space is called {name:?}");
    }
    let report = run(&spaces, threads);
    if let Some(path) = &options.json {
        write(path, &report)?;
    }
    Ok(if report.ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run(spaces: &[Space], threads: usize) -> Report {
    let configs: Vec<_> = spaces
        .iter()
        .map(|&space| go_through(space, threads))
        .collect();
    let total_states = configs.iter().map(|outcome| outcome.states).sum();
    let seconds: f64 = configs.iter().map(|outcome| outcome.seconds).sum();
    let ok = configs.iter().all(ModelOutcome::is_ok) && unreached(spaces, &configs).is_empty();
    let verdict = if ok {
        "every property holds"
    } else {
        "NOT EVERY PROPERTY HOLDS"
    };
    println!("total: {total_states} states in {seconds:.1} s: {verdict}");
    Report {
        configs,
        total_states,
        ok,
    }
}

/// What no space of moves has reached, where all of them were gone through.
fn unreached(spaces: &[Space], outcomes: &[ModelOutcome]) -> Vec<&'static str> {
    let moves = |space: &Space| matches!(space, Space::Move(_));
    if spaces.iter().filter(|space| moves(space)).count()
        < quick().iter().filter(|space| moves(space)).count()
    {
        return Vec::new();
    }
    let reached = |name: &&str| {
        let mut all = outcomes.iter().flat_map(|outcome| &outcome.properties);
        all.any(|property| property.name == *name && property.holds)
    };
    let missing: Vec<_> = moving_outcomes().filter(|name| !reached(name)).collect();
    for name in &missing {
        println!("FAILS  sometimes  {name}: in no space");
    }
    missing
}

fn go_through(space: Space, threads: usize) -> ModelOutcome {
    let mut said = Duration::ZERO;
    let outcome = check(space, threads, |states, elapsed| {
        if elapsed >= said + PROGRESS {
            said = elapsed;
            eprintln!(
                "{}: {states} states after {} s",
                space.name(),
                elapsed.as_secs()
            );
        }
    });
    let ModelOutcome {
        name,
        states,
        depth,
        seconds,
        properties,
    } = &outcome;
    println!("{name}: {states} states, depth {depth}, {seconds:.1} s");
    for property in properties {
        let holds = if property.holds { "holds" } else { "FAILS" };
        println!("  {holds}  {:9}  {}", property.expectation, property.name);
    }
    let broken = |outcome: &ModelOutcome| {
        outcome
            .properties
            .iter()
            .any(|p| p.expectation == "always" && !p.holds)
    };
    if broken(&outcome)
        && let Some(found) = violation(space, None)
    {
        print_steps(&found.steps);
    }
    outcome
}

fn list() {
    for &broken in Break::ALL {
        println!("{}: {}", broken.name(), broken.what());
        for exhibit in exhibits().iter().filter(|exhibit| exhibit.broken == broken) {
            println!("    noticed by: {}", exhibit.property);
        }
    }
}

fn show(broken: Break) -> ExitCode {
    let mut unnoticed = false;
    for exhibit in exhibits().iter().filter(|exhibit| exhibit.broken == broken) {
        println!("{}: {}", broken.name(), broken.what());
        let also = |other: &&Break| **other != broken && exhibit.space.breaks().has(**other);
        for other in Break::ALL.iter().filter(also) {
            println!("and {}: {}", other.name(), other.what());
        }
        println!("This no longer holds: {}", exhibit.property);
        match violation(exhibit.space, Some(exhibit.property)) {
            Some(found) => print_steps(&found.steps),
            None => {
                println!("… but no counterexample was found.");
                unnoticed = true;
            }
        }
    }
    if unnoticed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn print_steps(steps: &[String]) {
    for (number, step) in steps.iter().enumerate() {
        println!("{:4}. {step}", number + 1);
    }
}

fn write(path: &Path, report: &Report) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(report)?;
    std::fs::write(path, text + "\n")
        .with_context(|| format!("{} can't be written", path.display()))
}
