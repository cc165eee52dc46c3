//! `semel docs --mcp`, with a client of the official Python SDK.

use std::path::Path;

use semel_tests::semel;

use crate::support::{Place, needs, said, words};

#[test]
fn a_coding_agent_searches_and_reads_the_documentation() {
    let place = Place::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/mcp/docs.py");
    let mut command = words(&[&needs("SEMEL_TEST_MCP_PYTHON"), Path::new(script), &semel()]);
    command.extend(["docs", "--mcp"].map(str::to_owned));
    let seen = said(&mut place.command(&command));
    assert_eq!(
        seen["tools"],
        serde_json::json!(["search_docs", "read_doc"])
    );
    let text = |name: &str| seen[name].as_str().expect("text").to_owned();
    assert!(text("found").contains("guarantees"), "{}", text("found"));
    assert!(text("page").starts_with("# "), "{}", text("page"));
    assert!(text("missing").contains("There is no page"));
}
