//! Automatic renewal (P31).
//!
//! Most effects end long before a third of their lease has passed, so none gets a timer or a task of
//! its own at first. One watcher per engine looks after all leases: those that are still held when
//! their first renewal is due get a task that renews them until the end. Apart from the effect's own
//! task on purpose: an effect that blocks its thread is still renewed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::future::{self, Either};
use hashbrown::HashMap;

use super::lease::Held;
use crate::claim::{Grant, Renewed};
use crate::clock::{Sleep, Tick};
use crate::env::Env;
use crate::sync::Mutex;

#[derive(Default)]
pub(super) struct Renewals {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_id: u64,
    held: HashMap<u64, Arc<Held>>,
    // First renewals by when they are due. Entries of leases that have ended are skipped.
    due: BinaryHeap<Reverse<(Tick, u64)>>,
    watching: bool,
    waker: Option<Waker>,
}

/// Renews a lease until dropped.
pub(super) struct Renewing {
    renewals: Arc<Renewals>,
    id: u64,
}

impl Drop for Renewing {
    fn drop(&mut self) {
        // Taken out under the lock, dropped outside: the last reference may drop an effect's state.
        let held = self.renewals.state.lock().held.remove(&self.id);
        if let Some(held) = held {
            held.end();
        }
    }
}

impl Renewals {
    /// Starts looking after `held`.
    pub(super) fn keep(self: &Arc<Self>, held: &Arc<Held>, lease: Duration, now: Tick) -> Renewing {
        let env = &held.engine.env;
        // A claim that was answered late has used up part of its lease: half of what is left is then soon enough.
        let left = held.deadline().since(now);
        let due = first_due(now, lease).min(now.plus(left / 2));
        let mut state = self.state.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.held.insert(id, Arc::clone(held));
        let sooner = state
            .due
            .peek()
            .is_none_or(|Reverse((first, _))| due < *first);
        state.due.push(Reverse((due, id)));
        let start = !std::mem::replace(&mut state.watching, true);
        let waker = if sooner { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        if start {
            // Made here: a runtime that ends may drop the task before it has begun.
            let unended = Unended::new(self, None);
            env.spawn
                .spawn(Box::pin(watch(Arc::clone(self), env.clone(), unended)));
        }
        Renewing {
            renewals: Arc::clone(self),
            id,
        }
    }

    /// Takes out what is due; answers when to look again, or `None` (and the watch ends) if never.
    fn take_due(&self, now: Tick) -> (Vec<(u64, Arc<Held>)>, Option<Tick>) {
        let mut state = self.state.lock();
        let mut due = Vec::new();
        while let Some(&Reverse((first, id))) = state.due.peek() {
            if first > now {
                return (due, Some(first));
            }
            state.due.pop();
            due.extend(state.held.get(&id).map(|held| (id, Arc::clone(held))));
        }
        state.watching = false;
        (due, None)
    }

    /// Completes at `until`, when `timer` does, or once a lease came in that is due sooner.
    async fn pause(&self, until: Tick, mut timer: Sleep) {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state
                .due
                .peek()
                .is_some_and(|Reverse((first, _))| *first < until)
            {
                return Poll::Ready(());
            }
            state.waker = Some(cx.waker().clone());
            drop(state);
            timer.as_mut().poll(cx)
        })
        .await;
    }
}

/// A third of the lease from now, rounded up to a coarse step so that the watcher wakes seldom.
fn first_due(now: Tick, lease: Duration) -> Tick {
    let step = (lease / 30).max(Duration::from_millis(1)).as_micros();
    let due = now.plus(lease / 3).since_origin().as_micros();
    let rounded = due.div_ceil(step) * step;
    Tick::new(Duration::from_micros(
        u64::try_from(rounded).unwrap_or(u64::MAX),
    ))
}

async fn watch(renewals: Arc<Renewals>, env: Env, mut unended: Unended) {
    loop {
        let now = env.clock.now();
        let (due, next) = renewals.take_due(now);
        for (id, held) in due {
            let unended = Unended::new(&renewals, Some(id));
            env.spawn.spawn(Box::pin(async move {
                let mut unended = unended;
                renew_until_the_end(held).await;
                unended.has_ended = true;
            }));
        }
        let Some(next) = next else {
            unended.has_ended = true;
            return;
        };
        renewals.pause(next, env.clock.sleep(next.since(now))).await;
    }
}

/// The watch, or the renewals of one lease, as long as they haven't come to their end. They may vanish before, with the
/// runtime that they were started on, while the engine is used on another: the next lease then starts a watch anew,
/// which finds the others due.
struct Unended {
    renewals: Arc<Renewals>,
    lease: Option<u64>,
    has_ended: bool,
}

impl Unended {
    fn new(renewals: &Arc<Renewals>, lease: Option<u64>) -> Self {
        Self {
            renewals: Arc::clone(renewals),
            lease,
            has_ended: false,
        }
    }
}

impl Drop for Unended {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut state = self.renewals.state.lock();
        match self.lease {
            Some(id) => state.due.push(Reverse((Tick::new(Duration::ZERO), id))),
            None => state.watching = false,
        }
        let waker = state.waker.take();
        drop(state);
        if let (Some(_), Some(waker)) = (self.lease, waker) {
            waker.wake();
        }
    }
}

async fn renew_until_the_end(held: Arc<Held>) {
    let Some(grant) = held.grant.clone() else {
        return;
    };
    while !held.has_ended() {
        let Some(pause) = renew_once(&held, &grant).await else {
            return;
        };
        held.engine.env.clock.sleep(pause).await;
    }
}

/// One renewal; answers how long to pause before the next, `None` when there is no point in one. No pause is longer
/// than what is left until the deadline.
async fn renew_once(held: &Held, grant: &Grant) -> Option<Duration> {
    match told_at_the_deadline(held, grant, held.renew(grant, None)).await {
        // Also where it came too late for the effect, which was told: it may run on, and this keeps others out.
        Ok(Renewed::Held) => Some((grant.lease / 3).min(held.remaining() / 2)),
        Ok(Renewed::Lost) => None,
        Err(_) => {
            let left = held.remaining();
            if left.is_zero() {
                tell(held, grant);
                return None;
            }
            Some(left.min(grant.lease / 10))
        }
    }
}

/// The answer of a renewal. Should the deadline pass before it comes, the effect is told then (P32): a call may take
/// longer than what is left, and another may hold the lease when it ends.
async fn told_at_the_deadline<T>(
    held: &Held,
    grant: &Grant,
    renewal: impl Future<Output = T>,
) -> T {
    let mut renewal = pin!(renewal);
    loop {
        let left = held.remaining();
        if left.is_zero() {
            tell(held, grant);
            return renewal.await;
        }
        let timer = held.engine.env.clock.sleep(left);
        // A checkpoint may have moved the deadline meanwhile: then there is more to wait.
        if let Either::Left((answer, _)) = future::select(renewal.as_mut(), timer).await {
            return answer;
        }
    }
}

/// Whether the lease is still ours can't be known any more. Of an effect that has ended nobody has to know it.
fn tell(held: &Held, grant: &Grant) {
    if !held.has_ended() {
        held.lose(grant.fence);
    }
}
