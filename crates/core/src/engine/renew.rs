//! Automatic renewal of leases (heartbeat, P31).
//!
//! Most effects end long before a third of their lease has passed, so a lease gets no timer or task
//! of its own at first. One watcher per engine scans the leases that are held whenever the first of
//! them is due: those that are due get a task that renews them until the end. It is separate from
//! the effect's task, so that an effect that blocks its thread is still renewed.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::future::{self, Either};

use super::lease::HeldLease;
use super::lease_table::{BATCH, LeaseTable, NEVER};
use crate::claim::{Grant, Renewed};
use crate::clock::{Sleep, Tick};
use crate::env::Env;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

pub(super) struct Renewals {
    table: LeaseTable,
    /// When the watcher scans next. [`NEVER`] while it scans, and while there is none: a lease that
    /// comes meanwhile then calls [`Renewals::hurry`]. Changed under the lock of `watch` only,
    /// except for the start of a scan.
    next: AtomicU64,
    watch: Mutex<Watch>,
}

#[derive(Default)]
struct Watch {
    watching: bool,
    /// Whether a lease may have been due since nobody watched.
    abandoned: bool,
    waker: Option<Waker>,
}

impl Default for Renewals {
    fn default() -> Self {
        Self {
            table: LeaseTable::default(),
            next: AtomicU64::new(NEVER),
            watch: Mutex::default(),
        }
    }
}

/// Renews a lease until dropped.
pub(super) struct RenewalGuard<'a> {
    held: &'a HeldLease,
    at: usize,
}

impl Drop for RenewalGuard<'_> {
    fn drop(&mut self) {
        let removed = self.held.engine.renewals.table.remove(self.held, self.at);
        self.held.end();
        drop(removed);
    }
}

/// Renews `held` until the returned guard is dropped.
pub(super) fn keep(held: &Arc<HeldLease>, lease: Duration, now: Tick) -> RenewalGuard<'_> {
    let renewals = &held.engine.renewals;
    let due = first_due(now.as_micros(), lease, held.deadline().as_micros());
    let at = renewals.table.insert(held, due);
    // Looked at after the insertion: a scan that has passed the slot has set this to `NEVER`
    // before.
    if due < renewals.next.load(Ordering::SeqCst) {
        renewals.hurry(&held.engine.env, due);
    }
    RenewalGuard { held, at }
}

/// A third of the lease from now, rounded up to a coarse step so that the watcher wakes rarely. A
/// claim that was answered late has used up part of its lease: then after half of the rest at the
/// latest.
fn first_due(now: u64, lease: Duration, deadline: u64) -> u64 {
    let lease = u64::try_from(lease.as_micros()).unwrap_or(u64::MAX);
    let step = (lease / 30).max(1_000);
    let third = now.saturating_add(lease / 3);
    let rounded = third.div_ceil(step).saturating_mul(step);
    let half = now.saturating_add(deadline.saturating_sub(now) / 2);
    rounded.min(half)
}

impl Renewals {
    /// When the oldest lease was claimed.
    pub(super) fn oldest(&self) -> Option<Tick> {
        self.table.oldest()
    }

    /// Lets the watcher scan by `due`, and starts it if there is none.
    fn hurry(self: &Arc<Self>, env: &Env, due: u64) {
        let mut watch = self.watch.lock();
        if due >= self.next.load(Ordering::SeqCst) {
            return;
        }
        let start = !std::mem::replace(&mut watch.watching, true);
        let abandoned = std::mem::take(&mut watch.abandoned);
        let first = if abandoned { 0 } else { due };
        self.next.store(first, Ordering::SeqCst);
        let waker = watch.waker.take();
        drop(watch);
        if let Some(waker) = waker {
            waker.wake();
        }
        if start {
            // Created here, because a runtime that shuts down may drop the task before its first
            // poll.
            let guard = WatcherGuard::new(self);
            env.spawn
                .spawn(Box::pin(watch_leases(Arc::clone(self), env.clone(), guard)));
        }
    }

