//! The steps, and what each waits for.

use std::process::Command;

use anyhow::Result;

use super::{advisories, retried, tools};
use crate::programs::EVERY_TEST;
use crate::workspace::Workspace;
use crate::{
    bench, book, deps, dist, exec, faults, generate, house, programs, schemathesis, sdks, services,
    workflows,
};

/// One check.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) lane: Lane,
    /// Steps of other lanes that must have passed before this one begins.
    pub(crate) after: &'static [&'static str],
    pub(crate) run: fn(&Workspace) -> Result<()>,
}

/// Steps of one lane run one after another, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Whatever compiles into the one target folder, which cargo locks.
    Build,
    /// Downloads, servers, tools.
    Setup,
    /// Programs and tests on real servers; they come first when processors are short.
    Run,
    /// Computes for long without waiting for anything; gets what the others leave.
    Idle,
}

impl Lane {
    pub(crate) const ALL: [Self; 4] = [Self::Build, Self::Setup, Self::Run, Self::Idle];

    /// How far it stands back behind the others, for `nice`.
    pub(crate) const fn niceness(self) -> &'static str {
        match self {
            // Servers inherit what the setup has: they are as quick as the tests that call them.
            Self::Run | Self::Setup => "0",
            Self::Build => "5",
            Self::Idle => "19",
        }
    }
}

const fn step(name: &'static str, lane: Lane, run: fn(&Workspace) -> Result<()>) -> Step {
    Step {
        name,
        lane,
        after: &[],
        run,
    }
}

const fn after(earlier: &'static [&'static str], step: Step) -> Step {
    Step {
        after: earlier,
        ..step
    }
}

/// The step whose output closes the run.
pub(crate) const LAST: &str = "tests";

/// In this order within each lane.
pub(crate) const STEPS: &[Step] = &[
    step("format", Lane::Build, |w| {
        cargo(w, &["fmt", "--all", "--check"])
    }),
    step("house rules", Lane::Build, house::run),
    step("dependency direction", Lane::Build, deps::run),
    step("programs", Lane::Build, programs::build),
    step("generated files", Lane::Build, |w| generate::run(w, true)),
    step("build of the tests", Lane::Build, |w| {
        exec::run(nextest(w).arg("--no-run"))
    }),
    step("lints", Lane::Build, lints),
    step("documentation", Lane::Build, documentation),
    step("documented examples", Lane::Build, |w| {
        cargo(w, &["test", "--workspace", "--doc", "--all-features"])
    }),
    step("servers", Lane::Setup, |w| {
        let names = SERVERS.iter().map(|&name| name.to_owned()).collect();
        services::run(w, &services::Action::Up { names })
    }),
    step("tools", Lane::Setup, |w| {
        tools::install(w)?;
        sdks::prepare(w)?;
        schemathesis::install(w).map(drop)
    }),
    step("licences and sources", Lane::Setup, |w| {
        let check = ["check", "--hide-inclusion-graph"];
        let what = ["bans", "licenses", "sources"];
        tools::deny(w, &[check.as_slice(), &what].concat())
    }),
    step("advisories", Lane::Setup, advisories::run),
    step("workflow files", Lane::Setup, workflows::run),
    step("book", Lane::Setup, book::run),
    after(
        &["programs", "tools"],
        step("APIs from outside", Lane::Run, |w| {
            schemathesis::run(w, &schemathesis::Options::default())
        }),
    ),
    after(
        &["servers"],
        step("packages for other languages", Lane::Run, |w| {
            sdks::run(w, None)
        }),
    ),
    after(
        &["programs", "tools"],
        step("packages of the program", Lane::Run, dist::trial),
    ),
    step("faults", Lane::Run, faults::slice),
    step("model", Lane::Idle, |w| programs::model(w, true)),
    step("schedules", Lane::Idle, programs::shuttle),
    step("instructions", Lane::Idle, bench::check_budgets),
    step(LAST, Lane::Run, tests),
];

/// The real servers that the tests need.
const SERVERS: &[&str] = &[
    "redis",
    "valkey",
    "redis-sentinel",
    "redis-cluster",
    "postgres",
    "pgbouncer",
    "postgres-sync",
    "mariadb",
    "nats",
    "rabbitmq",
    "s3",
    "s3-unfit",
    "azurite",
    "prometheus",
    "recipes",
    "kubernetes",
    "mcp",
    "dashboard",
    "faketime",
];

pub(super) fn cargo(workspace: &Workspace, arguments: &[&str]) -> Result<()> {
    exec::run(exec::cargo().args(arguments).current_dir(workspace.root()))
}

pub(super) fn lints(workspace: &Workspace) -> Result<()> {
    // The first leaves out the tests that need servers, as a plain `cargo test` does.
    for targets in ["--all-targets", "--test=*"] {
        let all = ["clippy", "--workspace", "--all-features", targets];
        cargo(
            workspace,
            &[all.as_slice(), &["--", "-D", "warnings"]].concat(),
        )?;
    }
    Ok(())
}

pub(super) fn documentation(workspace: &Workspace) -> Result<()> {
    let mut command = exec::cargo();
    command.args(["doc", "--workspace", "--no-deps", "--all-features"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    exec::run(command.current_dir(workspace.root()))
}

fn tests(workspace: &Workspace) -> Result<()> {
    let ran = exec::run(nextest(workspace).envs(services::variables(workspace)?));
    retried::judge(workspace, ran)
}

/// The command that runs every test.
fn nextest(workspace: &Workspace) -> Command {
    let mut command = exec::cargo();
    command.args(["nextest", "run", "--profile", "ci"]);
    command.args(EVERY_TEST).current_dir(workspace.root());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_are_the_last_step() {
        assert_eq!(STEPS.last().map(|step| step.name), Some(LAST));
    }

    #[test]
    fn every_step_waits_for_steps_that_exist_in_other_lanes() {
        for step in STEPS {
            for name in step.after {
                let other = STEPS.iter().find(|other| other.name == *name);
                assert!(
                    other.is_some_and(|other| other.lane != step.lane),
                    "{} waits for {name}",
                    step.name
                );
            }
        }
    }
}
