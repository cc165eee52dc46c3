//! The network between a node and the store: messages are delayed, lost, duplicated, cut.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_channel::oneshot;
use semel_core::store::{Capabilities, Wake};
use semel_core::wake::Wakeup;
use semel_core::{
    BoxFuture, Certainty, Claim, Claimed, Fence, Grant, Identity, Record, Renewed, Resolution,
    Resolved, Settled, Settlement, Store, StoreAdmin, StoreError, StoreErrorKind, StoreResult,
};

use super::ledger::Moment;
use super::op::{Op, StoreReply};
use super::sched::{Micros, Place};
use super::world::{NodeFlaw, World};
use crate::broken::BrokenStore;

/// The store as a node reaches it.
pub(super) struct Wire {
    world: Arc<World>,
    node: usize,
    store: BrokenStore,
}

/// What becomes of one message.
struct Fate {
    there: Micros,
    lost_there: bool,
    /// The server is gone after so many steps of the call.
    cut: Option<u32>,
    lost_back: bool,
    back: Micros,
    /// Whoever waits for a reply that is lost isn't told so.
    silent: bool,
}

impl Fate {
    fn roll(world: &World) -> Self {
        let rates = world.plan.faults;
        Self {
            there: delay(world),
            lost_there: world.befalls("request lost", rates.lost),
            cut: world
                .befalls("cut while the store was at it", rates.cut)
                .then(|| u32::try_from(1 + world.dice.below(20)).unwrap_or(1)),
            lost_back: world.befalls("reply lost", rates.lost),
            back: delay(world),
            silent: world.dice.one_in(2),
        }
    }
}

/// How long a message takes: less than a millisecond, or so long that anything may happen
/// meanwhile.
fn delay(world: &World) -> Micros {
    let plan = &world.plan;
    if world.befalls("message late", plan.faults.slow) {
        return world.dice.span(3 * plan.lease + plan.call_limit);
    }
    100 + world.dice.below(700)
}

impl Wire {
    pub(super) fn new(world: &Arc<World>, node: usize) -> Self {
        let store = match node {
            0 => world.store.clone(),
            _ => world.store.another(),
        };
        Self {
            world: Arc::clone(world),
            node,
            store,
        }
    }

    async fn send(&self, op: Op) -> StoreResult<StoreReply> {
        let world = &self.world;
        if world.befalls("refused", world.plan.faults.refused) {
            return Err(error(Certainty::Definite));
        }
        let fate = Fate::roll(world);
        let silent = fate.silent;
        let (tell, hear) = oneshot::channel();
        let op = Arc::new(op);
        if world.befalls("message twice", world.plan.faults.twice) {
            let again = carry(self.carrier(), Arc::clone(&op), Fate::roll(world), None);
            world.sched.spawn(Place::World, Box::pin(again));
        }
        let sent = carry(self.carrier(), op, fate, Some(tell));
        world.sched.spawn(Place::World, Box::pin(sent));
        match hear.await {
            Ok(said) => said,
            Err(_) if silent => pending().await,
            Err(_) => Err(error(Certainty::Unknown)),
        }
    }

    fn carrier(&self) -> Carrier {
        Carrier {
            world: Arc::clone(&self.world),
            node: self.node,
            store: self.store.clone(),
        }
    }
}

fn error(certainty: Certainty) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, certainty, "simulated")
}

/// What takes a message along.
pub(super) struct Carrier {
    pub(super) world: Arc<World>,
    pub(super) node: usize,
    pub(super) store: BrokenStore,
}

type ReplySender = oneshot::Sender<StoreResult<StoreReply>>;

async fn carry(carrier: Carrier, op: Arc<Op>, fate: Fate, tell: Option<ReplySender>) {
    let world = &carrier.world;
    world.sched.sleep(fate.there).await;
    if fate.lost_there || world.is_cut_off(carrier.node) || world.is_down() {
        return;
    }
    let said = carrier.deliver(&op, fate.cut).await;
    if fate.lost_back || fate.cut.is_some() {
        return;
    }
    let (Some(said), Some(tell)) = (said, tell) else {
        return;
    };
    world.sched.sleep(fate.back).await;
    if !world.is_cut_off(carrier.node) {
        // Nobody to tell is fine: whoever asked has given up, or is dead.
        let _ = tell.send(said);
    }
}

