//! Callers, which call, time out and retry elsewhere; and the doors of the nodes.

use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::future::{self, Either};
use semel_core::engine::{Doubt, Engine, Recover, Request};
use semel_core::policy::{OnBusy, Policy, StoreDown};
use semel_core::{CrashPolicy, Fingerprint, Identity, Resolution, State};

use super::answers::{self, RetryAdvice};
use super::effects::{effect, made};
use super::job::Job;
use super::sched::{Micros, Place};
use super::world::{NodeFlaw, World};

/// A caller's life: requests, with time between them.
pub(super) async fn live(world: Arc<World>, done: oneshot::Sender<()>) {
    for _ in 0..world.plan.requests {
        world.sched.sleep(think(&world)).await;
        let key = world.dice.index(world.plan.keys);
        let payload = u8::from(world.dice.one_in(12));
        persist(&world, key, payload).await;
    }
    let _ = done.send(());
}

/// Most come at once; some when a lease or a retention is just over, or is about to be.
fn think(world: &World) -> Micros {
    let (dice, plan) = (&world.dice, &world.plan);
    let about = |span: Micros| span.saturating_sub(500) + dice.below(2000);
    match dice.below(24) {
        0..14 => dice.below(plan.lease / 8),
        14..20 => dice.below(2 * plan.lease),
        20..22 => about(plan.lease),
        22 => about(plan.retention),
        _ => dice.below(2 * plan.retention),
    }
}

/// Asks until there is an answer that will not change, or the caller has had enough.
async fn persist(world: &Arc<World>, key: usize, payload: u8) {
    for attempt in 0..4 {
        let node = world.dice.index(world.plan.nodes);
        let hurry = world
            .dice
            .one_in(4)
            .then(|| world.dice.below(world.plan.lease));
        let wait = if world.dice.one_in(8) {
            0
        } else {
            world.plan.wait
        };
        let job = Job {
            again: attempt > 0,
            ..job(world, key, payload, node, wait)
        };
        match ask(world, job, hurry).await {
            Some(RetryAdvice::Final) => return,
            Some(RetryAdvice::Retry) if world.dice.one_in(3) => return,
            _ => {
                world
                    .sched
                    .sleep(world.dice.below(world.plan.lease / 2))
                    .await;
            }
        }
    }
}

/// Asks a node once; `None` where it is down, dies, or the caller leaves.
pub(super) async fn ask(
    world: &Arc<World>,
    job: Job,
    hurry: Option<Micros>,
) -> Option<RetryAdvice> {
    let node = job.node;
    let (engine, life) = {
        let nodes = world.nodes.lock();
        (nodes[node].engine.clone()?, nodes[node].life)
    };
    let (tell, hear) = oneshot::channel();
    let (leave, left) = oneshot::channel::<()>();
    let door = door(Arc::clone(world), engine, job.clone(), tell);
    // A door gives a request up when its caller hangs up; what was begun goes on (P37).
    let door = async move {
        let _ = future::select(Box::pin(door), left).await;
    };
    world
        .sched
        .spawn(Place::Node { node, life }, Box::pin(door));
    let patience = hurry.unwrap_or_else(|| answers::longest(world, &job));
    let heard = future::select(hear, world.sched.sleep(patience)).await;
    drop(leave);
    match heard {
        Either::Left((told, _)) => told.ok(),
        Either::Right(_) => {
            if hurry.is_none() {
                answers::never_told(world, &job, life);
            }
            None
        }
    }
}

/// A request for `key`, to be asked at `node`.
pub(super) fn job(world: &World, key: usize, payload: u8, node: usize, wait: Micros) -> Job {
    let (namespace, name, _) = &world.keys[key];
    Job {
        key,
        payload,
        node,
        identity: Identity::new(&semel_core::Secret::none(), namespace, name),
        fail_open: world.plan.fail_open && key == 0,
        wait,
        last: false,
        again: false,
        worked: Arc::default(),
    }
}

/// A node's door: hands the request to the engine, and the answer to the caller.
async fn door(world: Arc<World>, engine: Engine, job: Job, tell: oneshot::Sender<RetryAdvice>) {
    let begun = answers::RequestStart::now(&world, &job);
    let request = request(&world, &engine, &job);
    let run = {
        let (world, job) = (Arc::clone(&world), job.clone());
        move |lease| effect(world, job, lease)
    };
    let response = engine.execute(request, run).await;
    let told = answers::told(&world, &job, &begun, &response);
    let _ = tell.send(told);
}

fn request(world: &Arc<World>, engine: &Engine, job: &Job) -> Request {
    let plan = &world.plan;
    let (namespace, key, _) = &world.keys[job.key];
    // Every second key is under `hold`; some callers have it configured the other way round.
    let hold = job.key.is_multiple_of(2) != world.dice.one_in(10);
    let policy = Policy::default()
        .with_lease(plan.lease())
        .with_retention(plan.retention())
        .with_crash(if hold {
            CrashPolicy::Hold
        } else {
            CrashPolicy::Takeover
        })
        .with_max_attempts(if world.dice.one_in(10) {
            3
        } else {
            plan.attempts
        })
        .with_on_busy(match job.wait {
            0 => OnBusy::Refuse,
            wait => OnBusy::Wait(Duration::from_micros(wait)),
        })
        .with_max_waiters_per_key(plan.waiters)
        .with_max_answer_bytes(plan.most_answer_bytes)
        .with_store_down(if job.fail_open {
            StoreDown::Open
        } else {
            StoreDown::Closed
        });
    let policy = match world.answer_retention {
        None => policy,
        Some(kept) => {
            let is_flawed = world.flaw == Some(NodeFlaw::AnswersExpireEarly);
            let kept = if is_flawed { kept / 8 } else { kept };
            policy.with_answer_retention(Duration::from_micros(kept))
        }
    };
    let mut print = [0; Fingerprint::BYTES];
    print[..2].copy_from_slice(&[1, job.payload + 1]);
    let fingerprint = Fingerprint::from_bytes(print);
    let request = Request::new(
        engine,
        namespace.clone(),
        key,
        fingerprint,
        Arc::new(policy),
    );
    let request = request.with_retry(job.again);
    if world.dice.one_in(2) {
        return request;
    }
    request.recover_with(recover(world, job))
}

/// Finds out what became of a run: sometimes it happened, sometimes it didn't, sometimes nobody
/// knows.
fn recover(world: &Arc<World>, job: &Job) -> Recover {
    let (world, job) = (Arc::clone(world), job.clone());
    Arc::new(move |_: Doubt| {
        let (world, job) = (Arc::clone(&world), job.clone());
        Box::pin(async move {
            world.sched.sleep(world.dice.below(5000)).await;
            resolution(&world, job.key, job.payload)
        })
    })
}

/// What may end a doubt about `key`.
pub(super) fn resolution(world: &World, key: usize, payload: u8) -> Option<Resolution> {
    let answer = |state| made(world, key, payload, state).1;
    match world.dice.below(4) {
        0 => None,
        1 => Some(Resolution::Release),
        2 => Some(Resolution::Fail(answer(State::Failed))),
        _ => Some(Resolution::Complete(answer(State::Completed))),
    }
}
