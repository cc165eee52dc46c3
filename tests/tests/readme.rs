//! The README, followed to the letter: its shell blocks run in order, in a clean folder, with the
//! program that is built from this tree; its configuration for agents starts a gateway that
//! answers.
//!
//! Ports are the test's own in place of the usual ones. Nothing else of the text is changed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use semel_testkit::private::{free_port, new_folder};
use semel_tests::pages::{assert_shown, blocks, commands, root};
use semel_tests::{semel, semel_command};
use serde_json::{Value, json};

fn blocks_of(kind: &str) -> Vec<String> {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let all = blocks(&readme).into_iter();
    all.filter(|block| block.kind == kind)
        .map(|block| block.text)
        .collect()
}

/// An empty folder and a `PATH` on which `semel` is installed, as after the installation of a
/// package: without a clone.
fn clean_folder() -> (PathBuf, std::ffi::OsString) {
    let folder = new_folder("readme");
    let bin = folder.join("bin");
    std::fs::create_dir(&bin).expect("a folder");
    symlink(semel(), bin.join("semel")).expect("a link");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = [bin].into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(all).expect("a PATH");
    (folder, path)
}

fn in_folder(command: &mut Command, folder: &Path, path: &std::ffi::OsStr) {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    command.current_dir(folder).env("PATH", path);
    command.env("HOME", folder).env_remove("XDG_STATE_HOME");
}

#[test]
fn every_shell_block_does_what_the_readme_says() {
    let (folder, path) = clean_folder();
    let (service, sidecar) = (free_port(), free_port());
    let own = |text: &str| {
        text.replace("--service 3000", &format!("--service {service}"))
            .replace("127.0.0.1:3000", &format!("127.0.0.1:{service}"))
            .replace("127.0.0.1:8080", &format!("127.0.0.1:{sidecar}"))
    };
    // What a person does by eye: look whether it has started.
    let started = format!(
        "for url in http://127.0.0.1:{service}/charges http://127.0.0.1:{sidecar}/_semel/readyz; do\n\
         curl -s -o wait --retry 60 --retry-delay 1 --retry-connrefused \"$url\"; done\n"
    );
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let commands = commands(&readme);
    let mut script = "set -eu\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n".to_owned();
    for (number, command) in commands.iter().enumerate() {
        script += &format!("echo '=== {number}'\n{}", own(&command.text));
        if command.text.trim_end().ends_with('&') {
            script += &started;
        }
    }
    let mut bash = Command::new("bash");
    in_folder(&mut bash, &folder, &path);
    bash.env("SEMEL_LISTENER_ADDRESS", format!("127.0.0.1:{sidecar}"));
    let output = bash.arg("-c").arg(&script).stdin(Stdio::null()).output();
    let output = output.expect("bash runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{said}\n{errors}");
    let parts: Vec<&str> = said.split("=== ").skip(1).collect();
    assert_eq!(parts.len(), commands.len(), "{said}");
    for (part, command) in parts.iter().zip(&commands) {
        let (_, printed) = part.split_once('\n').unwrap_or_default();
        if let Some(expected) = &command.output {
            assert_shown(expected, printed, command.line);
        }
    }
    std::fs::remove_dir_all(folder).expect("a folder of our own");
}

#[test]
fn the_configuration_for_agents_starts_a_gateway_whose_tools_take_a_key() {
    let [text] = &blocks_of("json")[..] else {
        panic!("one block for agents");
    };
    let config: Value = serde_json::from_str(text).expect("JSON");
    let server = &config["mcpServers"]["vendors"];
    let (folder, path) = clean_folder();
    let example = root().join("examples/mcp-tools/server.py");
    symlink(
        example.canonicalize().expect("a path"),
        folder.join("server.py"),
    )
    .expect("a link");
    // `python3` with the SDK of MCP, which the example's own README has installed.
    let python = std::env::var("SEMEL_TEST_MCP_PYTHON")
        .expect("SEMEL_TEST_MCP_PYTHON: see `cargo xtask services up mcp`");
    let wrapper = folder.join("bin/python3");
    std::fs::write(&wrapper, format!("#!/bin/sh\nexec {python} \"$@\"\n")).expect("a file");
    let may_run = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&wrapper, may_run).expect("permissions");

    assert_eq!(server["command"], "semel");
    let mut gateway = semel_command(&folder.join("bin/semel"));
    let words = server["args"].as_array().expect("arguments").iter();
    gateway.args(words.map(|word| word.as_str().expect("a word")));
    in_folder(&mut gateway, &folder, &path);
    gateway.env("PYTHONDONTWRITEBYTECODE", "1");
    let piped = gateway.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.stderr(Stdio::null()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    let client = json!({"name": "readme", "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
    ] {
        writeln!(input, "{message}").expect("it reads");
    }
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut messages = output
        .lines()
        .map(|line| -> Value { serde_json::from_str(&line.expect("text")).expect("JSON") });
    let tools = messages
        .find(|message| message["id"] == 2)
        .expect("an answer");
    let tools = tools["result"]["tools"].as_array().expect("tools");
    let submit = tools.iter().find(|tool| tool["name"] == "vendor_submit");
    let members = &submit.expect("the example's tool")["inputSchema"]["properties"];
    assert!(members.get("idempotencyKey").is_some(), "{members}");
    drop(input);
    child.wait().expect("it ends with its caller");
    std::fs::remove_dir_all(folder).expect("a folder of our own");
}

/// The planner's figures for answers of 256 bytes on a kind of store.
fn planned(store: &str) -> Value {
    let arguments = [
        "plan", "--rps", "1", "--body", "256B", "--json", "--store", store,
    ];
    let mut command = semel_command(&semel());
    let output = command.args(arguments).stdout(Stdio::piped()).output();
    serde_json::from_slice(&output.expect("it runs").stdout).expect("JSON")
}

/// `12345` as `12,345`.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[test]
fn the_costs_are_the_figures_of_the_program() {
    /// A figure of a plan, as the README writes it.
    type Figure<'a> = &'a dyn Fn(&Value) -> String;

    let readme = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let plans = [planned("redis"), planned("postgres")];
    let constant = |plan: &Value, name: &str| plan["constants"][name].as_f64().expect("a figure");
    let each = |plan: &Value| {
        let figures = plan["figures"].as_array().expect("figures");
        let each = figures.iter().find(|figure| figure["name"] == "each");
        let bytes = each.expect("the size of a record")["value"].as_f64();
        format!("{} bytes", grouped(bytes.expect("a number")))
    };
    let rate = |name: &'static str| move |plan: &Value| grouped(constant(plan, name));
    let alone = |plan: &Value| format!("{:.2} ms", constant(plan, "fresh_alone_ms"));
    let rows: [(&str, Figure<'_>); 4] = [
        ("a record with a 256-byte answer", &each),
        ("a new key, one caller", &alone),
        ("new keys a second, 64 callers", &rate("fresh_per_second")),
        ("replays a second, 64 callers", &rate("replays_per_second")),
    ];
    for (name, figure) in rows {
        let [redis, postgres] = plans.each_ref().map(figure);
        let row = format!("| {name} | {redis} | {postgres} |");
        assert!(readme.contains(&row), "the README has no row {row}");
    }
}
