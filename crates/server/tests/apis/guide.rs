//! Runs the examples of `docs/api.md` and `docs/admin.md`.

use std::process::Stdio;

use crate::support::{ACME, ADMIN, Server};

/// All `sh` blocks of a page, in order, as one script.
fn script(page: &str) -> String {
    let mut blocks = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once("```sh\n") {
        let (block, after) = after.split_once("```").expect("a block that ends");
        blocks.push(block);
        rest = after;
    }
    assert!(!blocks.is_empty(), "the page has examples");
    blocks.join("\n")
}

async fn run(page: &str) -> String {
    let server = Server::start("memory://").await;
    let mut command = tokio::process::Command::new("bash");
    command
        .arg("-euo")
        .arg("pipefail")
        .arg("-c")
        .arg(script(page));
    command
        .env("API", format!("http://{}", server.api))
        .env("TOKEN", ACME);
    command
        .env("ADMIN", format!("http://{}", server.admin))
        .env("ADMIN_TOKEN", ADMIN);
    let output = command.stdin(Stdio::null()).output().await.expect("bash");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// The outputs of the examples on the page, in order.
fn promised(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once("```text\n") {
        let (block, after) = after.split_once("```").expect("a block that ends");
        found.extend(block.lines().map(str::to_owned));
        rest = after;
    }
    found
}

async fn keeps_its_promises(page: &str) {
    let said = run(page).await;
    let mut rest = said.as_str();
    for line in promised(page) {
        let (_, after) = rest
            .split_once(&line)
            .unwrap_or_else(|| panic!("no {line:?} in\n{rest}"));
        rest = after;
    }
}

#[tokio::test]
#[ignore = "needs servers"]
async fn examples_of_the_api_guide_work() {
    keeps_its_promises(include_str!("../../../../docs/api.md")).await;
}

#[tokio::test]
#[ignore = "needs servers"]
async fn examples_of_the_admin_guide_work() {
    keeps_its_promises(include_str!("../../../../docs/admin.md")).await;
}

/// The error codes are the same for all interfaces. The guides list those that these APIs use.
#[test]
fn openapi_document_matches_the_routes() {
    let made = semel_server::openapi().unwrap();
    let kept = include_str!("../../../../spec/openapi.json");
    assert_eq!(made, kept, "run `cargo xtask generate`");
}
