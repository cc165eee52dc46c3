//! Directs a world from the first caller to the final checks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_channel::oneshot;

use super::callers::{ask, job, live};
use super::sched::Place;
use super::strikes::act;
use super::world::{Doom, World};

/// Callers live their lives; then all faults end, and every key is asked for.
pub(super) async fn direct(world: Arc<World>) {
    let mut lives = Vec::new();
    for _ in 0..world.plan.clients {
        let (done, is_done) = oneshot::channel();
        world
            .sched
            .spawn(Place::World, Box::pin(live(Arc::clone(&world), done)));
        lives.push(is_done);
    }
    for life in lives {
        let _ = life.await;
    }
    // What is under way arrives; some runs begin; then every owner dies at once.
    world.heal();
    let late = world.plan.faults.slow > 0;
    let drained = match late {
        true => 3 * world.plan.lease + world.plan.call_limit,
        false => 2_000,
    };
    world.sched.sleep(drained).await;
    let sched = world.sched.clone();
    for key in 0..world.plan.keys {
        let node = world.dice.index(world.plan.nodes);
        let (job, world) = (job(&world, key, 0, node, 0), Arc::clone(&world));
        let asked = async move {
            let _ = ask(&world, job, Some(5_000)).await;
        };
        sched.spawn(Place::World, Box::pin(asked));
    }
    world.sched.sleep(6_000).await;
    for node in 0..world.plan.nodes {
        world.doomed.lock().push(Doom {
            node,
            back_after: 0,
        });
    }
    world.sched.sleep(1_000).await;
    // A lease and a margin after that, every key can be had (I10); or an operator comes first.
    let lease = world.plan.lease;
    let wait = lease + lease / 10 + 20_000 + world.set_back.load(Ordering::Relaxed);
    if world.dice.one_in(2) {
        world.sched.sleep(wait).await;
        for _ in 0..4 {
            act(&world);
        }
        world.sched.sleep(1_000).await;
    }
    for round in 0..2 {
        for key in 0..world.plan.keys {
            let node = (key + round) % world.plan.nodes;
            let job = job(&world, key, 0, node, wait).last();
            let _ = ask(&world, job, None).await;
        }
    }
    world.over.store(true, Ordering::Relaxed);
}
