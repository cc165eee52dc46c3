//! A fleet moves from Redis to PostgreSQL while requests go on: no effect happens twice, no answer
//! is lost.
//!
//! 4,000 records here; `SEMEL_RECORDS=1000000` for as many as you like.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use semel::Semel;
use semel_testkit::private::{PostgresServer, RedisServer, new_folder};
use tokio::task::JoinSet;

/// Two nodes, each with the stores that its rollout says.
type Nodes = Arc<[RwLock<Semel>; 2]>;

fn records() -> u64 {
    std::env::var("SEMEL_RECORDS").map_or(4_000, |text| text.parse().expect("a number"))
}

/// How often each key's effect happened.
type Effects = Arc<Mutex<HashMap<String, u32>>>;

async fn ask(semel: &Semel, key: String, effects: &Effects) -> Result<(String, bool), String> {
    let (effects, of) = (Arc::clone(effects), key.clone());
    let effect = move |_| async move {
        *effects.lock().entry(of.clone()).or_default() += 1;
        Ok::<_, std::io::Error>(format!("answer to {of}"))
    };
    let call = semel.operation("charge").key(&key).payload(&key);
    match call.run(effect).await {
        Ok(answer) => Ok((answer.value, answer.replayed)),
        Err(error) => Err(error.to_string()),
    }
}

/// Asks for all of them, many at once, and gives how many were replayed.
async fn ask_all(url: &str, keys: Vec<String>, effects: &Effects) -> usize {
    let semel = Semel::open(url).await.expect("a store");
    let keys = Arc::new(Mutex::new(keys));
    let mut askers = JoinSet::new();
    for _ in 0..64 {
        let (semel, keys, effects) = (semel.clone(), Arc::clone(&keys), Arc::clone(effects));
        askers.spawn(async move {
            let mut replays = 0;
            loop {
                let Some(key) = keys.lock().pop() else {
                    return replays;
                };
                let asked = ask(&semel, key.clone(), &effects).await;
                let (value, replayed) = asked.expect("an answer");
                assert_eq!(value, format!("answer to {key}"));
                replays += usize::from(replayed);
            }
        });
    }
    askers.join_all().await.into_iter().sum()
}

/// Callers that retry: each key is asked for several times, of whichever node, all through the
/// move.
fn traffic(nodes: &Nodes, effects: &Effects, ends: &Arc<AtomicBool>) -> JoinSet<(u64, u64)> {
    let mut callers = JoinSet::new();
    for caller in 0..8_u64 {
        let (nodes, effects, ends) = (Arc::clone(nodes), Arc::clone(effects), Arc::clone(ends));
        callers.spawn(async move {
            let (mut answered, mut refused) = (0, 0);
            for round in 0_u64.. {
                if ends.load(Ordering::SeqCst) {
                    break;
                }
                let mut keys = vec![format!("during-{caller}-{}", round / 3)];
                // What was done long ago is asked for too, and what another caller does now.
                keys.push(format!("before-{}", round * 31 % records()));
                keys.push(format!("during-{}-{}", (caller + 1) % 8, round / 3));
                for (index, key) in keys.into_iter().enumerate() {
                    let node = (usize::try_from(round).unwrap_or(0) + index) % 2;
                    let semel = nodes[node].read().clone();
                    match ask(&semel, key.clone(), &effects).await {
                        Ok((value, _)) => {
                            assert_eq!(value, format!("answer to {key}"));
                            answered += 1;
                        }
                        Err(_) => refused += 1,
                    }
                }
                semel::tokio_env()
                    .clock
                    .sleep(Duration::from_millis(2))
                    .await;
            }
            (answered, refused)
        });
    }
    callers
}

/// One node after the other gets the new setting; the other still has the old one.
async fn roll_out(nodes: &Nodes, urls: &str) {
    for node in nodes.iter() {
        let semel = Semel::open(urls).await.expect("both stores");
        let old = std::mem::replace(&mut *node.write(), semel);
        old.idle().await;
        semel::tokio_env()
            .clock
            .sleep(Duration::from_millis(300))
            .await;
    }
}

fn copier(program: &PathBuf, from: &str, to: &str, progress: &Path) -> Command {
    let mut command = semel_tests::semel_command(program);
    command.args([
        "migrate-store",
        "--json",
        "--from",
        from,
        "--to",
        to,
        "--resume",
    ]);
    command.arg(progress).stdout(Stdio::piped());
    command
}

/// Runs the copy to its end; gives what it says.
async fn copy(program: &PathBuf, from: &str, to: &str, progress: &Path) -> serde_json::Value {
    let mut command = copier(program, from, to, progress);
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let output = output.expect("a thread").expect("the program runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{errors}");
    serde_json::from_str(&said).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_redis_to_postgresql_without_a_pause_nothing_is_done_twice_or_forgotten() {
    let program = semel_tests::semel();
    let (redis, postgres) = (
        RedisServer::start(&[]).await,
        PostgresServer::start(&[]).await,
    );
    let (old, new) = (redis.url(), postgres.url());
    let progress = new_folder("moving").join("progress.json");
    let effects = Effects::default();
    // What was done before.
    let before = (0..records()).map(|index| format!("before-{index}"));
    assert_eq!(ask_all(&old, before.collect(), &effects).await, 0);

    let node = || async { RwLock::new(Semel::open(&old).await.expect("the old store")) };
    let nodes: Nodes = Arc::new([node().await, node().await]);
    let ends = Arc::new(AtomicBool::new(false));
    let callers = traffic(&nodes, &effects, &ends);

    roll_out(&nodes, &format!("{old} {new}")).await;
    // Killed as soon as it has noted some progress, and run again.
    let mut command = copier(&program, &old, &new, &progress);
    let mut first = command.spawn().expect("the program runs");
    while !progress.exists() && matches!(first.try_wait(), Ok(None)) {
        semel::tokio_env()
            .clock
            .sleep(Duration::from_millis(1))
            .await;
    }
    first.kill().expect("it ran");
    first.wait().expect("it ended");
    let copied = copy(&program, &old, &new, &progress).await;
    println!("copied: {copied}");
    assert_eq!(copied["compared"]["conflicts"], 0);
    assert_eq!(
        copied["compared"]["copied"], 0,
        "a node wrote to the old store alone"
    );

    roll_out(&nodes, &format!("{new} {old}")).await;
    let copied = copy(&program, &old, &new, &progress).await;
    println!("copied again: {copied}");
    assert_eq!(copied["compared"]["conflicts"], 0);
    roll_out(&nodes, &new).await;
    drop(redis);
    semel::tokio_env()
        .clock
        .sleep(Duration::from_millis(500))
        .await;
    ends.store(true, Ordering::SeqCst);
    let (mut answered, mut refused) = (0, 0);
    for (good, bad) in callers.join_all().await {
        answered += good;
        refused += bad;
    }
    println!("{answered} requests answered, {refused} refused");
    assert!(
        answered > 1_000 && refused * 100 < answered,
        "{answered} answered, {refused} refused"
    );

    let done = effects.lock().clone();
    let twice: Vec<_> = done.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "done more than once: {twice:?}");
    // All that was ever done is known to the new store alone.
    let replays = ask_all(&new, done.keys().cloned().collect(), &effects).await;
    assert_eq!(replays, done.len());
    assert_eq!(effects.lock().len(), done.len());
}
