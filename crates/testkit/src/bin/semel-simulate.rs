//! Deterministic simulation: the real engine in many worlds of faults, one for each seed, judged by
//! the rules of the protocol.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use semel_core::clock::SystemTime;
use semel_testkit::broken::Bug;
use semel_testkit::simulation::{self, Breach, RunTally};

/// Lets engines, callers and a store live through simulated years of faults, from seeds.
#[derive(Parser)]
struct Options {
    /// How many worlds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The seed of the first world; each further one has the next number.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Ends after so many minutes, whatever is left.
    #[arg(long)]
    minutes: Option<u64>,
    /// What nodes do with answers.
    #[arg(long, value_enum, default_value_t = AnswerPlace::InRecords, conflicts_with = "bug")]
    answers: AnswerPlace,
    /// A bug for the store to have, by its name: it should be found.
    #[arg(long, value_parser = bug)]
    bug: Option<Bug>,
    /// Goes on after a world in which a rule was broken.
    #[arg(long)]
    go_on: bool,
    /// Writes the result to this file, too.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// What nodes do with answers.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum AnswerPlace {
    /// They lie in the keys' records.
    InRecords,
    /// They are encrypted, while a new key is rolled out.
    Encrypted,
    /// They have records of their own, which expire first.
    Apart,
}

fn bug(name: &str) -> Result<Bug, String> {
    let mut all = Bug::ALL.iter().copied();
    all.find(|bug| bug.name() == name)
        .ok_or_else(|| "there is no such bug; `Bug` in semel_testkit::broken lists them".to_owned())
}

/// What all worlds together gave.
#[derive(Default)]
struct Worlds {
    tally: RunTally,
    breaches: Vec<Breach>,
    seconds: f64,
}

/// After so many, more say nothing new.
const MOST_BREACHES: usize = 20;

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let result = simulate(&options);
    for breach in &result.breaches {
        println!("{breach}{}\n", flags(&options));
    }
    print(&result);
    if let Some(path) = &options.json {
        write_json(path, &options, &result)?;
    }
    let passed = result.breaches.is_empty();
    println!("{}", if passed { "passed" } else { "FAILED" });
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What makes this world again, beside its seed.
fn flags(options: &Options) -> String {
    match (options.bug, options.answers) {
        (Some(bug), _) => format!(" --bug {}", bug.name()),
        (None, AnswerPlace::InRecords) => String::new(),
        (None, AnswerPlace::Encrypted) => " --answers encrypted".to_owned(),
        (None, AnswerPlace::Apart) => " --answers apart".to_owned(),
    }
}

fn simulate(options: &Options) -> Worlds {
    let clock = SystemTime::default();
    let begun = clock.now();
    let bar = ProgressBar::new(options.seeds);
    let style = "{wide_bar} {pos}/{len} worlds  {msg}  {eta} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    let end = options
        .minutes
        .map(|minutes| begun.plus(Duration::from_secs(minutes * 60)));
    let mut result = Worlds::default();
    for seed in (0..options.seeds).map(|offset| options.from.wrapping_add(offset)) {
        let outcome = match options.answers {
            AnswerPlace::InRecords => simulation::run(seed, options.bug),
            AnswerPlace::Encrypted => simulation::run_encrypted(seed, None),
            AnswerPlace::Apart => simulation::run_apart(seed, None),
        };
        result.tally.add(&outcome.tally);
        result.breaches.extend(outcome.breaches);
        let enough = if options.go_on { MOST_BREACHES } else { 1 };
        let over = end.is_some_and(|end| clock.now() >= end);
        if over || result.breaches.len() >= enough {
            break;
        }
        bar.inc(1);
        if result.tally.seeds.is_multiple_of(64) {
            let RunTally { operations, .. } = result.tally;
            bar.set_message(format!(
                "{operations} operations, {:.1} years",
                result.tally.years()
            ));
        }
    }
    bar.finish_and_clear();
    result.seconds = clock.now().since(begun).as_secs_f64();
    result
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn rate(result: &Worlds) -> f64 {
    result.tally.operations as f64 / result.seconds.max(0.001)
}

fn print(result: &Worlds) {
    let RunTally {
        seeds,
        operations,
        requests,
        effects,
        ..
    } = &result.tally;
    let rows = [
        ("worlds", *seeds),
        ("operations decided by the store", *operations),
        ("requests", *requests),
        ("effects under a lease", *effects),
    ];
    for (name, count) in rows {
        println!("{name:<48}{count:>14}");
    }
    println!("{:<48}{:>14.2}", "simulated years", result.tally.years());
    println!("callers were told");
    for (what, count) in &result.tally.told {
        println!("  {what:<46}{count:>14}");
    }
    println!("faults");
    for (kind, count) in &result.tally.faults {
        println!("  {kind:<46}{count:>14}");
    }
    println!("{:<48}{:>14}", "rules broken", result.breaches.len());
    println!("{:<48}{:>14.1}", "seconds", result.seconds);
    println!("{:<48}{:>14.0}", "operations a second", rate(result));
}

fn write_json(path: &Path, options: &Options, result: &Worlds) -> anyhow::Result<()> {
    let tally = &result.tally;
    let breaches: Vec<_> = result
        .breaches
        .iter()
        .map(|breach| serde_json::json!({ "seed": breach.seed, "rule": breach.rule, "report": breach.to_string() }))
        .collect();
    let document = serde_json::json!({
        "from": options.from,
        "bug": options.bug.map(Bug::name),
        "seeds": tally.seeds,
        "operations": tally.operations,
        "requests": tally.requests,
        "effects": tally.effects,
        "simulated_years": tally.years(),
        "faults": tally.faults,
        "told": tally.told,
        "violations": breaches,
        "seconds": result.seconds,
        "operations_per_second": rate(result),
        "passed": result.breaches.is_empty(),
    });
    let text = serde_json::to_string_pretty(&document)?;
    std::fs::write(path, text + "\n").with_context(|| format!("can't write {}", path.display()))
}
