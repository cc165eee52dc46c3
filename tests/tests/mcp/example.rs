//! `examples/mcp-tools`, as its README starts it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Place, needs, words};

fn example(file: &str) -> PathBuf {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../examples/mcp-tools"
    ))
    .join(file)
}

/// What the agent says at the end, and how many vendors there are then.
fn onboarded(place: &Place, server: &[String]) -> (String, usize) {
    let book = place.folder.join("vendors.jsonl");
    let mut command = place.command(&words(&[
        &needs("SEMEL_TEST_MCP_PYTHON"),
        &example("agent.py"),
    ]));
    command
        .args(server)
        .env("VENDORS", &book)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    (
        said,
        std::fs::read_to_string(book)
            .expect("the book")
            .lines()
            .count(),
    )
}

#[test]
fn the_vendor_is_onboarded_once_and_three_times_without_the_gateway() {
    let place = Place::new();
    let server = words(&[&needs("SEMEL_TEST_MCP_PYTHON"), &example("server.py")]);
    let (said, vendors) = onboarded(&place, &server);
    assert_eq!(vendors, 3, "{said}");
    let place = Place::new();
    let (said, vendors) = onboarded(&place, &place.gateway(&[], &server));
    assert_eq!(vendors, 1, "{said}");
    assert!(
        said.contains("(replayed)") && said.contains("submissions: sub_0001"),
        "{said}"
    );
}

#[test]
fn the_snippet_for_a_desktop_client_starts_this_gateway() {
    let text = std::fs::read_to_string(example("claude_desktop_config.json")).expect("the snippet");
    let snippet: Value = serde_json::from_str(&text).expect("JSON");
    let server = &snippet["mcpServers"]["vendor-onboarding"];
    assert_eq!(server["command"], "semel");
    let mut command: Vec<String> = serde_json::from_value(server["args"].clone()).expect("words");
    assert!(Path::new(command.last().expect("a script")).ends_with("examples/mcp-tools/server.py"));
    let at = command
        .iter()
        .position(|word| word == "--")
        .expect("the server's own command");
    command.truncate(at);
    command[0] = "--store".to_owned();
    let place = Place::new();
    command.insert(1, place.store());
    let flags: Vec<&str> = command.iter().skip(2).map(String::as_str).collect();
    let server = words(&[&needs("SEMEL_TEST_MCP_PYTHON"), &example("server.py")]);
    let (said, vendors) = onboarded(&place, &place.gateway(&flags, &server));
    assert_eq!(vendors, 1, "{said}");
}
