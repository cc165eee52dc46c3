//! Records on disk.

use std::sync::Arc;
use std::time::Duration;

use semel_conformance::Scene;
use semel_testkit::history::{check_with_slack, clients};
use semel_testkit::private::RedisServer;

use super::{Told, lost, work};
use crate::support::{Server, chance, clock, refused, suite_at_a_level, valkey_program};

/// Valkey and newer Redis can wait for the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suite_passes_on_disk() {
    let program = valkey_program().await;
    let server = RedisServer::start_as(&program, "", &["--appendonly", "yes"]).await;
    let url = format!("{}?durability=waitaof:1:0", server.url());
    // Each answer waits for the disk, which is written to once a second.
    suite_at_a_level(&url, |name| {
        name.starts_with("p12_") || name.starts_with("p18_")
    })
    .await;
}

/// Asking for a disk that isn't written to is said at start, not at the first claim.
#[tokio::test]
async fn a_level_that_the_server_does_not_have_is_refused_at_start() {
    let old = RedisServer::start(&[]).await;
    let said = refused(&format!("{}?durability=waitaof:1:0", old.url())).await;
    assert!(
        said.contains("durability"),
        "Redis 7.0 has no WAITAOF: {said}"
    );
    let valkey = RedisServer::start_as(&valkey_program().await, "", &[]).await;
    let said = refused(&format!("{}?durability=waitaof:1:0", valkey.url())).await;
    assert!(said.contains("durability"), "it writes no file: {said}");
}

/// `appendfsync always`: killed twice under load and started again, the server has all that it
/// acknowledged; and the history of all calls is one that a store which keeps the protocol can
/// have.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_with_an_append_only_file_loses_nothing_when_it_is_killed() {
    let settings = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = RedisServer::start(&settings).await;
    let subject = Arc::new(Server::at(server.url()).await);
    let scene = Scene::new(Arc::<Server>::clone(&subject));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let scene = scene.clone();
            tokio::spawn(async move { work_on(&scene, 150).await })
        })
        .collect();
    let plan = clients::Plan {
        steps: 60,
        ..clients::Plan::short(u64::try_from(chance() >> 64).expect("64 bits"))
    };
    let history = tokio::spawn(clients::run(subject, clock(), plan));
    for _ in 0..2 {
        clock().sleep(Duration::from_millis(250)).await;
        server.kill();
        server.restart().await;
    }
    let (mut acknowledged, mut gone) = (0, 0);
    for worker in workers {
        let told = worker.await.unwrap();
        acknowledged += told.settled.len() + told.won.len();
        gone += lost(&told, &server.url()).await;
    }
    assert_eq!(gone, 0, "of {acknowledged} acknowledged");
    let history = history.await.unwrap();
    let violations = check_with_slack(&history, Duration::from_millis(50));
    assert!(violations.is_empty(), "{plan:?}: {}", violations[0]);
}

/// Like [`work`], if the server comes back: until so many are acknowledged, with a pause after what
/// failed.
async fn work_on(scene: &Scene, count: usize) -> Told {
    let mut all = Told::default();
    while all.won.len() < count {
        let told = work(scene, 1).await;
        if told.won.is_empty() {
            clock().sleep(Duration::from_millis(20)).await;
        }
        all.add(told);
    }
    all
}
