//! The steps, in their order.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::Outcome;
use crate::workspace::Workspace;
use crate::{book, deps, exec, faults, generate, house, programs, schemathesis, sdks, services};

/// One check.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Workspace) -> Result<Outcome>,
    /// Its output ends the whole run.
    pub(crate) closes: bool,
}

const fn step(name: &'static str, run: fn(&Workspace) -> Result<Outcome>) -> Step {
    Step {
        name,
        run,
        closes: false,
    }
}

/// In this order; the tests last.
pub(crate) const STEPS: &[Step] = &[
    step("format", |w| cargo(w, &["fmt", "--all", "--check"])),
    step("lints", |w| {
        let all = ["clippy", "--workspace", "--all-targets", "--all-features"];
        cargo(w, &[all.as_slice(), &["--", "-D", "warnings"]].concat())
    }),
    step("dependency direction", |w| deps::run(w).map(passed)),
    step("generated files", |w| generate::run(w, true).map(passed)),
    step("licences and sources", |w| {
        tool("deny")?;
        let check = ["deny", "check", "--hide-inclusion-graph"];
        cargo(
            w,
            &[check.as_slice(), &["bans", "licenses", "sources"]].concat(),
        )
    }),
    step("advisories", advisories),
    step("house rules", |w| house::run(w).map(passed)),
    step("documentation", documentation),
    step("book", |w| book::run(w).map(passed)),
    step("documented examples", |w| {
        cargo(w, &["test", "--workspace", "--doc", "--all-features"])
    }),
    step("model", |w| programs::model(w, true).map(passed)),
    step("schedules", |w| programs::shuttle(w).map(passed)),
    step("servers", |w| {
        let names = SERVERS.iter().map(|&name| name.to_owned()).collect();
        services::run(w, &services::Action::Up { names }).map(passed)
    }),
    step("APIs from outside", |w| {
        schemathesis::run(w, &schemathesis::Options::default()).map(passed)
    }),
    step("packages for other languages", |w| {
        sdks::run(w, None).map(passed)
    }),
    step("examples", examples),
    step("faults", |w| faults::slice(w).map(passed)),
    Step {
        name: "tests",
        run: tests,
        closes: true,
    },
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
    "mcp",
    "dashboard",
    "faketime",
];

/// How long the advisory database may take to arrive.
const FETCH_LIMIT: Duration = Duration::from_secs(30);

fn passed((): ()) -> Outcome {
    Outcome::Passed
}

fn cargo(workspace: &Workspace, arguments: &[&str]) -> Result<Outcome> {
    run(exec::cargo().args(arguments), workspace)
}

fn run(command: &mut Command, workspace: &Workspace) -> Result<Outcome> {
    exec::run(command.current_dir(workspace.root())).map(passed)
}

/// Refuses to go on without a cargo command that is installed separately.
fn tool(name: &str) -> Result<()> {
    let program = format!("cargo-{name}");
    if exec::capture(exec::cargo().args([name, "--version"])).is_err() {
        bail!("{program} is missing; install it with `cargo install --locked {program}`");
    }
    Ok(())
}

/// Many machines cannot reach the database. Then nothing was checked, and that is what is said.
fn advisories(workspace: &Workspace) -> Result<Outcome> {
    tool("deny")?;
    let mut fetch = exec::cargo();
    fetch
        .args(["deny", "fetch", "db"])
        .current_dir(workspace.root());
    if let Err(error) = exec::capture_within(&mut fetch, FETCH_LIMIT) {
        println!("advisories: not checked, no database reachable");
        let first = format!("{error:#}");
        println!("  ({})", first.lines().next().unwrap_or_default());
        return Ok(Outcome::NotChecked("no database reachable".to_owned()));
    }
    cargo(
        workspace,
        &["deny", "check", "--disable-fetch", "advisories"],
    )
}

fn documentation(workspace: &Workspace) -> Result<Outcome> {
    let mut command = exec::cargo();
    command.args(["doc", "--workspace", "--no-deps", "--all-features"]);
    run(command.env("RUSTDOCFLAGS", "-D warnings"), workspace)
}

/// Each a workspace of its own, as an application is.
pub(crate) const EXAMPLES: &[&str] = &[
    "axum-payments",
    "bucket-tasks",
    "contract-transition",
    "intake",
    "mesh",
    "replica",
];

fn examples(workspace: &Workspace) -> Result<Outcome> {
    let target = workspace.root().join("target");
    for example in EXAMPLES {
        let manifest = workspace
            .root()
            .join("examples")
            .join(example)
            .join("Cargo.toml");
        let mut command = exec::cargo();
        command
            .args(["nextest", "run", "--manifest-path"])
            .arg(manifest);
        command
            .arg("--target-dir")
            .arg(&target)
            .envs(services::variables(workspace)?);
        run(&mut command, workspace)?;
    }
    Ok(Outcome::Passed)
}

fn tests(workspace: &Workspace) -> Result<Outcome> {
    tool("nextest")?;
    // Tests of several processes start it, and shouldn't spend their time on building it.
    programs::debug(workspace, "semel")?;
    let all = [
        "nextest",
        "run",
        "--workspace",
        "--all-features",
        "--profile",
        "ci",
    ];
    let mut command = exec::cargo();
    command.args(all).envs(services::variables(workspace)?);
    run(&mut command, workspace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_and_only_they_close_the_run() {
        let closing: Vec<usize> = (0..STEPS.len()).filter(|i| STEPS[*i].closes).collect();
        assert_eq!(closing, [STEPS.len() - 1]);
        assert_eq!(STEPS[STEPS.len() - 1].name, "tests");
    }

    #[test]
    fn a_missing_tool_says_how_to_get_it() {
        let error = tool("no-such-tool").unwrap_err().to_string();
        assert!(
            error.contains("cargo install --locked cargo-no-such-tool"),
            "{error}"
        );
    }
}
