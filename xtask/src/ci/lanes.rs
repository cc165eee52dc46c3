//! Runs steps in parallel lanes: each lane runs its steps in order, and a step waits for the steps
//! of other lanes that it names.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use std::os::unix::process::CommandExt as _;

use super::steps::{LAST, Lane, Step};
use super::{Outcome, Row};
use crate::exec;
use crate::programs::BUILT;
use crate::table::seconds;
use crate::workspace::Workspace;
use semel_devservers::time::{Stopwatch, pause};

/// The time limit of a run, so that it ends with a report before an outer limit kills it.
const LIMIT: Duration = Duration::from_secs(80 * 60);

/// How often the running steps are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// A step that runs.
struct Running {
    index: usize,
    child: Child,
    watch: Stopwatch,
}

/// Runs all steps. Ends early after the first that fails, unless it is to `keep_going`.
pub(super) fn run(
    workspace: &Workspace,
    steps: &'static [Step],
    keep_going: bool,
) -> Result<Vec<Row>> {
    let program = own_copy(workspace)?;
    let whole = Stopwatch::start();
    let mut outcomes: Vec<Option<(f64, Outcome)>> = steps.iter().map(|_| None).collect();
    let mut running: Vec<Running> = Vec::new();
    loop {
        end_finished(workspace, steps, &mut running, &mut outcomes)?;
        let failed = outcomes
            .iter()
            .flatten()
            .any(|(_, outcome)| !keep_going && *outcome != Outcome::Passed);
        let late = whole.elapsed() > LIMIT;
        if failed || late {
            for mut step in running.drain(..) {
                end(&mut step.child)?;
                let outcome = match late {
                    true => {
                        Outcome::Failed(format!("the run passed {} minutes", LIMIT.as_secs() / 60))
                    }
                    false => Outcome::NotReached,
                };
                outcomes[step.index] = Some((step.watch.seconds(), outcome));
                println!("--- {} was ended", steps[step.index].name);
            }
            break;
        }
        let ended: Vec<bool> = outcomes.iter().map(Option::is_some).collect();
        let busy: Vec<usize> = running.iter().map(|step| step.index).collect();
        for index in ready(steps, &ended, &busy) {
            println!("=== {} begins", steps[index].name);
            running.push(start(workspace, &program, steps, index)?);
        }
        if running.is_empty() {
            break;
        }
        pause(LOOK);
    }
    let row = |(step, outcome): (&Step, Option<(f64, Outcome)>)| {
        let (seconds, outcome) = outcome.unwrap_or((0.0, Outcome::NotReached));
        Row {
            step: step.name,
            seconds,
            outcome,
        }
    };
    Ok(steps.iter().zip(outcomes).map(row).collect())
}

/// The steps that may begin now: the next of each free lane, if those that it waits for have
/// ended.
fn ready(steps: &[Step], ended: &[bool], busy: &[usize]) -> Vec<usize> {
    let has_ended = |name: &str| {
        steps
            .iter()
            .zip(ended)
            .any(|(step, ended)| step.name == name && *ended)
    };
    Lane::ALL
        .into_iter()
        .filter(|lane| !busy.iter().any(|index| steps[*index].lane == *lane))
        .filter_map(|lane| {
            (0..steps.len()).find(|index| steps[*index].lane == lane && !ended[*index])
        })
        .filter(|index| steps[*index].after.iter().all(|name| has_ended(name)))
        .filter(|index| {
            steps[*index].name != LAST
                || (0..steps.len()).all(|i| ended[i] || i == *index || steps[i].lane == Lane::Idle)
        })
        .collect()
}

fn end_finished(
    workspace: &Workspace,
    steps: &[Step],
    running: &mut Vec<Running>,
    outcomes: &mut [Option<(f64, Outcome)>],
) -> Result<()> {
    let mut still = Vec::new();
    for mut step in running.drain(..) {
        let Some(status) = step.child.try_wait()? else {
            still.push(step);
            continue;
        };
        let (took, this) = (step.watch.seconds(), &steps[step.index]);
        let outcome = if status.success() {
            Outcome::Passed
        } else {
            let log = log_of(workspace, this.name)?;
            Outcome::Failed(exec::last_lines(&log, 1))
        };
        let word = if outcome == Outcome::Passed {
            "passed"
        } else {
            "FAILED"
        };
        let ended = format!("{word} after {}", seconds(took));
        if this.name == LAST || outcome != Outcome::Passed {
            // Its log closes the output.
            println!("--- {} {ended}", this.name);
        } else {
            print_log(workspace, this, &ended)?;
        }
        outcomes[step.index] = Some((took, outcome));
    }
    *running = still;
    Ok(())
}

