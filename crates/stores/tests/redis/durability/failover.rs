//! A replica takes the place of its master: with a level of durability, and without.

use std::path::Path;
use std::time::Duration;

use semel_conformance::Scene;
use semel_core::Claimed;
use semel_core::store::Store as _;
use semel_testkit::proxy::Way;

use super::{Pair, Told, lost, redis_and_valkey, work};
use crate::support::{again, clock, open, scene};

/// The default: an acknowledgement is the master's. A replica that was cut off takes over without
/// it, and the key is free to run again. Not a wish, but what happens: whoever can't have that
/// needs a level.
#[tokio::test]
async fn without_a_level_a_failover_loses_what_was_acknowledged() {
    let mut pair = Pair::start(Path::new("redis-server")).await;
    let scene = scene(pair.master.url()).await;
    pair.cut_off(true);
    let told = work(&scene, 5).await;
    assert_eq!(
        (told.settled.len(), told.won.len()),
        (5, 5),
        "acknowledged by the master alone"
    );
    pair.fail_over();
    assert_eq!(lost(&told, &pair.replica.url()).await, 10);
    // The lost key runs again, under a larger fence (P22): whoever checks fences is safe even so.
    let store = open(&pair.replica.url()).await;
    for (claim, lease) in &told.won {
        let Claimed::Won(next) = store.claim(&again(claim)).await.unwrap() else {
            panic!("a lost key is free");
        };
        assert!(next.fence > lease.fence);
    }
}

/// The same with `durability=wait:1`: nothing is acknowledged that the replica doesn't have.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_level_a_failover_loses_nothing_acknowledged() {
    for program in redis_and_valkey().await {
        let mut pair = Pair::start(&program).await;
        let scene = scene(format!("{}?durability=wait:1", pair.master.url())).await;
        let told = work_until(&scene, 20).await;
        pair.cut_off(true);
        let cut_off = work(&scene, 1).await;
        assert_eq!(
            (cut_off.settled.len(), cut_off.won.len()),
            (0, 0),
            "nobody confirmed it"
        );
        pair.fail_over();
        assert_eq!(lost(&told, &pair.replica.url()).await, 0);
    }
}

/// Like [`work`], until so many are acknowledged: a replica on a busy machine may confirm too late,
/// which is told.
async fn work_until(scene: &Scene, count: usize) -> Told {
    let mut all = Told::default();
    for _ in 0..count * 5 {
        all.add(work(scene, 1).await);
        if all.settled.len() >= count && all.won.len() >= count {
            return all;
        }
    }
    panic!("hardly anything is ever confirmed");
}

/// Under load, at any moment: what was acknowledged before the master died is there afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_a_level_a_failover_under_load_loses_nothing_acknowledged() {
    let mut pair = Pair::start(Path::new("redis-server")).await;
    let scene = scene(format!("{}?durability=wait:1", pair.master.url())).await;
    // The replica is always a little behind: without waiting, something acknowledged would be lost.
    pair.way.delay(Way::Reply, Duration::from_millis(20));
    let workers: Vec<_> = (0..16)
        .map(|_| {
            let scene = scene.clone();
            tokio::spawn(async move { work(&scene, 200).await })
        })
        .collect();
    clock().sleep(Duration::from_secs(2)).await;
    pair.fail_over();
    let (mut acknowledged, mut gone) = (0, 0);
    for worker in workers {
        let told = worker.await.unwrap();
        acknowledged += told.settled.len() + told.won.len();
        gone += lost(&told, &pair.replica.url()).await;
    }
    assert!(
        acknowledged > 50,
        "{acknowledged} acknowledged before the master died"
    );
    assert!(
        acknowledged < 16 * 400,
        "the master died too late to show anything"
    );
    assert_eq!(gone, 0, "of {acknowledged} acknowledged");
}
