//! Automatic renewal of leases (heartbeat, P31).
//!
//! Most effects end long before a third of their lease has passed, so a lease gets no timer or task
//! of its own at first. One watcher per engine takes care of all leases: those that are still held
//! when their first renewal is due get a task that renews them until the end. It is separate from
//! the effect's task, so that an effect that blocks its thread is still renewed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::future::{self, Either};
use hashbrown::HashMap;

use super::lease::HeldLease;
use crate::claim::{Grant, Renewed};
use crate::clock::{Sleep, Tick};
use crate::env::Env;
use crate::sync::Mutex;

#[derive(Default)]
pub(super) struct Renewals {
    state: Mutex<RenewalState>,
}

#[derive(Default)]
struct RenewalState {
    next_id: u64,
    held: HashMap<u64, Arc<HeldLease>>,
    /// First renewals by due time. Entries of leases that have ended are skipped, and removed once
    /// there are many.
    due: BinaryHeap<Reverse<(Tick, u64)>>,
    watching: bool,
    waker: Option<Waker>,
}

/// How many entries of ended leases may stay, however few leases are held.
const SPARED: usize = 64;

impl RenewalState {
    /// Removes the entries of ended leases once they are more than half of all, so that each entry
    /// is moved about once.
    fn remove_ended(&mut self) {
        if self.due.len() > 2 * self.held.len() + SPARED {
            let held = &self.held;
            self.due.retain(|Reverse((_, id))| held.contains_key(id));
        }
    }
}

/// Renews a lease until dropped.
pub(super) struct RenewalGuard {
    renewals: Arc<Renewals>,
    id: u64,
}

impl Drop for RenewalGuard {
    fn drop(&mut self) {
        // Removed under the lock but dropped outside: the last reference may drop an effect's
        // state.
        let mut state = self.renewals.state.lock();
        let held = state.held.remove(&self.id);
        state.remove_ended();
        drop(state);
        if let Some(held) = held {
            held.end();
        }
    }
}