    /// Passes the leases that are due to `begin`, a few at a time and without a lock. Returns
    /// whether the watcher has to scan again; if not, it has ended.
    fn scan(&self, now: Tick, mut begin: impl FnMut(usize, Arc<HeldLease>)) -> bool {
        // Before the first look: a lease that comes from here on is either found by the scan or
        // calls `hurry`.
        self.next.store(NEVER, Ordering::SeqCst);
        let mut found = NEVER;
        for shard in LeaseTable::shards() {
            let (mut from, mut more) = (0, true);
            while more {
                let batch = self.table.take_due(shard, from, now.as_micros());
                for (at, held) in batch.due {
                    begin(at, held);
                }
                found = found.min(batch.next);
                from = from.saturating_add(BATCH);
                more = batch.more;
            }
        }
        let mut watch = self.watch.lock();
        let next = found.min(self.next.load(Ordering::SeqCst));
        self.next.store(next, Ordering::SeqCst);
        watch.watching = next != NEVER;
        watch.watching
    }

    /// Completes when `timer` does, or once a lease is due before `until`.
    async fn pause(&self, until: u64, mut timer: Sleep) {
        poll_fn(|cx| {
            let mut watch = self.watch.lock();
            if self.next.load(Ordering::SeqCst) < until {
                return Poll::Ready(());
            }
            watch.waker = Some(cx.waker().clone());
            drop(watch);
            timer.as_mut().poll(cx)
        })
        .await;
    }
}

async fn watch_leases(renewals: Arc<Renewals>, env: Env, mut guard: WatcherGuard) {
    loop {
        let now = env.clock.now();
        let next = renewals.next.load(Ordering::SeqCst);
        if next > now.as_micros() {
            let left = Tick::from_micros(next).since(now);
            renewals.pause(next, env.clock.sleep(left)).await;
            continue;
        }
        let goes_on = renewals.scan(now, |at, held| {
            let guard = TaskGuard::new(&held, at);
            env.spawn.spawn(Box::pin(async move {
                let mut guard = guard;
                renew_until_ended(held).await;
                guard.has_ended = true;
            }));
        });
        if !goes_on {
            guard.has_ended = true;
            return;
        }
    }
}

/// Notices that the watcher was dropped before its end. That happens if the runtime it was started
/// on shuts down while the engine is used on another: the next lease then starts a new watcher,
/// which finds the others due.
struct WatcherGuard {
    renewals: Arc<Renewals>,
    has_ended: bool,
}

impl WatcherGuard {
    fn new(renewals: &Arc<Renewals>) -> Self {
        Self {
            renewals: Arc::clone(renewals),
            has_ended: false,
        }
    }
}

impl Drop for WatcherGuard {
    fn drop(&mut self) {
        if !self.has_ended {
            let mut watch = self.renewals.watch.lock();
            (watch.watching, watch.abandoned) = (false, true);
            self.renewals.next.store(NEVER, Ordering::SeqCst);
        }
    }
}

/// Notices that the renewals of one lease were dropped before their end, for the same reason: the
/// watcher, or else the next one, begins them again.
struct TaskGuard {
    held: Arc<HeldLease>,
    at: usize,
    has_ended: bool,
}

