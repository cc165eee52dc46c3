//! Several processes on one SQLite file, and processes that are killed in the middle of a write: the next one goes on,
//! and finds whole what was acknowledged.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use semel::{Failure, Semel, tokio_env};
use semel_testkit::private::new_folder;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        Self(new_folder("sqlite"))
    }

    fn file(&self) -> String {
        self.0.join("keys.db").display().to_string()
    }

    fn url(&self) -> String {
        format!("sqlite://{}", self.file())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Left-over files are no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn child(arguments: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel-child"));
    command.args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().expect("the child starts");
    let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    (process, lines)
}

async fn sleep(millis: u64) {
    tokio_env().clock.sleep(Duration::from_millis(millis)).await;
}

/// Runs the operation that a child says it has run; → what it answers, and whether that is a replay.
async fn ask(semel: &Semel, line: &str) -> (String, bool) {
    let (key, payload) = line.split_once(' ').expect("a key and a payload");
    let payload: u64 = payload.parse().expect("a number");
    let call = semel.operation("load").key(key).payload(&payload);
    let again = call.run(|_| async { Ok::<_, Failure>("run again".to_owned()) });
    let answer = again.await.expect("an answer");
    (answer.value, answer.replayed)
}

#[tokio::test]
async fn a_writer_killed_in_the_middle_of_a_transaction_leaves_nothing_behind() {
    let place = Place::new();
    let semel = Semel::open(&place.url()).await.unwrap();
    let call = semel.operation("load").key("before").payload(&1_u64);
    let first = call.run(|_| async { Ok::<_, Failure>("kept".to_owned()) });
    assert_eq!(first.await.unwrap().value, "kept");

    let (mut holder, mut lines) = child(&["hold", &place.file()]);
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "held");
    // It has the lock: others wait, and whoever only reads does not.
    let waiting = {
        let semel = Semel::open(&place.url()).await.unwrap();
        tokio::spawn(async move {
            let call = semel.operation("load").key("after").payload(&1_u64);
            call.run(|_| async { Ok::<_, Failure>("done".to_owned()) })
                .await
        })
    };
    sleep(200).await;
    assert!(!waiting.is_finished(), "the lock is held");
    assert_eq!(ask(&semel, "before 1").await, ("kept".to_owned(), true));

    holder.kill().await.expect("it is ours to kill"); // SIGKILL
    assert_eq!(waiting.await.unwrap().unwrap().value, "done");
    // What the killed one wrote over every record is nowhere.
    let another = Semel::open(&place.url()).await.unwrap();
    assert_eq!(ask(&another, "before 1").await, ("kept".to_owned(), true));
    let findings = another.store().diagnose().await.unwrap();
    let integrity = findings.iter().find(|finding| finding.check == "integrity");
    assert_eq!(integrity.unwrap().found, "no damage found");
}

#[tokio::test]
async fn processes_killed_under_load_lose_nothing_that_was_acknowledged() {
    let place = Place::new();
    let mut acknowledged = Vec::new();
    for round in 0..6 {
        // Two at once: one is killed while the other goes on.
        let url = place.url();
        let (mut killed, mut lines) = child(&["load", &url]);
        let (mut other, mut others) = child(&["load", &url]);
        acknowledged.push(others.next_line().await.unwrap().expect("the other works"));
        for _ in 0..20 + round * 7 {
            acknowledged.push(lines.next_line().await.unwrap().expect("it works"));
        }
        killed.kill().await.expect("it is ours to kill");
        // What it said before it died counts as well.
        while let Ok(Some(line)) = lines.next_line().await {
            acknowledged.push(line);
        }
        for _ in 0..5 {
            acknowledged.push(
                others
                    .next_line()
                    .await
                    .unwrap()
                    .expect("the other goes on"),
            );
        }
        other.kill().await.expect("it is ours to kill");
    }
    let semel = Semel::open(&place.url()).await.unwrap();
    assert!(
        acknowledged.len() > 100,
        "{} acknowledged",
        acknowledged.len()
    );
    for line in &acknowledged {
        let key = line.split(' ').next().unwrap().to_owned();
        assert_eq!(ask(&semel, line).await, (key, true), "{line}");
    }
    println!("{} acknowledged, all there", acknowledged.len());
}
