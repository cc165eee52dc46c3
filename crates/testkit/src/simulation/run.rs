//! Runs a world from its seed to its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use semel_core::BoxFuture;

use super::director::direct;
use super::sched::{Place, TaskId, TaskWaker};
use super::strikes::strike;
use super::tally::{Breach, RunTally};
use super::world::{Doom, NodeFlaw, World, WorldKind};
use crate::broken::Bug;

/// What became of one world.
#[derive(Clone, Debug)]
pub struct SimulationOutcome {
    /// What happened.
    pub tally: RunTally,
    /// What must not have happened. Empty where all is well.
    pub breaches: Vec<Breach>,
    /// A number for the whole course of events: the same for the same seed, on every machine.
    pub digest: u64,
}

/// Runs the world of `seed`, whose store has this bug, or none.
#[must_use]
pub fn run(seed: u64, bug: Option<Bug>) -> SimulationOutcome {
    run_world(World::new(seed, bug, None, WorldKind::Plain))
}

/// The same with encrypted records, while a new key is rolled out: some nodes lack it.
#[must_use]
pub fn run_encrypted(seed: u64, bug: Option<Bug>) -> SimulationOutcome {
    run_world(World::new(seed, bug, None, WorldKind::Encrypted))
}

/// Runs the world of `seed`, whose nodes have this flaw.
#[must_use]
pub fn run_flawed(seed: u64, flaw: NodeFlaw) -> SimulationOutcome {
    run_world(World::new(seed, None, Some(flaw), WorldKind::Plain))
}

/// Runs the world of `seed` with answers that live shorter than their records, and whose nodes have
/// this flaw, or none.
#[must_use]
pub fn run_apart(seed: u64, flaw: Option<NodeFlaw>) -> SimulationOutcome {
    run_world(World::new(seed, None, flaw, WorldKind::AnswersApart))
}

fn run_world(world: Arc<World>) -> SimulationOutcome {
    world
        .sched
        .spawn(Place::World, Box::pin(direct(Arc::clone(&world))));
    let mut runner = Runner::new(Arc::clone(&world));
    if let Err((rule, sentence)) = runner.run() {
        world.ledger.lock().breach(0, (rule, sentence.to_owned()));
    }
    runner.end();
    let slack = Duration::from_micros(world.set_back.load(Ordering::Relaxed));
    let micros = u128::from(world.sched.now());
    let Ok(world) = Arc::try_unwrap(world).map_err(|_| ()) else {
        unreachable!("nothing outlives a world that has ended");
    };
    let (mut tally, breaches, digest) = world.ledger.into_inner().judge(slack);
    tally.seeds = 1;
    tally.micros = micros;
    SimulationOutcome {
        tally,
        breaches,
        digest,
    }
}

struct Task {
    number: u32,
    place: Place,
    future: BoxFuture<'static, ()>,
    waker: Waker,
    flag: Arc<TaskWaker>,
}

/// Polls tasks, one at a time, in an order that the seed decides.
struct Runner {
    world: Arc<World>,
    tasks: Vec<Option<Task>>,
    free: Vec<u32>,
    next: u32,
    spawned: Vec<(Place, BoxFuture<'static, ()>)>,
    /// Ready, on nodes that are paused.
    parked: Vec<(usize, TaskId)>,
    until_strike: u64,
}

/// No world takes nearly so many steps, unless it turns in circles.
const MOST_STEPS: u64 = 20_000_000;

impl Runner {
    fn new(world: Arc<World>) -> Self {
        let mut runner = Self {
            world,
            tasks: Vec::new(),
            free: Vec::new(),
            next: 0,
            spawned: Vec::new(),
            parked: Vec::new(),
            until_strike: 0,
        };
        runner.until_strike = runner.next_strike();
        runner
    }

    fn run(&mut self) -> Result<(), (&'static str, &'static str)> {
        for _ in 0..MOST_STEPS {
            self.adopt();
            self.bury();
            if self.world.is_over() {
                return Ok(());
            }
            let pick = |many| self.world.dice.index(many);
            if let Some(task) = self.world.sched.take_ready(pick) {
                self.step(task);
            } else if self.world.sched.advance() {
                self.unpark();
            } else {
                return Err(("P34", "nothing can happen any more, and somebody waits"));
            }
        }
        Err(("P34", "the world turns in circles"))
    }

