//! The whole play, on a real server.

use std::process::Command;

#[test]
fn each_order_is_one_job_while_everybody_is_killed() {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("SEMEL_TEST_POSTGRES_URL is not set: start a server with `cargo xtask services up postgres`");
    let mut play = Command::new(env!("CARGO_BIN_EXE_mesh"));
    let played = play
        .args(["play", "6"])
        .env("DATABASE_URL", url)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&played.stdout);
    assert!(
        played.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&played.stderr)
    );
    assert!(said.contains("600 orders, 600 jobs, 600 done"), "{said}");
}
