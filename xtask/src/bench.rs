//! `cargo xtask bench NAME`: which program measures what.

use std::process::ExitCode;

use anyhow::Result;

use crate::table::table;
use crate::workspace::Workspace;
use crate::{exec, programs, services};

/// One thing that can be measured.
struct Bench {
    name: &'static str,
    what: &'static str,
    /// The real servers that it measures against.
    servers: &'static [&'static str],
    /// A package whose program it starts.
    starts: Option<&'static str>,
    /// Where its program is, for `cargo run`.
    program: [&'static str; 2],
}

/// Most benches.
const MAIN: [&str; 2] = ["--package", "semel-bench"];
/// Has few dependencies, because CI builds it optimised.
const CORE: [&str; 2] = ["--package", "semel-bench-core"];
/// A workspace of its own, which keeps peers out of our own dependencies.
const PEERS: [&str; 2] = ["--manifest-path", "bench/peers/Cargo.toml"];

/// All of them.
const BENCHES: &[Bench] = &[
    Bench {
        name: "core",
        what: "the engine over the memory store",
        servers: &[],
        starts: None,
        program: CORE,
    },
    Bench {
        name: "stores",
        what: "each store beside its bare engine",
        servers: &["redis", "valkey", "postgres", "mariadb", "s3"],
        starts: None,
        program: MAIN,
    },
    Bench {
        name: "http",
        what: "requests through the tower layer, beside none and beside a peer",
        servers: &["redis", "valkey"],
        starts: None,
        program: PEERS,
    },
    Bench {
        name: "peers",
        what: "our tests of other layers' defects, on a published peer",
        servers: &[],
        starts: None,
        program: PEERS,
    },
    Bench {
        name: "latency",
        what: "an open loop at fixed rates, on memory, Redis and PostgreSQL",
        servers: &["redis", "postgres"],
        starts: None,
        program: MAIN,
    },
    Bench {
        name: "erase",
        what: "erasing a subject with many records, beside one with a single record",
        servers: &["redis", "postgres"],
        starts: None,
        program: MAIN,
    },
    Bench {
        name: "telemetry",
        what: "the sidecar with metrics and log lines, beside without",
        servers: &[],
        starts: None,
        program: MAIN,
    },
    Bench {
        name: "sidecar",
        what: "requests through the sidecar, beside nginx",
        servers: &["redis", "recipes"],
        starts: Some("semel-cli"),
        program: MAIN,
    },
    Bench {
        name: "beside",
        what: "the sidecar beside an earlier program, named after `--`",
        servers: &["recipes"],
        starts: Some("semel-cli"),
        program: MAIN,
    },
    Bench {
        name: "flood",
        what: "one tenant beside another that sends far more than it may",
        servers: &[],
        starts: Some("semel-cli"),
        program: MAIN,
    },
    Bench {
        name: "stream",
        what: "the window of keys, beside a bare LRU map",
        servers: &[],
        starts: None,
        program: MAIN,
    },
    Bench {
        name: "mcp",
        what: "tool calls through the gateway, beside the server itself",
        servers: &["mcp"],
        starts: Some("semel-cli"),
        program: MAIN,
    },
    Bench {
        name: "jobs",
        what: "the queue of jobs, beside the bare statements that do the same",
        servers: &["postgres"],
        starts: None,
        program: MAIN,
    },
];

/// Unknown names end with the code that shells use for a wrong call.
const WRONG_CALL: u8 = 2;

/// Runs one measurement; its program writes `target/xtask/bench-NAME.json`.
pub(crate) fn run(workspace: &Workspace, name: &str, arguments: &[String]) -> Result<ExitCode> {
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
        eprintln!("no bench {name}; there are:\n{}", overview());
        return Ok(ExitCode::from(WRONG_CALL));
    };
    workspace.result_file(&format!("bench-{name}"))?;
    if let Some(package) = bench.starts {
        // The release build.
        let mut build = exec::cargo();
        build.args(["build", "--profile", "dist", "--package", package]);
        exec::run(build.current_dir(workspace.root()))?;
    }
    let mut command = exec::cargo();
    command.args(["run", "--release"]).args(bench.program);
    command.args(["--", name]).args(arguments);
    if !bench.servers.is_empty() {
        let names = bench.servers.iter().map(|&name| name.to_owned()).collect();
        services::run(workspace, &services::Action::Up { names })?;
        command.envs(services::variables(workspace)?);
    }
    programs::timed(workspace, bench.name, &mut command)?;
    Ok(ExitCode::SUCCESS)
}

/// Fails where a hot path takes more or fewer instructions than its budget says.
pub(crate) fn check_budgets(workspace: &Workspace) -> Result<()> {
    let mut command = exec::cargo();
    command.args(["run", "--release"]).args(CORE);
    command.args(["--", "core", "--check"]);
    exec::run(command.current_dir(workspace.root()))
}

fn overview() -> String {
    let rows = BENCHES
        .iter()
        .map(|bench| [bench.name.to_owned(), bench.what.to_owned()]);
    table(&["bench", "measures"], rows).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_temp() -> Workspace {
        Workspace::at(std::env::temp_dir().join(format!("xtask-bench-{}", std::process::id())))
    }

    #[test]
    fn an_unknown_name_is_a_wrong_call() {
        let code = run(&in_temp(), "no-such-thing", &[]).unwrap();
        assert_eq!(code, ExitCode::from(WRONG_CALL));
    }
}
