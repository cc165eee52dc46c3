//! `semel dev`, as a visitor uses it: a real browser presses every button.

use std::process::Stdio;

use semel_tests::{semel, semel_command};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::rig::browse;

#[tokio::test]
async fn a_visitor_plays_every_scenario_in_light_and_in_dark() {
    let mut command = semel_command(&semel());
    command.args(["dev", "--no-open"]).stdout(Stdio::piped());
    let mut command = Command::from(command);
    let mut dev = command.kill_on_drop(true).spawn().expect("semel dev");
    let mut lines = BufReader::new(dev.stdout.take().expect("a pipe")).lines();
    let page = loop {
        let line = lines.next_line().await.expect("text").expect("an address");
        if let Some(page) = line.trim().strip_prefix("The page") {
            break page.trim().trim_end_matches('/').to_owned();
        }
    };
    browse(&page, "dev", &json!({})).says("done").await;
    end(&mut dev).await;
}

/// Ends it as an operator does, so that it ends its sidecars.
async fn end(dev: &mut tokio::process::Child) {
    let id = dev.id().and_then(|id| i32::try_from(id).ok());
    let id = id.and_then(rustix::process::Pid::from_raw).expect("an id");
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("a process");
    assert!(dev.wait().await.expect("an end").success());
}
