//! Several processes on one SQLite file, and processes that are killed in the middle of a write:
//! the next one goes on, and finds whole what was acknowledged.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use semel::{Failure, Semel, tokio_env};
use semel_testkit::private::new_folder;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;

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

/// A process under load. What it says is read at once: one that can't get rid of it stops, with the
/// lock maybe.
struct Loaded {
    process: Child,
    said: mpsc::UnboundedReceiver<String>,
}

impl Loaded {
    fn start(url: &str) -> Self {
        let (process, mut lines) = child(&["load", url]);
        let (say, said) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = say.send(line); // Whoever listened may have heard enough.
            }
        });
        Self { process, said }
    }

    /// The next operations that it acknowledged.
    async fn next(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(self.said.recv().await.expect("it works"));
        }
        lines
    }

    /// Kills it. → what it said before it died, which counts as well.
    async fn kill(mut self) -> Vec<String> {
        self.process.kill().await.expect("it is ours to kill");
        let mut lines = Vec::new();
        while let Some(line) = self.said.recv().await {
            lines.push(line);
        }
        lines
    }
}

async fn sleep(millis: u64) {
    tokio_env().clock.sleep(Duration::from_millis(millis)).await;
}

/// Runs the operation that a child says it has run; → what it answers, and whether that is a
/// replay.
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
        let (mut killed, mut other) = (Loaded::start(&place.url()), Loaded::start(&place.url()));
        acknowledged.extend(other.next(1).await);
        acknowledged.extend(killed.next(20 + round * 7).await);
        acknowledged.extend(killed.kill().await);
        acknowledged.extend(other.next(5).await);
        acknowledged.extend(other.kill().await);
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

/// The most operations in a row that one process had acknowledged while the other, which wanted to
/// write as well, had none.
async fn longest_streak(one: &mut Loaded, other: &mut Loaded, count: usize) -> usize {
    let (mut longest, mut streak, mut last) = (0, 0, None);
    for _ in 0..count {
        let who = tokio::select! {
            line = one.said.recv() => line.map(|_| "one"),
            line = other.said.recv() => line.map(|_| "other"),
        };
        let who = who.expect("both work");
        streak = if last == Some(who) { streak + 1 } else { 1 };
        longest = longest.max(streak);
        last = Some(who);
    }
    longest
}

#[tokio::test]
async fn processes_that_write_all_the_time_take_turns() {
    let place = Place::new();
    let (mut one, mut other) = (Loaded::start(&place.url()), Loaded::start(&place.url()));
    one.next(1).await;
    other.next(1).await;
    let longest = longest_streak(&mut one, &mut other, 4_000).await;
    println!("{longest} in a row, at most");
    assert!(longest < 500, "{longest} in a row");
}
