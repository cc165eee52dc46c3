//! 512 claims of one new key at once, from four processes: one wins, every time.
//!
//! 20 rounds here, 5 on object storage; `SEMEL_ROUNDS=1000` for as many as you like.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const PROCESSES: usize = 4;
const CLAIMS: usize = 128;

struct Racer {
    _process: Child,
    keys: ChildStdin,
    counts: Lines<BufReader<ChildStdout>>,
}

impl Racer {
    async fn start(url: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_semel-child"));
        command.args(["race", url, &CLAIMS.to_string()]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn().expect("the child starts");
        let keys = process.stdin.take().expect("piped");
        let counts = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut racer = Self {
            _process: process,
            keys,
            counts,
        };
        assert_eq!(racer.line().await, "ready");
        racer
    }

    async fn line(&mut self) -> String {
        let line = self.counts.next_line().await.expect("the child's output");
        line.expect("the child lives")
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: start the servers with `cargo xtask services up`")
    })
}

async fn one_wins(url: &str) {
    one_wins_in(url, 20).await;
}

async fn one_wins_in(url: &str, few: u32) {
    let rounds = std::env::var("SEMEL_ROUNDS").map_or(few, |text| text.parse().expect("a number"));
    let mut racers = Vec::new();
    for _ in 0..PROCESSES {
        racers.push(Racer::start(url).await);
    }
    let run = semel::tokio_env().entropy.next_u128();
    for round in 0..rounds {
        let key = format!("race-{run:032x}-{round}\n");
        for racer in &mut racers {
            racer
                .keys
                .write_all(key.as_bytes())
                .await
                .expect("the child lives");
        }
        let mut won = 0_u32;
        for racer in &mut racers {
            won += racer.line().await.parse::<u32>().expect("a count");
        }
        assert_eq!(won, 1, "round {round}: {won} of {} won", PROCESSES * CLAIMS);
    }
    println!(
        "{rounds} rounds of {} claims, one winner each",
        PROCESSES * CLAIMS
    );
}

#[tokio::test]
async fn redis_has_one_winner() {
    one_wins(&variable("SEMEL_TEST_REDIS_URL")).await;
}

#[tokio::test]
async fn redis_cluster_has_one_winner() {
    let nodes = variable("SEMEL_TEST_REDIS_CLUSTER_URLS").replace("redis://", "");
    one_wins(&format!("redis+cluster://{nodes}")).await;
}

#[tokio::test]
async fn postgres_has_one_winner() {
    let url = variable("SEMEL_TEST_POSTGRES_URL");
    one_wins(&format!("{url}?max_connections=20")).await;
}

/// Fewer rounds: a race of so many for one object takes a while, since every loser reads it.
#[tokio::test]
async fn an_object_store_has_one_winner() {
    one_wins_in(&variable("SEMEL_TEST_S3_URL"), 5).await;
}

#[tokio::test]
async fn mariadb_has_one_winner() {
    let url = variable("SEMEL_TEST_MARIADB_URL");
    one_wins(&format!("{url}?max_connections=20")).await;
}

#[tokio::test]
async fn sqlite_has_one_winner() {
    let folder = semel_testkit::private::new_folder("race");
    one_wins(&format!("sqlite://{}/race.db", folder.display())).await;
    std::fs::remove_dir_all(folder).expect("a folder of our own");
}
