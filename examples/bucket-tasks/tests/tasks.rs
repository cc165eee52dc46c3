//! The program as a user runs it, on a real bucket.

use std::process::{Command, Output};

/// A folder of the shared bucket that nobody else uses.
fn own_url() -> String {
    let url = std::env::var("SEMEL_TEST_S3_URL")
        .expect("SEMEL_TEST_S3_URL is not set: start a server with `cargo xtask services up s3`");
    let chance = semel::tokio_env().entropy.next_u128();
    url.replace('?', &format!("/example-{chance:032x}?"))
}

fn run(url: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bucket-tasks"));
    command.args(arguments).env("STORE_URL", url);
    command.output().expect("it runs")
}

/// What it says, where it ends well.
fn said(url: &str, arguments: &[&str]) -> String {
    let output = run(url, arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

#[test]
fn o_a_submission_that_is_retried_is_one_task() {
    let url = own_url();
    let first = said(&url, &["submit", "charge-ORD-123", "4200"]);
    let (id, status) = first.trim().split_once(' ').expect("an id and a status");
    assert_eq!(status, "accepted");
    assert_eq!(
        said(&url, &["submit", "charge-ORD-123", "4200"]).trim(),
        format!("{id} in_progress")
    );
    assert_eq!(said(&url, &["work"]).trim(), format!("{id} done"));
    assert_eq!(
        said(&url, &["submit", "charge-ORD-123", "4200"]).trim(),
        format!("{id} completed")
    );
    let list = said(&url, &["list"]);
    assert_eq!(list.lines().count(), 1, "{list}");
    assert!(list.contains("Done, started 1 times"), "{list}");
}

#[test]
fn o_the_same_key_with_another_input_is_a_conflict() {
    let url = own_url();
    said(&url, &["submit", "charge-ORD-123", "4200"]);
    let refused = run(&url, &["submit", "charge-ORD-123", "1"]);
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && why.contains("other parameters"),
        "{why}"
    );
    assert_eq!(said(&url, &["list"]).lines().count(), 1);
}

#[test]
fn o_each_order_is_one_task_while_everybody_is_killed() {
    let said = said(&own_url(), &["play", "5"]);
    assert!(said.contains("50 tasks, 50 done"), "{said}");
}