    /// Takes in tasks that were started.
    fn adopt(&mut self) {
        self.world.sched.take_spawned(&mut self.spawned);
        for (place, future) in self.spawned.drain(..) {
            let index = self.free.pop().unwrap_or_else(|| {
                self.tasks.push(None);
                u32::try_from(self.tasks.len() - 1).unwrap_or(u32::MAX)
            });
            let id = TaskId {
                index,
                number: self.next,
            };
            self.next = self.next.wrapping_add(1);
            let (waker, flag) = self.world.sched.waker(id);
            waker.wake_by_ref();
            self.tasks[index as usize] = Some(Task {
                number: id.number,
                place,
                future,
                waker,
                flag,
            });
        }
    }

    /// Polls a task, unless it is gone, its node is dead, or its node does nothing for now.
    fn step(&mut self, id: TaskId) {
        let Some(task) = self.tasks[id.index as usize].take() else {
            return;
        };
        if task.number != id.number {
            self.tasks[id.index as usize] = Some(task);
            return;
        }
        if let Place::Node { node, life } = task.place {
            let nodes = self.world.nodes.lock();
            let is_dead = nodes[node].life != life || nodes[node].engine.is_none();
            let is_paused = self.world.sched.now() < nodes[node].paused_until;
            drop(nodes);
            if is_dead {
                self.free.push(id.index);
                return;
            }
            if is_paused {
                self.tasks[id.index as usize] = Some(task);
                self.parked.push((node, id));
                return;
            }
            if self.strikes(node) {
                // Before this task's next step: whatever it awaited may never be told.
                self.tasks[id.index as usize] = Some(task);
                self.world.sched.is_ready(id);
                return;
            }
        }
        self.poll(id, task);
    }

    fn poll(&mut self, id: TaskId, mut task: Task) {
        task.flag.polled();
        let mut context = Context::from_waker(&task.waker);
        match task.future.as_mut().poll(&mut context) {
            Poll::Ready(()) => self.free.push(id.index),
            Poll::Pending => self.tasks[id.index as usize] = Some(task),
        }
    }

    /// Counts a step of `node`; whether something strikes now.
    fn strikes(&mut self, node: usize) -> bool {
        if self.until_strike == 0 || self.world.is_healed() {
            return false;
        }
        self.until_strike -= 1;
        if self.until_strike > 0 {
            return false;
        }
        self.until_strike = self.next_strike();
        strike(&self.world, node);
        true
    }

    fn next_strike(&self) -> u64 {
        match self.world.plan.faults.strike_every {
            0 => 0,
            every => 1 + self.world.dice.below(2 * every),
        }
    }

    /// Ends doomed nodes: their tasks are dropped where they stand.
    fn bury(&mut self) {
        let doomed = std::mem::take(&mut *self.world.doomed.lock());
        for Doom { node, back_after } in doomed {
            let mut nodes = self.world.nodes.lock();
            let engine = nodes[node].engine.take();
            nodes[node].life += 1;
            nodes[node].paused_until = 0;
            drop(nodes);
            let mut gone = Vec::new();
            for (index, task) in self.tasks.iter_mut().enumerate() {
                let on =
                    |task: &Task| matches!(task.place, Place::Node { node: of, .. } if of == node);
                if task.as_ref().is_some_and(on) {
                    self.free.push(u32::try_from(index).unwrap_or(u32::MAX));
                    gone.extend(task.take());
                }
            }
            drop((gone, engine));
            let world = Arc::clone(&self.world);
            let restart = async move {
                world.sched.sleep(back_after).await;
                if world.nodes.lock()[node].engine.is_none() {
                    world.start(node);
                }
            };
            self.world.sched.spawn(Place::World, Box::pin(restart));
        }
    }

    fn unpark(&mut self) {
        if self.parked.is_empty() {
            return;
        }
        let now = self.world.sched.now();
        let nodes = self.world.nodes.lock();
        let sched = &self.world.sched;
        self.parked.retain(|(node, task)| {
            let paused = now < nodes[*node].paused_until;
            if !paused {
                sched.is_ready(*task);
            }
            paused
        });
    }

    /// Ends everything, so that nothing keeps anything else alive.
    fn end(mut self) {
        let nodes = std::mem::take(&mut *self.world.nodes.lock());
        let engines: Vec<_> = nodes.into_iter().filter_map(|node| node.engine).collect();
        self.tasks.clear();
        drop(engines);
        self.spawned.clear();
        self.world.sched.clear();
    }
}