impl Renewals {
    /// Renews `held` until the returned guard is dropped.
    pub(super) fn keep(
        self: &Arc<Self>,
        held: &Arc<HeldLease>,
        lease: Duration,
        now: Tick,
    ) -> RenewalGuard {
        let env = &held.engine.env;
        // A claim that was answered late has used up part of its lease: renew after half of the
        // rest at the latest.
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
            // Created here, because a runtime that shuts down may drop the task before its first
            // poll.
            let guard = WatchGuard::new(self, None);
            env.spawn
                .spawn(Box::pin(watch(Arc::clone(self), env.clone(), guard)));
        }
        RenewalGuard {
            renewals: Arc::clone(self),
            id,
        }
    }

    /// Takes the leases that are due, and returns when the next one is. `None` ends the watch.
    fn take_due(&self, now: Tick) -> (Vec<(u64, Arc<HeldLease>)>, Option<Tick>) {
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

    /// Completes at `until`, when `timer` does, or once a lease is added that is due sooner.
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

/// A third of the lease from now, rounded up to a coarse step so that the watcher wakes rarely.
fn first_due(now: Tick, lease: Duration) -> Tick {
    let step = (lease / 30).max(Duration::from_millis(1)).as_micros();
    let due = now.plus(lease / 3).since_origin().as_micros();
    let rounded = due.div_ceil(step) * step;
    Tick::new(Duration::from_micros(
        u64::try_from(rounded).unwrap_or(u64::MAX),
    ))
}

async fn watch(renewals: Arc<Renewals>, env: Env, mut guard: WatchGuard) {
    loop {
        let now = env.clock.now();
        let (due, next) = renewals.take_due(now);
        for (id, held) in due {
            let guard = WatchGuard::new(&renewals, Some(id));
            env.spawn.spawn(Box::pin(async move {
                let mut guard = guard;
                renew_until_ended(held).await;
                guard.has_ended = true;
            }));
        }
        let Some(next) = next else {
            guard.has_ended = true;
            return;
        };
        renewals.pause(next, env.clock.sleep(next.since(now))).await;
    }
}

/// Notices that the watch, or the renewals of one lease, were dropped before their end. That
/// happens if the runtime they were started on shuts down while the engine is used on another: the
/// next lease then starts a new watch, which finds the others due.
struct WatchGuard {
    renewals: Arc<Renewals>,
    lease: Option<u64>,
    has_ended: bool,
}

impl WatchGuard {
    fn new(renewals: &Arc<Renewals>, lease: Option<u64>) -> Self {
        Self {
            renewals: Arc::clone(renewals),
            lease,
            has_ended: false,
        }
    }
}

impl Drop for WatchGuard {
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

async fn renew_until_ended(held: Arc<HeldLease>) {
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

/// Sends one renewal and returns the pause before the next one, which never reaches past the
/// deadline. `None` if the lease can't be kept any longer.
async fn renew_once(held: &HeldLease, grant: &Grant) -> Option<Duration> {
    match await_renewal(held, grant, held.renew(grant, None)).await {
        // Goes on even if the answer came after the deadline: the effect may still run, and this
        // keeps others out.
        Ok(Renewed::Held) => Some((grant.lease / 3).min(held.remaining() / 2)),
        Ok(Renewed::Lost) => None,
        Err(_) => {
            let left = held.remaining();
            if left.is_zero() {
                lose_unless_ended(held, grant);
                return None;
            }
            Some(left.min(grant.lease / 10))
        }
    }
}

/// Awaits the answer of a renewal. If the deadline passes first, the effect learns at that time
/// that its lease is lost (P32): another owner may hold the lease when the answer comes.
async fn await_renewal<T>(held: &HeldLease, grant: &Grant, renewal: impl Future<Output = T>) -> T {
    let mut renewal = pin!(renewal);
    loop {
        let left = held.remaining();
        if left.is_zero() {
            lose_unless_ended(held, grant);
            return renewal.await;
        }
        let timer = held.engine.env.clock.sleep(left);
        // A checkpoint may have extended the deadline meanwhile, so it is checked again.
        if let Either::Left((answer, _)) = future::select(renewal.as_mut(), timer).await {
            return answer;
        }
    }
}

/// Marks the lease as lost, because nobody can know any more whether it is still ours. An effect
/// that has ended needs no such mark.
fn lose_unless_ended(held: &HeldLease, grant: &Grant) {
    if !held.has_ended() {
        held.lose(grant.fence);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parking_lot::Mutex as Lock;

    use super::*;
    use crate::clock::{Clock, SystemTime, Timestamp};
    use crate::engine::Engine;
    use crate::engine::request::Subject;
    use crate::env::{BoxFuture, Spawn, SystemEntropy};
    use crate::identity::Identity;
    use crate::key::KeyHint;
    use crate::memory::{MemoryConfig, MemoryStore};
    use crate::namespace::Namespace;
    use crate::record::{CrashPolicy, Fence, Token};

    const HOUR: Duration = Duration::from_secs(3600);

    struct Still(SystemTime);

    impl Clock for Still {
        fn now(&self) -> Tick {
            Tick::new(Duration::ZERO)
        }

        fn wall(&self) -> Timestamp {
            self.0.wall()
        }

        fn sleep(&self, _: Duration) -> Sleep {
            Box::pin(future::pending())
        }
    }

    /// Collects tasks without running them.
    #[derive(Default)]
    struct Parked(Lock<Vec<BoxFuture<'static, ()>>>);

    impl Spawn for Parked {
        fn spawn(&self, task: BoxFuture<'static, ()>) {
            self.0.lock().push(task);
        }
    }

    fn held() -> (Engine, Arc<HeldLease>, Arc<Parked>) {
        let parked = Arc::new(Parked::default());
        let clock: Arc<dyn Clock> = Arc::new(Still(SystemTime::default()));
        let env = Env {
            clock: Arc::clone(&clock),
            spawn: Arc::clone(&parked) as Arc<dyn Spawn>,
            entropy: Arc::new(SystemEntropy),
        };
        let store = Arc::new(MemoryStore::new(MemoryConfig::default(), clock));
        let engine = Engine::new(store, env);
        let identity = Identity::from_bytes([1; 32]);
        let subject = Subject {
            namespace: Namespace::new("test", "", "charge").expect("well-formed"),
            hint: KeyHint::default(),
            identity,
            context: None,
        };
        let grant = Grant {
            identity,
            fence: Fence(1),
            token: Token(1),
            attempt: 1,
            checkpoint: Bytes::new(),
            lease: HOUR,
            crash: CrashPolicy::Takeover,
            memo: Bytes::new(),
        };
        let now = engine.env().clock.now();
        let shared = Arc::clone(&engine.shared);
        let held = HeldLease::new(shared, subject, None, Some(grant), None, now);
        (engine, held, parked)
    }

    #[test]
    fn ended_runs_free_their_entries_before_the_lease_ends() {
        let (engine, held, _) = held();
        let now = engine.env().clock.now();
        let renewals = &engine.shared.renewals;
        let kept: Vec<_> = (0..10).map(|_| renewals.keep(&held, HOUR, now)).collect();
        let mut most = 0;
        for _ in 0..200_000 {
            drop(renewals.keep(&held, HOUR, now));
            most = most.max(renewals.state.lock().due.len());
        }
        assert!(most <= 100, "{most} entries for 10 runs");
        // Those that still run are still due.
        let at = now.plus(HOUR);
        let mut due: Vec<_> = renewals.take_due(at).0.iter().map(|(id, _)| *id).collect();
        due.sort_unstable();
        assert_eq!(due, (0..10).collect::<Vec<_>>());
        drop(kept);
    }

    #[test]
    fn p31_watch_dropped_before_first_poll_is_restarted() {
        let (engine, held, parked) = held();
        let now = engine.env().clock.now();
        let renewals = &engine.shared.renewals;
        let first = renewals.keep(&held, HOUR, now);
        assert_eq!(std::mem::take(&mut *parked.0.lock()).len(), 1);
        let second = renewals.keep(&held, HOUR, now);
        assert_eq!(parked.0.lock().len(), 1, "nobody watches the leases");
        drop((first, second));
    }
}
