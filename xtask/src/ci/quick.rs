//! `cargo xtask ci --quick`: the checks that need nothing but Rust, one after another.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use cargo_metadata::{CargoOpt, Message, MetadataCommand};
use serde::Serialize;

use super::steps::{cargo, documentation, lints};
use super::{Outcome, Row, failure, print_table};
use crate::table::{seconds, table};
use crate::workspace::Workspace;
use crate::{deps, exec, generate, house};
use semel_devservers::time::Stopwatch;

type Check = fn(&Workspace) -> Result<()>;

const STEPS: [(&str, Check); 7] = [
    ("format", |w| cargo(w, &["fmt", "--all", "--check"])),
    ("house rules", house::run),
    ("dependency direction", deps::run),
    ("lints", lints),
    ("documentation", documentation),
    ("generated files", |w| generate::run(w, true)),
    ("tests", tests),
];

/// The totals of the tests.
#[derive(Debug, Default, Serialize)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
    needs_servers: u64,
}

/// How the harness names a test that is marked `#[ignore = "needs servers"]`.
const NEEDS_SERVERS: &str = "... ignored, needs servers";

/// Stops at the first step that fails.
pub(super) fn run(workspace: &Workspace) -> Result<()> {
    let mut rows = Vec::new();
    for (step, check) in STEPS {
        if failure(&rows).is_some() {
            rows.push(Row {
                step,
                seconds: 0.0,
                outcome: Outcome::NotReached,
            });
            continue;
        }
        println!("\n=== {step}");
        let watch = Stopwatch::start();
        let outcome = match check(workspace) {
            Ok(()) => Outcome::Passed,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        rows.push(Row {
            step,
            seconds: watch.seconds(),
            outcome,
        });
    }
    workspace.write_result("ci-quick", &rows)?;
    print_table(&rows);
    match failure(&rows) {
        None => Ok(()),
        Some((step, reason)) => bail!("{step}: {reason}"),
    }
}

/// Runs `cargo test`, and counts the tests that need servers.
fn tests(workspace: &Workspace) -> Result<()> {
    let left_out = left_out(workspace)?;
    let watch = Stopwatch::start();
    let mut command = exec::cargo();
    command.args(["test", "--workspace", "--all-features", "--no-fail-fast"]);
    command.current_dir(workspace.root());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let (mut counts, mut marked) = (Counts::default(), 0);
    let output = child.stdout.take().context("the output of the tests")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        counts.add(&line);
        if line.ends_with(NEEDS_SERVERS) {
            marked += 1;
            continue;
        }
        // Thousands of lines that say "ok" hide the one that doesn't.
        if !line.ends_with("... ok") {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    counts.ignored = counts.ignored.saturating_sub(marked);
    counts.needs_servers = left_out + marked;
    workspace.write_result("ci-quick-tests", &counts)?;
    let cells = [
        ("passed", counts.passed),
        ("failed", counts.failed),
        ("ignored", counts.ignored),
        ("not run: needs servers", counts.needs_servers),
    ];
    let cells = cells.map(|(name, count)| [name.to_owned(), count.to_string()]);
    println!(
        "{}\ntests took {}",
        table(&["tests", "count"], cells),
        seconds(watch.seconds())
    );
    if !status.success() {
        bail!("`cargo test` ended with {status}");
    }
    Ok(())
}

impl Counts {
    /// Adds what a closing line of the test harness says: `test result: ok. 3 passed; 0 failed; 1
    /// ignored; …`.
    fn add(&mut self, line: &str) {
        let Some((_, numbers)) = line
            .trim()
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in numbers.split("; ") {
            let Some((number, word)) = part.split_once(' ') else {
                continue;
            };
            let number: u64 = number.parse().unwrap_or(0);
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

/// Tests of the targets that manifests mark `test = false`, as they need servers: built and
/// counted, not run.
fn left_out(workspace: &Workspace) -> Result<u64> {
    let metadata = MetadataCommand::new()
        .manifest_path(workspace.path("Cargo.toml"))
        .features(CargoOpt::AllFeatures)
        .no_deps()
        .exec()?;
    let targets = metadata
        .packages
        .iter()
        .flat_map(|package| &package.targets);
    let marked: Vec<&str> = targets
        .filter(|target| target.is_test() && !target.test)
        .map(|target| target.name.as_str())
        .collect();
    if marked.is_empty() {
        return Ok(0);
    }
    let mut command = exec::cargo();
    command.args([
        "test",
        "--workspace",
        "--all-features",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    for name in &marked {
        command.arg(format!("--test={name}"));
    }
    let mut child = command
        .current_dir(workspace.root())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(child.stdout.take().context("the output of cargo")?);
    let mut programs = Vec::new();
    for message in Message::parse_stream(output) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.target.is_test()
            && !artifact.target.test
        {
            programs.extend(artifact.executable);
        }
    }
    if !child.wait()?.success() {
        bail!("the tests that need servers do not build");
    }
    let mut count = 0;
    for program in programs {
        let list = exec::capture(
            std::process::Command::new(program).args(["--list", "--format", "terse"]),
        )?;
        count += list.lines().filter(|line| line.ends_with(": test")).count() as u64;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn the_closing_lines_of_the_harness_are_added_up() {
        let mut counts = Counts::default();
        counts.add("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        counts.add("test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.01s");
        counts.add("test engine::three_passed ... ok");
        assert_eq!((counts.passed, counts.failed, counts.ignored), (7, 2, 1));
    }
}
