//! Faults besides the network: nodes die and pause, the store restarts, clocks jump, operators act.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt as _;
use semel_core::{Fence, Identity, Secret, Store as _, StoreAdmin as _};

use super::callers::resolution;
use super::op::Op;
use super::sched::Place;
use super::wire::{Carrier, slowly};
use super::world::{Doom, World};

/// Something that happens at a step of a node.
type Strike = fn(&Arc<World>, usize);

/// Lets one of the things happen that this world's plan has, at a step of `node`.
pub(super) fn strike(world: &Arc<World>, node: usize) {
    let rates = &world.plan.faults;
    let table: [(u32, Strike); 7] = [
        (rates.crash, crash),
        (rates.pause, pause),
        (rates.partition, cut_off),
        (rates.store_restart, restart_store),
        (rates.jump_forward, set_forward),
        (rates.jump_back, set_back),
        (rates.operator, operate),
    ];
    let all: u32 = table.iter().map(|(parts, _)| parts).sum();
    let mut left = world.dice.below(u64::from(all));
    for (parts, happens) in table {
        if left < u64::from(parts) {
            return happens(world, node);
        }
        left -= u64::from(parts);
    }
}

fn count(world: &World, kind: &'static str) {
    let mut ledger = world.ledger.lock();
    ledger.tally.fault(kind);
    ledger.trace(40, [world.sched.now(), kind.len() as u64, 0]);
}

fn crash(world: &Arc<World>, node: usize) {
    count(world, "node crashed");
    let back_after = world.dice.span(2 * world.plan.lease);
    world.doomed.lock().push(Doom { node, back_after });
}

fn pause(world: &Arc<World>, node: usize) {
    count(world, "node paused");
    let span = world.dice.span(3 * world.plan.lease);
    let until = world.sched.now() + span;
    let mut nodes = world.nodes.lock();
    nodes[node].paused_until = until;
    nodes[node].paused += span;
    drop(nodes);
    // Time has to come by there.
    let timer = world.sched.until(until);
    world.sched.spawn(Place::World, Box::pin(timer));
}

fn cut_off(world: &Arc<World>, node: usize) {
    count(world, "node cut off");
    let span = world
        .dice
        .span(2 * world.plan.lease + world.plan.call_limit);
    world.nodes.lock()[node].cut_off_until = world.sched.now() + span;
}

fn restart_store(world: &Arc<World>, _: usize) {
    count(world, "store restarted");
    let span = match world.dice.one_in(8) {
        true => world.dice.span(100_000_000),
        false => world.dice.span(2_000_000),
    };
    world
        .down_until
        .store(world.sched.now() + span, Ordering::Relaxed);
}

/// Leases and records end earlier than their owners think: nobody is promised anything about these.
fn set_forward(world: &Arc<World>, _: usize) {
    count(world, "store's clock set forward");
    let most = match world.dice.one_in(4) {
        true => 2 * world.plan.retention,
        false => 2 * world.plan.lease,
    };
    world.store_clock.forward(world.dice.span(most));
    let now = world.sched.now();
    for book in &mut world.ledger.lock().books {
        book.disturbed = Some(now);
    }
}

fn set_back(world: &Arc<World>, _: usize) {
    count(world, "store's clock set back");
    let by = world.dice.span(world.plan.lease);
    world.store_clock.back(by);
    world.set_back.fetch_add(by, Ordering::Relaxed);
    for book in &mut world.ledger.lock().books {
        book.set_back += by;
    }
}

/// Operators come rarely, and then they have several things to do.
fn operate(world: &Arc<World>, _: usize) {
    count(world, "operator acted");
    for _ in 0..4 {
        act(world);
    }
}

/// An operator sweeps, looks, deletes, or ends a doubt: the one that is there, or another.
pub(super) fn act(world: &Arc<World>) {
    let key = looked_at(world);
    let (namespace, name, _) = &world.keys[key];
    let identity = Identity::new(&Secret::none(), namespace, name);
    let op = match world.dice.below(12) {
        0..3 => return sweep(world),
        3 => Op::Delete(identity),
        4 | 5 => Op::Read(identity),
        6 if world.plan.spoils && key == 1 => return spoil(world, key, &identity),
        _ => match resolve(world, key, identity) {
            Some(op) => op,
            None => return,
        },
    };
    let carrier = Carrier {
        world: Arc::clone(world),
        node: usize::MAX,
        store: world.store.clone(),
    };
    let twice = world.dice.one_in(3);
    let act = async move {
        for _ in 0..1 + u32::from(twice) {
            let _ = carrier.deliver(&op, None).await;
        }
    };
    world.sched.spawn(Place::World, Box::pin(act));
}

/// A key that is in doubt, rather than any.
fn looked_at(world: &World) -> usize {
    let (now, ledger) = (world.store_clock.micros(), world.ledger.lock());
    let any = world.dice.index(world.plan.keys);
    let doubts = ledger.books.iter().cycle().skip(any).take(world.plan.keys);
    let offset = doubts.into_iter().position(|book| book.is_in_doubt(now));
    match offset {
        Some(offset) if world.dice.one_in(2) => (any + offset) % world.plan.keys,
        _ => any,
    }
}

fn sweep(world: &Arc<World>) {
    let (store, of) = (world.store.clone(), Arc::clone(world));
    let sweep = async move {
        let begun = of.sched.now();
        let swept = slowly(&of, None, store.sweep(1000)).await;
        // What expires while a sweep goes on may be left for the next.
        let at_once = of.sched.now() == begun;
        let left = store.expired(1).now_or_never();
        if let (true, Some(Ok(_)), Some(Ok(1..))) = (at_once, swept, left) {
            let wrong = ("P21", "a sweep left what had expired".to_owned());
            of.ledger.lock().breach(0, wrong);
        }
    };
    world.sched.spawn(Place::World, Box::pin(sweep));
}

/// A record is damaged: from now on it can't be read, and must not be taken for absent (P25).
fn spoil(world: &World, key: usize, identity: &Identity) {
    if !world.store.spoil(identity) {
        return;
    }
    let mut ledger = world.ledger.lock();
    ledger.tally.fault("record damaged");
    ledger.books[key].spoiled = true;
    ledger.books[key].disturbed = Some(world.sched.now());
}

fn resolve(world: &World, key: usize, identity: Identity) -> Option<Op> {
    let record = world.store.read(&identity).now_or_never()?.ok()??;
    let fence = match world.dice.one_in(3) {
        true => Fence(record.fence.0.saturating_sub(world.dice.below(3))),
        false => record.fence,
    };
    // The operator looked at the payload that the record was made for.
    let payload = record.fingerprint.as_bytes()[1].saturating_sub(1);
    Some(Op::Resolve(
        identity,
        fence,
        resolution(world, key, payload)?,
    ))
}
