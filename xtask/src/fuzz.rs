//! `cargo xtask fuzz`: runs the fuzz targets, one after another.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Serialize;

use crate::exec;
use crate::table::{seconds, table};
use crate::workspace::Workspace;
use semel_devservers::time::Stopwatch;

/// `cargo xtask fuzz`.
#[derive(Args, Debug)]
pub(crate) struct Fuzz {
    /// How long each target runs.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Only replay the inputs of `fuzz/corpus`. This needs no fuzzer, and works with a stable
    /// compiler.
    #[arg(long)]
    replay: bool,
    /// The targets; all by default.
    targets: Vec<String>,
}

/// How one target went.
#[derive(Debug, Serialize)]
struct Row {
    target: String,
    passed: bool,
    /// Inputs tried.
    runs: u64,
    /// Edges that they reached.
    coverage: u64,
    /// Inputs kept because each reaches something that the others don't.
    corpus: u64,
    seconds: f64,
}

/// Runs the targets. A failure is reported after all of them have run.
pub(crate) fn run(workspace: &Workspace, fuzz: &Fuzz) -> Result<()> {
    let targets = chosen(workspace, &fuzz.targets)?;
    let mut rows = Vec::new();
    for target in targets {
        println!("=== {target}");
        rows.push(match fuzz.replay {
            true => replay(workspace, target)?,
            false => one(workspace, target, fuzz.seconds)?,
        });
    }
    workspace.write_result("fuzz", &rows)?;
    let shown = rows.iter().map(|row| {
        let result = if row.passed { "passed" } else { "FAILED" };
        [
            row.target.clone(),
            result.to_owned(),
            row.runs.to_string(),
            row.coverage.to_string(),
            row.corpus.to_string(),
            seconds(row.seconds),
        ]
    });
    let heading = ["target", "result", "inputs", "edges", "kept", "time"];
    println!("{}", table(&heading, shown));
    match rows.iter().filter(|row| !row.passed).count() {
        0 => Ok(()),
        failed => bail!("{failed} of {} targets found something", rows.len()),
    }
}

/// Every target is a file of its own.
fn chosen(workspace: &Workspace, named: &[String]) -> Result<Vec<String>> {
    let folder = workspace.path("fuzz/fuzz_targets");
    let mut all = Vec::new();
    let files = std::fs::read_dir(&folder);
    for file in files.with_context(|| format!("cannot read {}", folder.display()))? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            all.extend(
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned()),
            );
        }
    }
    all.sort();
    if let Some(unknown) = named.iter().find(|name| !all.contains(name)) {
        bail!(
            "there is no target {unknown}; there are: {}",
            all.join(", ")
        );
    }
    Ok(match named {
        [] => all,
        named => named.to_vec(),
    })
}

fn one(workspace: &Workspace, target: String, limit: u64) -> Result<Row> {
    // What a run finds interesting goes beside the repository: seeds are chosen, not collected.
    let found = workspace.path(format!("target/fuzz-corpus/{target}"));
    std::fs::create_dir_all(&found)
        .with_context(|| format!("cannot create {}", found.display()))?;
    let mut command = fuzzer(workspace, &target);
    command
        .arg(found)
        .arg(workspace.path(format!("fuzz/corpus/{target}")));
    command.args(["--", &format!("-max_total_time={limit}"), "-jobs=0"]);
    command.args(["-max_len=4096", "-timeout=10", "-print_final_stats=1"]);
    let watch = Stopwatch::start();
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot start cargo fuzz; install it: cargo install --locked cargo-fuzz")?;
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let lines: Vec<_> = told.lines().collect();
        let end = lines.len().saturating_sub(60);
        println!("{}", lines[end..].join("\n"));
    }
    let (coverage, corpus) = reached(&told);
    let row = Row {
        passed: output.status.success(),
        runs: stat(&told, "stat::number_of_executed_units:"),
        coverage,
        corpus,
        seconds: watch.seconds(),
        target,
    };
    println!(
        "{} inputs, {} edges, {} kept",
        row.runs, row.coverage, row.corpus
    );
    Ok(row)
}