/// Builds replace this program while it runs, so steps are started from a copy.
fn own_copy(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.path("target/xtask/ci");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let copy = folder.join("xtask");
    std::fs::copy(std::env::current_exe()?, &copy).context("cannot copy this program")?;
    Ok(copy)
}

fn log_file(workspace: &Workspace, step: &str) -> PathBuf {
    workspace
        .path("target/xtask/ci")
        .join(format!("{}.log", step.replace(' ', "-")))
}

/// What a step has printed.
pub(super) fn log_of(workspace: &Workspace, step: &str) -> Result<String> {
    match std::fs::read(log_file(workspace, step)) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error.into()),
    }
}

fn print_log(workspace: &Workspace, step: &Step, ended: &str) -> Result<()> {
    println!(
        "\n=== {}\n{}--- {} {ended}\n",
        step.name,
        log_of(workspace, step.name)?,
        step.name
    );
    Ok(())
}

/// As the leader of a process group, so that it can be ended with all that it started.
fn start(
    workspace: &Workspace,
    program: &PathBuf,
    steps: &[Step],
    index: usize,
) -> Result<Running> {
    let step = &steps[index];
    let log = File::create(log_file(workspace, step.name))?;
    let mut command = Command::new("nice");
    command.args(["-n", step.lane.niceness()]).arg(program);
    command.args(["ci", "--only", step.name]);
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    if step.lane == Lane::Run {
        command.env(BUILT, "1");
    }
    command.process_group(0).current_dir(workspace.root());
    let child = command
        .spawn()
        .with_context(|| format!("cannot start the step {}", step.name))?;
    Ok(Running {
        index,
        child,
        watch: Stopwatch::start(),
    })
}

/// Ends a step and all that it started, politely at first: a test runner then ends its tests.
fn end(child: &mut Child) -> Result<()> {
    use rustix::process::{Pid, Signal, kill_process_group};
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return Ok(());
    };
    for signal in [Signal::TERM, Signal::KILL] {
        // Gone already is as good.
        let _ = kill_process_group(group, signal);
        let watch = Stopwatch::start();
        while watch.elapsed() < Duration::from_secs(10) {
            if child.try_wait()?.is_some() {
                return Ok(());
            }
            pause(LOOK);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn step(name: &'static str, lane: Lane, after: &'static [&'static str]) -> Step {
        Step {
            name,
            lane,
            after,
            run: |_| Ok(()),
        }
    }

    const STEPS: &[Step] = &[
        step("lints", Lane::Build, &[]),
        step("build", Lane::Build, &[]),
        step("servers", Lane::Setup, &[]),
        step("faults", Lane::Run, &["build", "servers"]),
        step("model", Lane::Idle, &["build"]),
        step(LAST, Lane::Run, &[]),
    ];

    #[test]
    fn lanes_run_side_by_side_and_each_in_order() {
        assert_eq!(ready(STEPS, &[false; 6], &[]), [0, 2]);
        assert_eq!(
            ready(STEPS, &[true, false, false, false, false, false], &[2]),
            [1]
        );
    }

    #[test]
    fn a_step_waits_for_those_that_it_names() {
        assert_eq!(
            ready(STEPS, &[true, true, false, false, false, false], &[2]),
            [4]
        );
        assert_eq!(
            ready(STEPS, &[true, true, true, false, false, false], &[4]),
            [3]
        );
    }

    #[test]
    fn the_last_step_waits_for_all_but_the_idle_lane() {
        assert_eq!(
            ready(STEPS, &[true, true, true, false, false, false], &[3, 4]),
            [0; 0]
        );
        assert_eq!(
            ready(STEPS, &[true, true, true, true, false, false], &[4]),
            [5]
        );
    }
}
