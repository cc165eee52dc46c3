//! Snapshots of what a user reads: errors of commands, of settings, and the titles of problems.
//!
//! `INSTA_UPDATE=always cargo test -p semel-cli --test messages` rewrites them after a change.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use semel::core::Code;

/// Runs a command line in a folder. Returns the command line, its exit code and its error output.
fn run(folder: &Path, line: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    let output = command
        .args(line.split(' ').filter(|word| !word.is_empty()))
        .current_dir(folder)
        .output()
        .expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    // Log lines are JSON here, and have a time.
    let errors: Vec<&str> = errors
        .lines()
        .filter(|line| !line.starts_with('{'))
        .collect();
    let code = output.status.code().unwrap_or_default();
    let errors = errors.join("\n");
    format!("$ semel {line}\nexit {code}\n{}\n\n", errors.trim_end())
}

fn run_all(folder: &Path, lines: &[&str]) -> String {
    lines.iter().map(|line| run(folder, line)).collect()
}

/// A new folder under the target folder.
fn folder(name: &str) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("the folder is writable");
    folder
}

#[test]
fn errors_of_operator_commands() {
    let lines = [
        "keys list",
        "keys inspect 3f9c --store memory://",
        "keys inspect 3f9c21d07be4 --store memory://",
        "keys inspect --store memory://",
        "keys list --admin 127.0.0.1",
        "keys list --admin http://127.0.0.1:1",
        "keys list --admin http://192.0.2.1:9090 --token-file token",
        "keys list --config missing.toml",
        "keys erase jo --reason test --yes --store memory://",
        "gc",
        "tail --store memory://",
        "top --store memory://",
        "jobs list --store memory://",
        "audit verify missing.jsonl",
        "operator",
        "operator jo --role root",
        "operator jo --role read --expires soon",
        "token",
        "token j\u{f6} --tenant acme",
        "token jo --expires 2027-31-01",
        "token jo --expires 2020-01-31",
    ];
    let folder = folder("operator-errors");
    std::fs::write(folder.join("token"), "0123456789abcdef").expect("the folder is writable");
    insta::assert_snapshot!("operator_commands", run_all(&folder, &lines));
}

#[test]
fn errors_of_store_commands() {
    let lines = [
        "migrate",
        "migrate --store ftp://host",
        "migrate --store memory",
        "migrate --jobs --store sqlite:///x.db",
        "migrate-store --from memory:// --to memory:// --resume progress.json",
        "lifecycle --store redis://127.0.0.1",
        "bench --store redis://127.0.0.1:1",
        "bench --store memory:// --body 2MiB",
        "plan --rps 100 --constants missing.json",
        "plan --rps 100 --constants empty.json",
        "plan --rps 0",
    ];
    let folder = folder("store-errors");
    let other = r#"{"from":"a","to":"b","comparing":false}"#;
    for (name, text) in [("empty.json", "{}"), ("progress.json", other)] {
        std::fs::write(folder.join(name), text).expect("the folder is writable");
    }
    insta::assert_snapshot!("store_commands", run_all(&folder, &lines));
}

#[test]
fn errors_of_the_tool_gateway() {
    let lines = [
        "mcp",
        "mcp --store memory:// --upstream host/mcp",
        "mcp --store memory:// --upstream http://127.0.0.1:1/mcp --header nonsense",
        "mcp --store memory:// --upstream http://192.0.2.1/mcp --header Authorization:x",
        "mcp --store memory:// --listen 0.0.0.0:0 -- true",
        "mcp --store memory:// --upstream http://127.0.0.1:1/mcp --listen 0.0.0.0:0 --header X-Token:x",
        "mcp --store memory:// --upstream http://127.0.0.1:1/mcp --listen 0.0.0.0:0 --principal-header X-User",
        "mcp --store memory:// --listen 0.0.0.0:0 --listen-token-file long -- true",
        "mcp --store memory:// --admin 127.0.0.1:0 -- true",
        "mcp --store memory:// --admin 0.0.0.0:0 --admin-token-file long -- true",
        "mcp --store memory:// --name a/b -- true",
        "mcp --store memory:// --listen 127.0.0.1:0 --listen-token-file short -- true",
        "mcp --store memory:// -c missing.toml -- true",
        "mcp --store memory:// -- missing-program",
        "mcp lint -- missing-program",
    ];
    let folder = folder("gateway-errors");
    std::fs::write(folder.join("short"), "short").expect("the folder is writable");
    std::fs::write(folder.join("long"), "0123456789abcdef").expect("the folder is writable");
    insta::assert_snapshot!("tool_gateway", run_all(&folder, &lines));
}

#[test]
fn errors_of_settings() {
    let folder = folder("settings-errors");
    let files = [
        ("unknown.toml", "upstreem = 1\n"),
        ("syntax.toml", "upstream = [\n"),
        (
            "values.toml",
            "[listener]\naddress = \"nowhere\"\n[upstream]\nurls = [\"localhost:3000\"]\n\
             response_timeout = \"soon\"\n[store]\nurl = \"ftp://host\"\n\
             [defaults]\nmode = \"maybe\"\n",
        ),
        (
            "conflicts.toml",
            "[upstream]\nurls = [\"http://127.0.0.1:3000\"]\n[store]\nurl = \"memory://\"\n\
             [defaults]\nlease = \"1h\"\nretention = \"1m\"\n\
             [[routes]]\npath = \"charges\"\n",
        ),
    ];
    let mut text = String::new();
    for (name, settings) in files {
        std::fs::write(folder.join(name), settings).expect("the folder is writable");
        text += &run(&folder, &format!("config check --config {name}"));
    }
    text += &run_all(
        &folder,
        &[
            "serve",
            "serve --config missing.toml",
            "serve --upstream http://127.0.0.1:3000 --store memory:// --set listener.adress=x",
            "serve --upstream http://127.0.0.1:3000 --store memory:// --set listener",
            "config explain upstream.response_timeot",
        ],
    );
    insta::assert_snapshot!("settings", text);
}

#[test]
fn titles_of_problems() {
    let mut text = String::new();
    for code in Code::ALL {
        let (status, title) = (code.status(), code.title());
        writeln!(text, "{status} {code}: {title}").expect("a string takes every text");
    }
    insta::assert_snapshot!("problem_titles", text);
}