impl TaskGuard {
    fn new(held: &Arc<HeldLease>, at: usize) -> Self {
        Self {
            held: Arc::clone(held),
            at,
            has_ended: false,
        }
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let renewals = &self.held.engine.renewals;
        renewals.table.make_due(&self.held, self.at);
        let mut watch = renewals.watch.lock();
        if !watch.watching {
            watch.abandoned = true;
            return;
        }
        renewals.next.store(0, Ordering::SeqCst);
        let waker = watch.waker.take();
        drop(watch);
        if let Some(waker) = waker {
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

    /// Positions and number of the leases that a scan at `now` finds due.
    fn due(engine: &Engine, now: Tick) -> usize {
        let mut found = 0;
        engine.shared.renewals.scan(now, |_, _| found += 1);
        found
    }

    #[test]
    fn ended_runs_leave_no_slots_behind() {
        let (engine, held, _) = held();
        let now = engine.env().clock.now();
        let table = &engine.shared.renewals.table;
        let kept: Vec<_> = (0..10).map(|_| keep(&held, HOUR, now)).collect();
        let mut most = 0;
        for _ in 0..200_000 {
            drop(keep(&held, HOUR, now));
            most = most.max(table.slots());
        }
        assert!(most <= 11, "{most} slots for 11 runs");
        // Those that still run are still due, and only once.
        assert_eq!(due(&engine, now.plus(HOUR / 4)), 0);
        assert_eq!(due(&engine, now.plus(HOUR)), 10);
        assert_eq!(due(&engine, now.plus(HOUR)), 0);
        drop(kept);
        assert_eq!(table.slots(), 0);
    }

    #[test]
    fn no_lock_is_held_for_the_renewal_of_many_runs() {
        const RUNS: usize = 10_000;
        let (engine, held, _) = held();
        let now = engine.env().clock.now();
        let renewals = &engine.shared.renewals;
        // One identity: all of them share a shard, which is the worst case.
        let kept: Vec<_> = (0..RUNS).map(|_| keep(&held, HOUR, now)).collect();
        let at = now.plus(HOUR);
        let shard = usize::from(held.subject.identity.as_bytes()[31]) % LeaseTable::shards().end;
        let batch = renewals.table.take_due(shard, 0, at.as_micros());
        assert_eq!((batch.due.len(), batch.more), (BATCH, true));
        let mut begun = BATCH;
        renewals.scan(at, |_, _| {
            begun += 1;
            // Takes the lock of the shard that is being scanned.
            drop(keep(&held, HOUR, at));
        });
        assert_eq!(begun, RUNS);
        drop(kept);
    }

    #[test]
    fn p31_lease_that_comes_during_a_scan_is_watched() {
        let (engine, held, _) = held();
        let now = engine.env().clock.now();
        let renewals = &engine.shared.renewals;
        let first = keep(&held, HOUR, now);
        let mut during = None;
        let at = now.plus(HOUR);
        let goes_on = renewals.scan(at, |_, _| during = Some(keep(&held, HOUR, at)));
        assert!(goes_on, "the watcher leaves a lease behind");
        let next = renewals.next.load(Ordering::SeqCst);
        assert_eq!(due(&engine, Tick::from_micros(next)), 1);
        drop((first, during));
    }

    #[test]
    fn p31_watch_dropped_before_first_poll_is_restarted() {
        let (engine, held, parked) = held();
        let now = engine.env().clock.now();
        let first = keep(&held, HOUR, now);
        assert_eq!(std::mem::take(&mut *parked.0.lock()).len(), 1);
        let second = keep(&held, HOUR, now);
        assert_eq!(parked.0.lock().len(), 1, "nobody watches the leases");
        // The first may be overdue by now.
        let next = engine.shared.renewals.next.load(Ordering::SeqCst);
        assert_eq!(next, 0, "the new watcher scans at once");
        drop((first, second));
    }

    #[test]
    fn p31_dropped_renewals_begin_again() {
        let (engine, held, _) = held();
        let now = engine.env().clock.now();
        let kept = keep(&held, HOUR, now);
        let at = now.plus(HOUR);
        let renewals = &engine.shared.renewals;
        renewals.scan(at, |at, held| drop(TaskGuard::new(&held, at)));
        assert_eq!(renewals.next.load(Ordering::SeqCst), 0);
        assert_eq!(due(&engine, now), 1);
        // Those of a lease that has ended do not, although another lease has its slot.
        let (subject, grant) = (held.subject.clone(), held.grant.clone());
        let another = HeldLease::new(Arc::clone(&engine.shared), subject, None, grant, None, now);
        let (mut task, ended) = (None, keep(&held, HOUR, now));
        renewals.scan(at, |at, held| task = Some(TaskGuard::new(&held, at)));
        drop(ended);
        let other = keep(&another, HOUR, now);
        drop(task);
        assert_eq!(due(&engine, now), 0);
        drop((kept, other));
    }
}