/// Gives a target each input of its corpus, once.
fn replay(workspace: &Workspace, target: String) -> Result<Row> {
    let folder = workspace.path(format!("fuzz/corpus/{target}"));
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))? {
        inputs.push(entry?.path());
    }
    if inputs.is_empty() {
        bail!("{target} has no inputs, so giving it all of them proves nothing");
    }
    let watch = Stopwatch::start();
    let mut command = exec::cargo();
    command.current_dir(workspace.path("fuzz"));
    command.args(["run", "--quiet", "--locked", "--bin", &target]);
    if let Some(feature) = feature(workspace, &target) {
        command.arg(format!("--features={feature}"));
    }
    // Files, and not their folder: a fuzzer that is given a folder wants to know which edges are
    // reached.
    let output = command
        .arg("--")
        .args(&inputs)
        .stdin(Stdio::null())
        .output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    let runs = told
        .lines()
        .filter(|line| line.starts_with("Executed "))
        .count();
    if !output.status.success() || runs != inputs.len() {
        println!("{told}");
    }
    Ok(Row {
        passed: output.status.success() && runs == inputs.len(),
        runs: runs as u64,
        coverage: 0,
        corpus: inputs.len() as u64,
        seconds: watch.seconds(),
        target,
    })
}

fn feature(workspace: &Workspace, target: &str) -> Option<String> {
    let manifest = std::fs::read_to_string(workspace.path("fuzz/Cargo.toml"));
    feature_of(&manifest.unwrap_or_default(), target)
}

fn fuzzer(workspace: &Workspace, target: &str) -> Command {
    let mut command = exec::cargo();
    // Fuzzing needs flags that a stable compiler has, and does not offer.
    command
        .env("RUSTC_BOOTSTRAP", "1")
        .current_dir(workspace.path("fuzz"));
    // Our code has no `unsafe` for a sanitizer to find anything in, and it takes time from trying
    // inputs.
    command.args(["fuzz", "run", target, "--sanitizer=none"]);
    if let Some(feature) = feature(workspace, target) {
        command.arg(format!("--features={feature}"));
    }
    command
}

/// The feature that a target needs, so that slow dependencies are built only where they are needed.
fn feature_of(manifest: &str, target: &str) -> Option<String> {
    let name = format!("name = \"{target}\"");
    let mut tables = manifest.split("[[bin]]").skip(1);
    let table = tables.find(|table| table.lines().any(|line| line == name))?;
    let line = table
        .lines()
        .find(|line| line.starts_with("required-features"))?;
    line.split('"').nth(1).map(str::to_owned)
}

/// A figure of the fuzzer's closing statistics.
fn stat(told: &str, name: &str) -> u64 {
    let line = told.lines().rev().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
}

/// Edges and kept inputs, from the last line of progress: `#123  DONE  cov: 45 ft: 67 corp: 8/9b
/// …`.
fn reached(told: &str) -> (u64, u64) {
    let line = told.lines().rev().find(|line| line.contains(" cov: "));
    let after = |word: &str| {
        let rest = line?.split(word).nth(1)?.trim_start();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    (after(" cov:").unwrap_or(0), after(" corp:").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_targets_that_need_it_have_more_built() {
        let manifest = "[package]\nname = \"api\"\n[[bin]]\nname = \"key\"\n\
            [[bin]]\nname = \"api\"\nrequired-features = [\"server\"]\n";
        assert_eq!(feature_of(manifest, "api").as_deref(), Some("server"));
        assert_eq!(feature_of(manifest, "key"), None);
        assert_eq!(feature_of(manifest, "other"), None);
    }

    #[test]
    fn figures_are_read_from_the_fuzzers_words() {
        let told = "#2\tINITED cov: 3 ft: 4 corp: 1/1b\n\
            #9000\tDONE   cov: 123 ft: 456 corp: 78/9Kb lim: 40 exec/s: 900 rss: 50Mb\n\
            stat::number_of_executed_units: 9000\nstat::slowest_unit_time_sec: 0\n";
        assert_eq!(reached(told), (123, 78));
        assert_eq!(stat(told, "stat::number_of_executed_units:"), 9000);
        assert_eq!(reached("nothing"), (0, 0));
    }
}