impl Carrier {
    /// Lets the store decide, for at most `cut` steps, and writes down what it did.
    pub(super) async fn deliver(
        &self,
        op: &Op,
        cut: Option<u32>,
    ) -> Option<StoreResult<StoreReply>> {
        let world = &self.world;
        let key = world.key_of(&op.identity());
        let (tick, began) = (world.ledger.lock().tick(), world.store_clock.micros());
        let call = op.decide(&self.store);
        let said = slowly(world, cut, call).await;
        let at = Moment {
            node: self.node,
            tick,
            began,
            store: world.store_clock.micros(),
            world: world.sched.now(),
        };
        let mut ledger = world.ledger.lock();
        match (key, &said) {
            (Some(key), Some(said)) => ledger.decided(key, op, said, at),
            (Some(key), None) => ledger.cut(key, op, at),
            (None, Some(Ok(said))) => {
                let retention = world.answer_retention.unwrap_or_default();
                ledger.answers.decided(op, said, at.store + retention);
            }
            (None, _) => {}
        }
        drop(ledger);
        said
    }
}

/// Does `work`, and lets others go on wherever it waits; gives it up after so many steps. What a
/// sound store does to a record is one step.
pub(super) async fn slowly<T>(
    world: &World,
    most: Option<u32>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let mut left = most.unwrap_or(u32::MAX);
    loop {
        let step = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
        if let Poll::Ready(done) = step {
            return Some(done);
        }
        left -= 1;
        if left == 0 {
            return None;
        }
        world.sched.sleep(world.dice.below(60)).await;
    }
}

/// Takes the answer out of what was said to a question of its kind.
macro_rules! answer {
    ($said:expr, $kind:ident) => {
        match $said? {
            StoreReply::$kind(answer) => Ok(answer),
            _ => Err(error(Certainty::Unknown)),
        }
    };
}

/// An engine makes none of these calls, but a store around a store needs them.
impl StoreAdmin for Wire {
    semel_core::forward_store!(|self| self.store => list, delete, restore, sweep, expired, now, stats, connections, diagnose);
}

#[deny(clippy::missing_trait_methods, reason = "a wire carries every call")]
impl Store for Wire {
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, StoreResult<Claimed>> {
        let sent = self.send(Op::Claim(claim.clone()));
        Box::pin(async move { answer!(sent.await, Claimed) })
    }

    fn renew<'a>(
        &'a self,
        lease: &'a Grant,
        checkpoint: Option<&'a Bytes>,
    ) -> BoxFuture<'a, StoreResult<Renewed>> {
        let sent = self.send(Op::Renew(lease.clone(), checkpoint.cloned()));
        Box::pin(async move { answer!(sent.await, Renewed) })
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: &'a Settlement,
    ) -> BoxFuture<'a, StoreResult<Settled>> {
        let is_answer = self.world.key_of(&lease.identity).is_none();
        if is_answer && self.world.flaw == Some(NodeFlaw::MarksWithoutAnswers) {
            return Box::pin(async { Ok(Settled::Done) });
        }
        let sent = self.send(Op::Settle(lease.clone(), settlement.clone()));
        Box::pin(async move { answer!(sent.await, Settled) })
    }

    fn resolve<'a>(
        &'a self,
        identity: &'a Identity,
        fence: Fence,
        resolution: &'a Resolution,
    ) -> BoxFuture<'a, StoreResult<Resolved>> {
        let sent = self.send(Op::Resolve(*identity, fence, resolution.clone()));
        Box::pin(async move { answer!(sent.await, Resolved) })
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, StoreResult<Option<Record>>> {
        let sent = self.send(Op::Read(*identity));
        Box::pin(async move {
            let found: StoreResult<Option<Box<Record>>> = answer!(sent.await, Read);
            Ok(found?.map(|record| *record))
        })
    }

    fn watch(&self, identity: &Identity) -> Wakeup {
        let lost = self.world.plan.faults.wake_lost;
        if self.world.befalls("wake-up lost", lost) {
            return Wakeup::never();
        }
        self.store.watch(identity)
    }

    fn capabilities(&self) -> Capabilities {
        let lossy = self.world.plan.faults.wake_lost > 0;
        self.store
            .capabilities()
            .with_shared(true)
            .with_wake(if lossy { Wake::Hint } else { Wake::Exact })
    }
}
